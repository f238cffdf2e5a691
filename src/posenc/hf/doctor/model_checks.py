"""Checks that need a live transformers model: modules against configuration, buffers, attention function.

Source: transformers 5.23, masking_utils.py (an attention function without a mask of its name gets None), integrations/
    sdpa_attention.py (sinks are not read), modeling_utils.py (``to`` casts the buffers of rotary modules).

Whether a model's loss agrees with its configuration, or would be lower under another rotation.

Compared are the training length with the length that the configuration promises, and the rotation with other bases and
the other layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from posenc.arguments import shown
from posenc.hf.attach import attach, detach
from posenc.hf.attach.attention_function import NAME, Attached
from posenc.hf.attach.checkpoint import tokenizer_in
from posenc.hf.attach.live_model import Difference, inspect, makes_tables
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.doctor.corrections import changes, inside, single
from posenc.hf.doctor.file_checks import longest_of
from posenc.hf.explanation.describe import ranges
from posenc.hf.explanation.report import trained_length
from posenc.hf.findings import Finding
from posenc.hf.sources.load import Config
from posenc.hf.text_loss import Windows, check_vocabulary, token_losses
from posenc.rotary._rotate import Layout
from posenc.rotary.rope import RoPE

_REBUILD = "modules are made once, when the model is: give the configuration to from_pretrained(..., config=config)"


def config_of(model: nn.Module) -> Config:
    """The configuration of a model, without what is attached to it."""
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"model must be a model of transformers, got {shown(model)}")
    return {key: value for key, value in model.config.to_dict().items() if key != NAME}


def on_model(model: nn.Module) -> Iterator[Finding]:
    """What its modules do otherwise than its configuration says."""
    yield from _on_attention(model)
    broken = list(_on_buffers(model))
    yield from broken
    try:
        found = inspect(model)
    except ValueError as error:
        yield Finding("model", f"cannot be measured: {str(error).splitlines()[0]}", "not-measured", "note")
        return
    layers: dict[Difference, list[int]] = {}
    for layer in found.layers:
        for one in layer.differs:
            layers.setdefault(one, []).append(layer.number)
    for one, numbers in layers.items():
        if one.name != "rotation" or not broken:
            text = f"(layers {ranges(numbers)}): {one.text}; {_REBUILD}"
            yield Finding(one.name, text, f"{one.name}-of-another-configuration", "fault")


def _on_attention(model: nn.Module) -> Iterator[Finding]:
    """The function that computes attention, and what it leaves out."""
    every: list[Any] = list(model.modules())
    undone = [
        (one.layer_idx, _config(one)._attn_implementation)
        for one in every
        if isinstance(getattr(one, NAME, None), Attached) and _config(one)._attn_implementation != NAME
    ]
    block = getattr(getattr(model, "config", None), NAME, None)
    if isinstance(block, dict) and not any(isinstance(getattr(one, NAME, None), Attached) for one in every):
        text = "says that layers have other encodings, and this model has none: load it with posenc.hf.attach.load"
        yield Finding("posenc", text, "attachment-missing", "fault")
    if undone:
        text = f"is {undone[0][1]!r}, under which the encodings attached to layers {ranges([n for n, _ in undone])} do "
        text += f"not run, and the model raises: model.set_attn_implementation({NAME!r}), or detach them"
        yield Finding("attn_implementation", text, "attachment-undone", "fault")
    attending: list[Any] = [one for one in model.modules() if isinstance(getattr(one, "layer_idx", None), int)]
    names = {name for one in attending if (name := getattr(_config(one), "_attn_implementation", None)) is not None}
    for name in sorted(names - set(ALL_MASK_ATTENTION_FUNCTIONS.valid_keys())):
        text = (
            f"{name!r} has no mask of its name, so that it gets None: with padding, packing or a window it sees what "
        )
        text += "it must not; register one: AttentionMaskInterface.register(name, sdpa_mask)"
        yield Finding("attn_implementation", text, "attention-without-mask", "fault")
    sunk = [one.layer_idx for one in attending if getattr(one, "sinks", None) is not None]
    if sunk and "sdpa" in names:
        text = f"'sdpa' does not read the sinks of layers {ranges(sorted(sunk))}; take 'eager' or a kernel that does"
        yield Finding("attn_implementation", text, "sinks-ignored", "fault")


def _config(module: Any) -> Any:
    return getattr(module, "config", None)


def _on_buffers(model: nn.Module) -> Iterator[Finding]:
    """Frequencies that were rounded, or never computed."""
    for name, module in model.named_modules():
        if not makes_tables(module):
            continue
        for key, buffer in module.named_buffers(recurse=False):
            if "inv_freq" not in key or key.startswith("original") or buffer.is_meta:
                continue
            where = f"{name}.{key}" if name else key
            if not bool(torch.isfinite(buffer).all()) or not bool(buffer.any()):
                text = "is not finite, or nothing: it was left as it was found in memory when the model came from the "
                text += f"meta device, and no checkpoint has it; {_REBUILD}"
                yield Finding(where, text, "frequencies-uninitialised", "fault")
            elif torch.finfo(buffer.dtype).bits < 32:
                text = f"is of {buffer.dtype}, in which frequencies are rounded and far angles are wrong: load with "
                text += "dtype=..., which leaves them alone, in the place of model.to(dtype) or model.half()"
                yield Finding(where, text, "frequencies-rounded", "fault")


BASES = (1e4, 1e5, 1.5e5, 2.5e5, 5e5, 1e6, 2e6, 5e6, 1e7)  # of released models
_BETTER = 0.05  # nats, of some hundred tokens of one text, that count


def on_alternative_ropes(
    model: nn.Module, read: RopeConfig, loss: Callable[[], float], now: float
) -> Iterator[Finding]:
    """Rotations under which the loss is lower.

    Args:
        model: of transformers; it is as it was afterwards.
        read: its configuration.
        loss: of a text within the training length, in nats a token.
        now: that loss under the rotation that the configuration has.
    """
    rope = single(read)
    if not isinstance(model, PreTrainedModel):
        return
    if rope is None:
        text = "was not tried under other rotations: its layers turn in several ways, or not at all"
        yield Finding("model", text, "trials-refused", "note")
        return
    other: Layout = "half" if rope.layout == "interleaved" else "interleaved"
    try:
        bases = {base: _under(model, _like(rope, base, rope.layout), loss) for base in BASES if base != rope.base}
        turned = {
            base: _under(model, _like(rope, base, other), loss)
            for base in {rope.base, min(bases, key=bases.__getitem__)}
        }
    except ValueError as error:
        yield Finding("model", f"was not tried under other rotations: {error}", "trials-refused", "note")
        return
    best, best_turned = min(bases, key=bases.__getitem__), min(turned, key=turned.__getitem__)
    if turned[best_turned] < min(now, bases[best]) - _BETTER:
        text = f"{now:.3f} nats a token with pairs as this family has them ({rope.layout}), {turned[best_turned]:.3f} "
        text += f"with {other} ones and base {best_turned:g}: the weights have the other order of channels; convert "
        text += "them with posenc.rotary.permute_layout, or from the original again"
        yield Finding("layout", text, "weights-of-another-layout", "fault")
    elif bases[best] < now - _BETTER:
        text = f"is {rope.base:g}, with which the loss is {now:.3f} nats a token, and {bases[best]:.3f} with {best:g}, "
        text += f"the best of {len(BASES)} that released models have"
        keys = changes(read, read.with_rope(_like(rope, best, rope.layout)).to_config())
        yield Finding("rope_theta", text, "weights-of-another-base", "fault", keys, False, inside=inside(read))


def _like(rope: RoPE, base: float, layout: Layout) -> RoPE:
    return RoPE(rope.head_dim, base=base, layout=layout, rotary_dim=rope.rotary_dim, scaling=rope.scaling)


def _under(model: PreTrainedModel, rope: RoPE, loss: Callable[[], float]) -> float:
    """The loss of the model while it rotates so."""
    attach(model, [rope])
    try:
        return loss()
    finally:
        detach(model)


_WINDOWS = 2  # of the text, whose last tokens are predicted
_TAIL = 256  # tokens whose loss is measured
_WORSE = 0.1  # nats by which a loss must rise with the context to count
_LEAST = 32  # tokens of the shortest context


def tokenizer_of(folder: Path, *, trust_remote_code: bool = False) -> Any:
    """Its tokenizer."""
    try:
        return tokenizer_in(folder, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise ValueError(f"weights: without a tokenizer text must be tokens: {error}") from error


def on_loss(model: nn.Module, read: RopeConfig, tokens: Tensor, most: int) -> Iterator[Finding]:
    """The loss of the same tokens after more and more context, and under other rotations.

    Args:
        model: of language, whose logits are asked for.
        read: its configuration.
        tokens: a text, ``(tokens,)``.
        most: tokens of the longest context.
    """
    check_vocabulary(tokens, model)
    rope, promised = single(read), longest_of(read)
    trained = None if rope is None else trained_length(read, rope)
    if promised is None:
        yield Finding("max_position_embeddings", "is not given: nothing is promised", "loss-not-measured", "note")
        return
    room = min(most, len(tokens))
    near, far = min(trained or promised, room), min(promised, room)
    lengths = sorted({max(_LEAST, one) for one in (near // 4, near, far)})
    if len(lengths) < 2 or lengths[-1] > room:
        raise ValueError(f"text: at least {2 * _LEAST} tokens are needed, got {len(tokens)}")
    ends = {lengths[-1] + i * (len(tokens) - lengths[-1]) // max(1, _WINDOWS - 1) for i in range(_WINDOWS)}
    windows = Windows(tokens, tuple(sorted(ends)), min(_TAIL, lengths[0] // 2))
    found = {length: loss_of(model, windows, length) for length in lengths}
    yield from _told(found, promised)
    yield from on_alternative_ropes(model, read, lambda: loss_of(model, windows, lengths[0]), found[lengths[0]])


def _told(found: dict[int, float], promised: int) -> Iterator[Finding]:
    lengths = list(found)
    words = ", ".join(f"{loss:.3f} after {length:,} tokens" for length, loss in found.items())
    if lengths[-1] < promised:
        words += f"; not measured up to {promised:,}, for which give more text and a larger most"
    yield Finding("loss", f"of the same tokens, in nats: {words}", "loss-by-length", "note")
    best = min(found, key=lambda length: found[length])
    for length in lengths:
        if length > best and found[length] > found[best] + _WORSE:
            text = f"promises {promised:,} tokens, and the same tokens cost {found[length]:.3f} nats after {length:,}, "
            text += f"{found[best]:.3f} after {best:,}: more context makes this model worse"
            yield Finding("max_position_embeddings", text, "promise-broken", "fault")
            return


def loss_of(model: nn.Module, windows: Windows, length: int) -> float:
    """The mean loss of the last tokens of windows after so many tokens of context, in nats."""
    every = [token_losses(model, windows.tokens[end - length : end], windows.last) for end in windows.ends]
    return float(torch.cat(every).mean())
