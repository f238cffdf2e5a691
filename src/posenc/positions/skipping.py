"""Positions of two chunks with a gap between them, so that training on short texts meets far distances."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.positions.validation import check_fits, count_of, device_of, within


class Skipped(NamedTuple):
    """What `skipped` draws."""

    positions: Tensor  # (tokens,) or (batch, tokens)
    tokens: Tensor  # which tokens of the text stand there, of the same shape


def skipped(
    tokens: int,
    max_length: int,
    *,
    text_length: int | None = None,
    batch: int | None = None,
    generator: torch.Generator | None = None,
) -> Skipped:
    """Positions 0 … a − 1 and s + a … s + tokens − 1, and two chunks of a text to stand there: PoSE.

    Positional skip-wise training (Zhu et al., arXiv 2309.10400, section 3): a model that is trained on ``tokens`` at
    a time meets all distances up to ``max_length``. Drawn, all values alike: the first chunk's length a from 1 to half
    of the tokens, rounded up; where the second chunk of the text ends; the skip s from 0 to max_length − tokens. Draw
    anew at each step. `randomised` leaves no token beside its neighbour.

    Args:
        tokens: positions in a row. Of a shorter text take as many as it has.
        max_length: the longest text that is to be met later, at least ``tokens``.
        text_length: tokens of the text that the chunks are cut of, at least ``tokens``; default as many, which leaves
            the text whole.
        batch: rows, each drawn for itself; default one draw ``(tokens,)``.
        generator: decides the draws, in the order above, row by row; on its device. Default PyTorch's own on the CPU.

    Raises:
        ValueError: for counts below 1 or that do not fit.

    >>> skipped(3, 3)
    Skipped(positions=tensor([0, 1, 2]), tokens=tensor([0, 1, 2]))
    """
    max_length = count_of("max_length", max_length)
    tokens = within("tokens", tokens, 1, max_length, "max_length")
    text_length = tokens if text_length is None else count_of("text_length", text_length, least=tokens)
    several = 1 if batch is None else count_of("batch", batch)
    check_fits("batch and tokens", several, tokens)
    device = device_of(generator)
    samples = [
        [
            torch.randint(low, high + 1, (1,), generator=generator, device=device)
            for low, high in bounds_of(tokens, max_length, text_length)
        ]
        for _ in range(several)
    ]
    first, end, skip = (torch.stack(column) for column in zip(*samples, strict=True))
    rows = laid_out(tokens, first, end, skip)
    return Skipped(rows.positions[0], rows.tokens[0]) if batch is None else rows


def bounds_of(tokens: int, max_length: int, text_length: int) -> tuple[tuple[int, int], ...]:
    """Least and largest of the first chunk's length, of the second one's end in the text, and of the skip."""
    return (1, (tokens + 1) // 2), (tokens, text_length), (0, max_length - tokens)


def laid_out(tokens: int, first: Tensor, end: Tensor, skip: Tensor) -> Skipped:
    """The two chunks of rows that were drawn, each draw ``(rows, 1)``."""
    number = torch.arange(tokens, device=first.device).expand(len(first), -1)
    later = number >= first
    return Skipped(number + later * skip, torch.where(later, number + (end - tokens), number))
