"""Checks of a live transformers model: its modules and attention function against its configuration, and its loss.

The loss is measured at the training length and at the length that the configuration declares, then under other bases
and under the other layout: a lower loss there means that the weights were trained with another rotation.

Source: transformers 5.23, masking_utils.py (an attention function without a mask of its name gets None), integrations/
    sdpa_attention.py (sinks are not read), modeling_utils.py (``to`` casts the buffers of rotary modules).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from posenc.arguments import shown
from posenc.evaluation.likelihood import Windows, check_vocabulary, token_losses, tokens_of_text
from posenc.frequencies.rotation import Layout, RoPESpec
from posenc.hf.attach import attach, detach
from posenc.hf.attach.attention_function import NAME, Attached
from posenc.hf.attach.live_model import Difference, inspect, is_rotary_module
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.rotation import built
from posenc.hf.doctor.corrections import keys_for, single, text_path
from posenc.hf.doctor.side_files import longest_of
from posenc.hf.explanation.report import ranges
from posenc.hf.findings import Finding
from posenc.hf.sources.load import Config

_REBUILD = "modules are built once, with the model: give the configuration to from_pretrained(..., config=config)"


def config_of(model: nn.Module) -> Config:
    """The configuration of a model, without what is attached to it."""
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"model must be a model of transformers, got {shown(model)}")
    return {key: value for key, value in model.config.to_dict().items() if key != NAME}


def on_model(model: nn.Module) -> Iterator[Finding]:
    """Findings where the modules of a model contradict its configuration."""
    yield from _on_attention(model)
    bad_buffers = list(_on_buffers(model))
    yield from bad_buffers
    try:
        inspection = inspect(model)
    except ValueError as error:
        yield Finding("model", f"cannot be measured: {str(error).splitlines()[0]}", "not-measured", "note")
        return
    layers: dict[Difference, list[int]] = {}
    for layer in inspection.layers:
        for difference in layer.differs:
            layers.setdefault(difference, []).append(layer.number)
    for difference, numbers in layers.items():
        if difference.name != "rotation" or not bad_buffers:
            text = f"(layers {ranges(numbers)}): {difference.text}; {_REBUILD}"
            yield Finding(difference.name, text, f"{difference.name}-of-another-configuration", "fault")


def _on_attention(model: nn.Module) -> Iterator[Finding]:
    """Findings on the attention function: encodings, masks or sinks that it ignores."""
    modules: list[Any] = list(model.modules())
    attached = [module for module in modules if isinstance(getattr(module, NAME, None), Attached)]
    undone = [
        (module.layer_idx, _config(module)._attn_implementation)
        for module in attached
        if _config(module)._attn_implementation != NAME
    ]
    block = getattr(getattr(model, "config", None), NAME, None)
    if isinstance(block, dict) and not attached:
        text = "says that layers have other encodings, and this model has none: load it with posenc.hf.attach.load"
        yield Finding("posenc", text, "attachment-missing", "fault")
    if undone:
        text = f"is {undone[0][1]!r}, under which the encodings attached to layers {ranges([n for n, _ in undone])} do "
        text += f"not run, and the model raises: model.set_attn_implementation({NAME!r}), or detach them"
        yield Finding("attn_implementation", text, "attachment-undone", "fault")
    attending = [module for module in modules if isinstance(getattr(module, "layer_idx", None), int)]
    implementations = (getattr(_config(module), "_attn_implementation", None) for module in attending)
    names: set[str] = {name for name in implementations if name is not None}
    for name in sorted(names - set(ALL_MASK_ATTENTION_FUNCTIONS.valid_keys())):
        text = f"{name!r} has no mask function of its name, so transformers gives it None: with padding, packing or a "
        text += "window it attends to hidden tokens; register one: AttentionMaskInterface.register(name, sdpa_mask)"
        yield Finding("attn_implementation", text, "attention-without-mask", "fault")
    with_sinks = [module.layer_idx for module in attending if getattr(module, "sinks", None) is not None]
    if with_sinks and "sdpa" in names:
        text = (
            f"'sdpa' does not read the sinks of layers {ranges(sorted(with_sinks))}; use 'eager' or a kernel that does"
        )
        yield Finding("attn_implementation", text, "sinks-ignored", "fault")


def _config(module: Any) -> Any:
    return getattr(module, "config", None)


def _on_buffers(model: nn.Module) -> Iterator[Finding]:
    """Frequencies that were rounded, or never computed."""
    for name, module in model.named_modules():
        if not is_rotary_module(module):
            continue
        for key, buffer in module.named_buffers(recurse=False):
            if "inv_freq" not in key or key.startswith("original") or buffer.is_meta:
                continue
            where = f"{name}.{key}" if name else key
            if not bool(torch.isfinite(buffer).all()) or not bool(buffer.any()):
                text = (
                    "is all zero or not finite: its memory was never initialised when the model left the meta device, "
                    f"and no checkpoint has this buffer; {_REBUILD}"
                )
                yield Finding(where, text, "frequencies-uninitialised", "fault")
            elif torch.finfo(buffer.dtype).bits < 32:
                text = (
                    f"is of {buffer.dtype}, in which frequencies are rounded and angles at far positions are wrong: "
                    "load with dtype=..., which does not cast them, instead of model.to(dtype) or model.half()"
                )
                yield Finding(where, text, "frequencies-rounded", "fault")


BASES = (1e4, 1e5, 1.5e5, 2.5e5, 5e5, 1e6, 2e6, 5e6, 1e7)  # of released models
_BETTER = 0.05  # nats a token that another rotation must gain to count, over some hundred tokens of one text


def _on_other_rotations(model: nn.Module, read: RopeConfig, loss: Callable[[], float], now: float) -> Iterator[Finding]:
    """Findings where another base or layout gives a lower loss.

    Args:
        model: of transformers; its rotation is restored.
        read: its configuration.
        loss: measures a text within the training length, in nats a token.
        now: the loss under the configuration's own rotation.
    """
    rope = single(read)
    if not isinstance(model, PreTrainedModel):
        return
    if rope is None:
        text = "was not tried under other rotations: its layers rotate in several ways, or not at all"
        yield Finding("model", text, "trials-refused", "note")
        return
    other: Layout = "half" if rope.layout == "interleaved" else "interleaved"
    try:
        bases = {base: _loss_under(model, rope.replace(base=base), loss) for base in BASES if base != rope.base}
        of_other_layout = {
            base: _loss_under(model, rope.replace(base=base, layout=other), loss)
            for base in {rope.base, min(bases, key=bases.__getitem__)}
        }
    except ValueError as error:
        yield Finding("model", f"was not tried under other rotations: {error}", "trials-refused", "note")
        return
    best, best_other = min(bases, key=bases.__getitem__), min(of_other_layout, key=of_other_layout.__getitem__)
    if of_other_layout[best_other] < min(now, bases[best]) - _BETTER:
        text = f"{now:.3f} nats a token with the layout of this family ({rope.layout}), "
        text += f"{of_other_layout[best_other]:.3f} with {other} and base {best_other:g}: the weights have the other "
        text += "order of channels; convert them with posenc.rotary.permute_layout, or from the original again"
        yield Finding("layout", text, "weights-of-another-layout", "fault")
    elif bases[best] < now - _BETTER:
        text = f"is {rope.base:g}, with which the loss is {now:.3f} nats a token, and {bases[best]:.3f} with {best:g}, "
        text += f"the best of {len(BASES)} that released models have"
        keys = keys_for(read, rope.replace(base=best))
        yield Finding("rope_theta", text, "weights-of-another-base", "fault", keys, False, inside=text_path(read))


def _loss_under(model: PreTrainedModel, rope: RoPESpec, loss: Callable[[], float]) -> float:
    """The loss of the model under another rotation, which is attached meanwhile."""
    attach(model, [built(rope)])
    try:
        return loss()
    finally:
        detach(model)


_TAIL = 256  # tokens at the end of a window whose loss is measured
_WORSE = 0.1  # nats a token by which the loss must rise with the context to count
_LEAST = 32  # tokens of the shortest context


def on_loss(
    model: nn.Module, read: RopeConfig, text: str | Tensor | None, tokenizer: Any, most: int
) -> Iterator[Finding]:
    """Findings on the loss of the same tokens at growing context lengths, and under other rotations.

    Args:
        model: a causal language model.
        read: its configuration.
        text: a text, or its tokens ``(tokens,)``; None: the English of Python's own help.
        tokenizer: for a text.
        most: tokens of the longest context.
    """
    tokens = tokens_of_text(text, tokenizer)
    check_vocabulary(tokens, model)
    rope, declared = single(read), longest_of(read)
    trained = None if rope is None else read.facts.trained(rope)
    if declared is None:
        yield Finding("max_position_embeddings", "is not given: no length is declared", "loss-not-measured", "note")
        return
    room = min(most, len(tokens))
    near, far = min(trained or declared, room), min(declared, room)
    lengths = sorted({max(_LEAST, length) for length in (near // 4, near, far)})
    if len(lengths) < 2 or lengths[-1] > room:
        raise ValueError(f"text: at least {2 * _LEAST} tokens are needed, got {len(tokens)}")
    windows = Windows(tokens, tuple(sorted({lengths[-1], len(tokens)})), min(_TAIL, lengths[0] // 2))
    losses = {length: _loss_of(model, windows, length) for length in lengths}
    yield from _on_losses(losses, declared)
    shortest = lengths[0]
    yield from _on_other_rotations(model, read, lambda: _loss_of(model, windows, shortest), losses[shortest])


def _on_losses(losses: dict[int, float], declared: int) -> Iterator[Finding]:
    lengths = list(losses)
    words = ", ".join(f"{loss:.3f} after {length:,} tokens" for length, loss in losses.items())
    if lengths[-1] < declared:
        words += f"; not measured up to {declared:,}: give more text and a larger most"
    yield Finding("loss", f"of the same tokens, in nats: {words}", "loss-by-length", "note")
    best = min(losses, key=losses.__getitem__)
    for length in lengths:
        if length > best and losses[length] > losses[best] + _WORSE:
            text = (
                f"declares {declared:,} tokens, but the same tokens cost {losses[length]:.3f} nats after {length:,}, "
            )
            text += f"{losses[best]:.3f} after {best:,}: more context makes this model worse"
            yield Finding("max_position_embeddings", text, "promise-broken", "fault")
            return


@torch.no_grad()
def _loss_of(model: nn.Module, windows: Windows, length: int) -> float:
    """The mean loss of the last tokens of windows of ``length`` tokens, in nats a token."""
    losses = [token_losses(model, windows.tokens[end - length : end], windows.last) for end in windows.ends]
    return float(torch.cat(losses).mean())
