"""Loss of a model on the last tokens of a text, by the length of the context before them.

The scored tokens are the same at every length, so that a difference of losses comes from the context alone. Logits are
computed for the scored tokens only.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from posenc.arguments import shown
from posenc.input_files import read_text

Text = str | Path | Tensor | None
TEXT_BYTES = 2**30  # of a file
_UNSCORED_SHARE = 0.6  # of the text, from its beginning, that at least stays free for training and searches


class Windows(NamedTuple):
    """A text as tokens, with the windows that are scored.

    Attributes:
        tokens: all tokens, int64 ``(tokens,)``.
        ends: where windows end, ascending; window n of any length is ``tokens[end − length : end]``.
        last: how many tokens at the end of each window are scored: the same ones at every length.
    """

    tokens: Tensor
    ends: tuple[int, ...]
    last: int

    @property
    def before(self) -> Tensor:
        """The tokens before all scored ones, which training and searches may read."""
        return self.tokens[: self.ends[0] - self.last]


def tokens_of(text: Text, tokenizer: Any) -> Tensor:
    """The tokens of a file, of the built-in text, or tokens themselves.

    Args:
        text: a file in UTF-8; tokens ``(tokens,)`` or ``(1, tokens)``; or None: the built-in one, the topics of
            Python's own help (465 kB of English).
        tokenizer: of the model; None if it has none.

    Raises:
        ValueError: for anything else, and for a text without a tokenizer.
    """
    if text is not None and not isinstance(text, str | Path | Tensor):
        raise ValueError(f"text must be a file, tokens, or None for the built-in one, got {shown(text)}")
    content = text if text is None or isinstance(text, Tensor) else read_text(Path(text), TEXT_BYTES)
    return tokens_of_text(content, tokenizer)


def tokens_of_text(text: str | Tensor | None, tokenizer: Any) -> Tensor:
    """The tokens of a string, of the built-in text (None), or tokens themselves."""
    if isinstance(text, Tensor):
        if text.is_floating_point() or text.numel() != text.shape[-1]:
            raise ValueError(f"text as tokens must be integers (tokens,), got {text.dtype} {tuple(text.shape)}")
        return text.reshape(-1).long().cpu()
    if tokenizer is None:
        raise ValueError("text must be tokens where the model comes without a tokenizer: give one, or a folder with it")
    ids = tokenizer(_built_in() if text is None else text, add_special_tokens=False, verbose=False)["input_ids"]
    return torch.tensor(ids, dtype=torch.long)


def check_vocabulary(tokens: Tensor, model: nn.Module) -> None:
    """Raise a ValueError for tokens outside a model's vocabulary, as of another model's tokenizer."""
    find = getattr(model, "get_input_embeddings", None)
    size = getattr(find() if callable(find) else None, "num_embeddings", None)
    if size is None or not len(tokens):
        return
    if int(tokens.max()) >= size or int(tokens.min()) < -size:
        raise ValueError(
            f"tokenizer: it gives tokens from {int(tokens.min()):,} to {int(tokens.max()):,}, and the model has "
            f"{size:,}: it is another model's, or damaged"
        )


def _built_in() -> str:
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def windows_of(tokens: Tensor, longest: int, count: int, last: int) -> Windows:
    """Windows of up to ``longest`` tokens, spread over the end of a text.

    Raises:
        ValueError: for a text that is too short.
    """
    first = max(longest, int(_UNSCORED_SHARE * len(tokens)))
    stride = (len(tokens) - first) // max(1, count - 1) if count > 1 else 0
    if len(tokens) < longest or (count > 1 and stride < last) or longest <= last:
        needed = longest + (count - 1) * last
        raise ValueError(
            f"text: {needed:,} tokens are needed for {count} windows of {longest:,} with {last} of each scored, less "
            f"than a window, and there are {len(tokens):,}: give a longer text (--text FILE), or fewer windows"
        )
    ends = tuple(len(tokens) - stride * (count - 1 - n) for n in range(count))
    return Windows(tokens, ends, last)


@torch.no_grad()
def token_losses(model: nn.Module, tokens: Tensor, last: int) -> Tensor:
    """Losses ``(last,)`` of the last tokens of a text, each given all before it.

    Raises:
        ValueError: for logits that are not finite, as of a float16 model whose numbers overflow.
    """
    was_training, device = model.training, device_of(model)
    model.eval()
    try:
        logits = last_logits(model, tokens[None].to(device), last + 1)[0, :-1]
    finally:
        model.train(was_training)
    losses = functional.cross_entropy(logits.float(), tokens[-last:].to(device), reduction="none").cpu()
    if not losses.isfinite().all():
        raise ValueError(
            f"model: its loss at {len(tokens):,} tokens is not finite: check its weights; in float16 numbers overflow, "
            "so try --dtype float32"
        )
    return losses


def last_logits(model: nn.Module, tokens: Tensor, count: int) -> Tensor:
    """Logits ``(batch, count, vocabulary)`` after the last tokens ``(batch, tokens)``."""
    logits: Tensor = call_model(model, tokens, count, use_cache=False).logits
    return logits[:, -count:]


def call_model(
    model: nn.Module, tokens: Tensor, count: int, *, use_cache: bool, after: Any = None,
    position_ids: Tensor | None = None, attention_mask: Tensor | None = None,
) -> Any:  # fmt: skip
    """Call a model; it computes only the last ``count`` logits where its forward can leave out others.

    With ``after``, what an earlier call returned, its cache goes on; a call without it does not depend on others.
    """
    if after is None:
        _forget_length(model)
    last_only = {"logits_to_keep": count} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    optional = {"position_ids": position_ids, "attention_mask": attention_mask}
    options: dict[str, Any] = {name: tensor for name, tensor in optional.items() if tensor is not None}
    if after is not None:
        options.update([cache_of(after)])
    return model(input_ids=tokens, use_cache=use_cache, **last_only, **options)


def cache_of(out: Any) -> tuple[str, Any]:
    """The name that a model has for its cache, and the cache of what a call returned."""
    name = "past_key_values" if getattr(out, "cache", None) is None else "cache"
    return name, getattr(out, name)


def _forget_length(model: nn.Module) -> None:
    """Give rotary modules with dynamic NTK the frequencies that they had before the first text.

    transformers 5.23 (modeling_rope_utils.py, dynamic_frequency_update) keeps the frequencies of the longest text so
    far until a text is shorter than the training length, so that a loss would depend on what was read before.
    """
    for module in model.modules():
        original = getattr(module, "original_max_seq_len", None)
        if original is None:
            continue
        for name in [name for name in vars(module) if name.endswith("max_seq_len_cached")]:
            buffer = name.replace("max_seq_len_cached", "inv_freq")
            first = getattr(module, name.replace("max_seq_len_cached", "original_inv_freq"), None)
            if getattr(module, name) > original and isinstance(first, Tensor):
                module.register_buffer(buffer, first.to(getattr(module, buffer).device), persistent=False)
                setattr(module, name, original)


def device_of(model: nn.Module) -> torch.device:
    """The device where a model's inputs must be: of its parameters, or of accelerate's computations."""
    device = next(model.parameters()).device
    if device.type != "meta":
        return device
    # Offloaded weights are moved to this device whenever a module is called.
    hooks = (getattr(module, "_hf_hook", None) for module in model.modules())
    devices = (getattr(hook, "execution_device", None) for hook in hooks)
    return torch.device(next((each for each in devices if each is not None), "cpu"))


def evenly_spaced_pieces(tokens: Tensor, length: int, count: int) -> Sequence[Tensor]:
    """Pieces of ``length`` tokens, evenly spread over a text.

    Raises:
        ValueError: for a text that is shorter than one.
    """
    if len(tokens) < length:
        raise ValueError(
            f"text: searches need pieces of {length:,} tokens that are not scored, and there are {len(tokens):,}: "
            "give a text with more tokens"
        )
    gaps = max(1, count - 1)
    starts = sorted({(len(tokens) - length) * n // gaps for n in range(count)})
    return [tokens[start : start + length] for start in starts]
