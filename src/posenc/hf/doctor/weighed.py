"""Whether a model's loss agrees with its configuration: within the trained length, and as far as it promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posenc.hf.checkpoint import tokenizer_in
from posenc.hf.config import RopeConfig
from posenc.hf.doctor.corrections import single
from posenc.hf.doctor.folder import longest_of
from posenc.hf.doctor.report import Finding
from posenc.hf.doctor.trials import on_trials
from posenc.hf.inspect import trained_length
from posenc.hf.losses import token_losses
from posenc.hf.texts import Windows, check_vocabulary

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
        yield Finding("loss-not-measured", "note", "max_position_embeddings", "is not given: nothing is promised")
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
    yield from on_trials(model, read, lambda: loss_of(model, windows, lengths[0]), found[lengths[0]])


def _told(found: dict[int, float], promised: int) -> Iterator[Finding]:
    lengths = list(found)
    words = ", ".join(f"{loss:.3f} after {length:,} tokens" for length, loss in found.items())
    if lengths[-1] < promised:
        words += f"; not measured up to {promised:,}, for which give more text and a larger most"
    yield Finding("loss-by-length", "note", "loss", f"of the same tokens, in nats: {words}")
    best = min(found, key=lambda length: found[length])
    for length in lengths:
        if length > best and found[length] > found[best] + _WORSE:
            text = f"promises {promised:,} tokens, and the same tokens cost {found[length]:.3f} nats after {length:,}, "
            text += f"{found[best]:.3f} after {best:,}: more context makes this model worse"
            yield Finding("promise-broken", "fault", "max_position_embeddings", text)
            return


def loss_of(model: nn.Module, windows: Windows, length: int) -> float:
    """The mean loss of the last tokens of windows after so many tokens of context, in nats."""
    every = [token_losses(model, windows.tokens[end - length : end], windows.last) for end in windows.ends]
    return float(torch.cat(every).mean())
