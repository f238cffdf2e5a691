"""Losses of a model on the last tokens of texts: the same tokens, however long the context before them is.

Logits are computed for the scored tokens alone.
"""

from __future__ import annotations

import hashlib
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
_SHARE = 0.6  # of the text, from its beginning, that training and searches may read at least


class Windows(NamedTuple):
    """Tokens, and where the windows that are scored end.

    Attributes:
        tokens: all, int64 ``(tokens,)``.
        ends: of windows, growing; window n is ``tokens[end − length : end]``, whatever the length.
        last: how many tokens at the end of each are scored: the same ones at every length.
    """

    tokens: Tensor
    ends: tuple[int, ...]
    last: int

    @property
    def before(self) -> Tensor:
        """The tokens that no window scores: what training and searches may read."""
        return self.tokens[: self.ends[0] - self.last]

    @property
    def digest(self) -> str:
        """Of all tokens."""
        return hashlib.sha256(self.tokens.numpy().tobytes()).hexdigest()[:16]


def tokens_of(text: Text, tokenizer: Any) -> Tensor:
    """A text as tokens.

    Args:
        text: a file in UTF-8; tokens ``(tokens,)`` or ``(1, tokens)``; or None: the built-in one, the topics of
            Python's own help (465 kB of English).
        tokenizer: of the model; None if it has none.

    Raises:
        ValueError: for anything else, and for a text in letters without a tokenizer.
    """
    if text is not None and not isinstance(text, str | Path | Tensor):
        raise ValueError(f"text must be a file, tokens, or None for the built-in one, got {shown(text)}")
    given = text if text is None or isinstance(text, Tensor) else read_text(Path(text), TEXT_BYTES)
    return tokens_in(given, tokenizer)


def check_room(tokens: Tensor, text: Text, wanted: int) -> None:
    """Raise a ValueError unless a text has as many tokens as are wanted; it says which text it is.

    Args:
        tokens: of the text.
        text: as it was given.
        wanted: tokens.
    """
    if len(tokens) < wanted:
        which = "the built-in text has" if text is None else "the text has"
        raise ValueError(
            f"text: {wanted:,} tokens are needed, and {which} {len(tokens):,} of this model's tokens: give a longer "
            "one "
            "(--text FILE)"
        )


def tokens_in(text: str | Tensor | None, tokenizer: Any) -> Tensor:
    """The same of letters that are at hand, not in a file."""
    if isinstance(text, Tensor):
        if text.is_floating_point() or text.numel() != text.shape[-1]:
            raise ValueError(f"text as tokens must be integers (tokens,), got {text.dtype} {tuple(text.shape)}")
        return text.reshape(-1).long().cpu()
    if tokenizer is None:
        raise ValueError("text must be tokens where the model comes without a tokenizer: give one, or a folder with it")
    found = tokenizer(_built_in() if text is None else text, add_special_tokens=False, verbose=False)["input_ids"]
    return torch.tensor(found, dtype=torch.long)


def check_vocabulary(tokens: Tensor, model: nn.Module) -> None:
    """Raise a ValueError for tokens that a model does not have, as those of another model's tokenizer."""
    find = getattr(model, "get_input_embeddings", None)
    known = getattr(find() if callable(find) else None, "num_embeddings", None)
    if known is None or not len(tokens):
        return
    strange = max(int(tokens.max()), -1 - int(tokens.min()))
    if strange >= known:
        raise ValueError(
            f"tokenizer: it gives tokens from {int(tokens.min()):,} to {int(tokens.max()):,}, and the model has "
            f"{known:,}: it is another model's, or damaged"
        )


def _built_in() -> str:
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def windows_of(tokens: Tensor, longest: int, count: int, last: int) -> Windows:
    """Windows of up to ``longest`` tokens, spread over the end of a text.

    Raises:
        ValueError: for a text that is too short.
    """
    first = max(longest, int(_SHARE * len(tokens)))
    stride = (len(tokens) - first) // max(1, count - 1) if count > 1 else 0
    if len(tokens) < longest or (count > 1 and stride < last) or longest <= last:
        wanted = longest + (count - 1) * last
        raise ValueError(
            f"text: {count} windows of {longest:,} tokens, {last} of each scored, need {wanted:,} tokens and {last} to "
            f"be less than a window, got {len(tokens):,}: give a longer text, or fewer windows"
        )
    ends = tuple(len(tokens) - stride * (count - 1 - n) for n in range(count))
    return Windows(tokens, ends, last)


@torch.no_grad()
def token_losses(model: nn.Module, tokens: Tensor, last: int) -> Tensor:
    """Losses ``(last,)`` of the last tokens of a text, each given all before it."""
    was, device = model.training, device_of(model)
    model.eval()
    try:
        logits = last_logits(model, tokens[None].to(device), last + 1)[0, :-1]
    finally:
        model.train(was)
    return functional.cross_entropy(logits.float(), tokens[-last:].to(device), reduction="none").cpu()


def last_logits(model: nn.Module, tokens: Tensor, count: int) -> Tensor:
    """Logits ``(batch, count, vocabulary)`` after the last tokens ``(batch, tokens)``."""
    logits: Tensor = called(model, tokens, count, use_cache=False).logits
    return logits[:, -count:]


def called(
    model: nn.Module, tokens: Tensor, count: int, *, use_cache: bool, cache: Any = None,
    position_ids: Tensor | None = None, attention_mask: Tensor | None = None,
) -> Any:  # fmt: skip
    """What a model gives, with no more logits than the last ones where it can leave out others."""
    keep = {"logits_to_keep": count} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    laid = {"position_ids": position_ids, "attention_mask": attention_mask}
    given = {name: one for name, one in laid.items() if one is not None}
    return model(input_ids=tokens, past_key_values=cache, use_cache=use_cache, **keep, **given)


def device_of(model: nn.Module) -> torch.device:
    """Where its inputs go."""
    return next(model.parameters()).device


def evenly(tokens: Tensor, length: int, count: int) -> Sequence[Tensor]:
    """Pieces of ``length`` tokens, evenly spread over a text.

    Raises:
        ValueError: for a text that is shorter than one.
    """
    if len(tokens) < length:
        raise ValueError(
            f"text: searches need pieces of {length:,} tokens beside what is scored, which leaves {len(tokens):,}: "
            "give a longer text"
        )
    gaps = max(1, count - 1)
    starts = sorted({(len(tokens) - length) * n // gaps for n in range(count)})
    return [tokens[start : start + length] for start in starts]
