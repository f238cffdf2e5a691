"""The honest protocol: every length is judged on the same bytes, and only the context grows.

The end of each window is chosen once. At k times the training length T, the last k·T bytes before the end are fed,
and only the last T/2 predictions are scored. At 1× each of them has T/2 to T − 1 bytes of context, all trained.
(Windows side by side would instead reward length by diluting the expensive first bytes.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.lab.text.corpus import Corpus

TOKENS_A_FORWARD = 16_384
SCORES_A_FORWARD = 2**25  # entries of one layer's scores, all heads: 128 MiB in float32, if all exist at once
WINDOW_SEED = 0  # the same windows for all encodings and all training seeds

Logits = Callable[[Tensor], Tensor]  # (batch, length) bytes to (batch, length, 256)


class Measurement(TypedDict):
    """What a model scored. Bits are bits per byte."""

    bits: list[list[float] | None]  # for each length, for each window; None where the model is undefined
    positions: list[float]  # mean bits by position in the longest window the model is defined for
    bin: int  # bytes of a window in each entry of `positions`


def choose_ends(corpus: Corpus, *, longest: int, scored: int, windows: int) -> list[int]:
    """Where the windows end in the validation stream: each inside one document, no byte scored twice."""
    candidates = [
        end
        for start, stop in corpus.spans
        for end in range(start + longest + 1, stop + 1, scored)  # one byte more, the first one's context
    ]
    if len(candidates) < windows:
        raise ValueError(f"data: {len(candidates)} of {windows} evaluation windows of {longest + 1} bytes fit")
    order = torch.randperm(len(candidates), generator=torch.Generator().manual_seed(WINDOW_SEED))
    return sorted(candidates[i] for i in order[:windows].tolist())


def measure(
    logits: Logits,
    corpus: Corpus,
    *,
    train_length: int,
    lengths: Sequence[int],
    windows: int,
    heads: int = 1,
    table: int | None = None,
    device: torch.device | str = "cpu",
    on_forward: Callable[[float], None] = lambda share: None,
) -> Measurement:
    """Score a model at every length.

    Args:
        logits: the model, in evaluation mode and float32.
        corpus: where the windows come from.
        train_length: bytes; half of them are scored in each window.
        lengths: test lengths in training lengths, growing.
        windows: how many windows.
        heads: of the model's attention, to bound the memory of a forward.
        table: bytes past which the model is undefined, if it is.
        device: of the model.
        on_forward: told after each forward which share of the work is done.
    """
    scored = train_length // 2
    ends = choose_ends(corpus, longest=train_length * lengths[-1], scored=scored, windows=windows)
    defined = [train_length * k for k in lengths if table is None or train_length * k <= table]
    work, done = sum(n * (n + 1024) for n in defined), 0.0  # attention grows with the square, the rest does not
    losses = torch.empty(0)
    bits: list[list[float] | None] = []
    for length in defined:
        parts = []
        for batch in batches_within(ends, length, heads):
            parts.append(window_losses(logits, corpus.validation, batch, length, device))
            done += length * (length + 1024) / work * len(batch) / len(ends)
            on_forward(done)
        losses = torch.cat(parts)  # (windows, length)
        bits.append(losses[:, -scored:].mean(1).tolist())
    width = math.gcd(train_length, max(1, train_length // 4))
    positions = losses.mean(0).view(-1, width).mean(1)
    undefined: list[list[float] | None] = [None] * (len(lengths) - len(bits))
    return {"bits": bits + undefined, "positions": positions.tolist(), "bin": width}


@torch.no_grad()
def window_losses(logits: Logits, stream: Tensor, ends: list[int], length: int, device: torch.device | str) -> Tensor:
    """Bits of each of the last ``length`` bytes before each end, ``(windows, length)`` float64 on the host."""
    index = torch.tensor(ends)[:, None] + torch.arange(-length - 1, 0)
    tokens = stream[index].long().to(device)  # (windows, length + 1)
    out = logits(tokens[:, :-1]).float()
    nats = F.cross_entropy(out.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    return nats.view(len(ends), length).cpu().double() / math.log(2)


def batches_within(items: Sequence[int], length: int, heads: int) -> list[list[int]]:
    """As many at once as a forward of ``length`` tokens has memory for, even by the definition of attention.

    From some length on that is one. Then the faster paths, which hold blocks of the scores and no matrix of them, are
    what makes it possible: 32,768 bytes and 16 heads would be 64 GiB of scores.
    """
    size = max(1, min(TOKENS_A_FORWARD // length, SCORES_A_FORWARD // (heads * length * length)))
    return [list(items[i : i + size]) for i in range(0, len(items), size)]
