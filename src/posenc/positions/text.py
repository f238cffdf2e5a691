"""Positions of a text: padded, packed, decoded, sharded; and ids that count digits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from posenc.arguments import LONGEST, check_several, shown
from posenc.positions.checking import EDGES, RESTARTS, Edges, edges_of
from posenc.positions.validation import check_fits, check_rows, count_of, is_whole, table_of, within
from posenc.tracing import stand_ins


def from_mask(mask: Tensor) -> Tensor:
    """Positions of padded sequences: real tokens count from 0, wherever the padding is.

    Args:
        mask: ``(batch, tokens)``, True or 1 at real tokens, as Hugging Face's ``attention_mask``.

    Returns:
        ``(batch, tokens)``. Padding before the first real token gets 0 and padding after it repeats a
        position, both in the range of real ones: harmless, as long as the mask hides padding from attention
        (``attention(..., mask=mask[:, None, :])``).

    >>> from_mask(torch.tensor([[1, 1, 1], [0, 0, 1]]))
    tensor([[0, 1, 2],
            [0, 0, 0]])
    """
    check_rows("mask", mask, "(batch, tokens)", axes=(2,))
    # Before the first real token the sum is 0, and 0 − 1 is no position: no table has a row for it.
    return (mask.bool().long().cumsum(-1) - 1).clamp(min=0)


def from_segments(segments: Tensor) -> Tensor:
    """Positions that restart at 0 with each segment.

    Args:
        segments: ``(*batch, tokens)``, equal numbers at neighbouring tokens of one document.

    Those of `segments_from_cu_seqlens` tell `attention` that a distance within a document is one of indices.

    >>> from_segments(torch.tensor([0, 0, 0, 1, 1]))
    tensor([0, 1, 2, 0, 1])
    """
    check_rows("segments", segments, "(tokens,) or (batch, tokens)")
    index = torch.arange(segments.shape[-1], device=segments.device).expand(segments.shape)
    # The newest index at which a document began, carried on by cummax, is the 0 of each token.
    starts = torch.ones_like(segments, dtype=torch.bool)
    starts[..., 1:] = segments[..., 1:] != segments[..., :-1]
    positions = index - torch.where(starts, index, 0).cummax(-1).values
    edges = None if stand_ins() or segments.is_inference() else edges_of(segments)
    if edges is not None and not positions.is_inference():
        RESTARTS[positions] = edges
    return positions


def segments_from_cu_seqlens(cu_seqlens: Tensor, total: int | None = None) -> Tensor:
    """Segment numbers ``(total,)`` of documents packed end to end.

    Args:
        cu_seqlens: ``(documents + 1,)``, cumulative lengths starting at 0, as for flash-attention's varlen functions.
        total: tokens in the row; default ``cu_seqlens[-1]``. Tokens past the last document form a segment of their own.

    Made on the device of queries and passed as it is, it also tells a GPU's kernels where documents end.

    >>> segments_from_cu_seqlens(torch.tensor([0, 3, 5]))
    tensor([0, 0, 0, 1, 1])
    """
    expected = "integers (documents + 1,)"
    check_rows("cu_seqlens", cu_seqlens, expected, axes=(1,), integers=True)
    if len(cu_seqlens) < 2:
        raise ValueError(f"cu_seqlens must be {expected}, got {shown(cu_seqlens)}")
    if int(cu_seqlens[0]) != 0 or bool((cu_seqlens.diff() < 0).any()):
        raise ValueError(f"cu_seqlens must start at 0 and never fall, got {cu_seqlens.tolist()}")
    last = count_of("cu_seqlens[-1]", int(cu_seqlens[-1]), least=0)
    if total is not None:
        total = count_of("total", total, least=0)
        if total < last:
            raise ValueError(f"total must be at least cu_seqlens[-1] = {last}, got {total}")
    total = last if total is None else total
    # right=True passes over empty documents; tokens past the last edge get the number behind the last document's.
    segments = torch.bucketize(torch.arange(total, device=cu_seqlens.device), cu_seqlens[1:].long(), right=True)
    if not (stand_ins() or segments.is_inference()):  # which has no version to tell by whether somebody wrote into it
        edges = sorted({0, *cu_seqlens.tolist(), total})
        longest = max((end - start for start, end in pairwise(edges)), default=0)
        placed = torch.tensor(edges, dtype=torch.int32, device=segments.device)
        EDGES[segments] = Edges(placed, longest, tuple(edges))
    return segments


def from_cu_seqlens(cu_seqlens: Tensor, total: int | None = None) -> Tensor:
    """Positions ``(total,)`` of documents packed end to end: each document counts from 0.

    >>> from_cu_seqlens(torch.tensor([0, 3, 5]))
    tensor([0, 1, 2, 0, 1])
    """
    return from_segments(segments_from_cu_seqlens(cu_seqlens, total))


def after(past: int | Tensor, tokens: int = 1) -> Tensor:
    """Positions of the next ``tokens`` tokens of a decoding step.

    Args:
        past: tokens that each row already has; an int, or ``(batch,)`` for rows of different lengths.

    Returns:
        ``(tokens,)``, or ``(batch, tokens)``.

    >>> after(torch.tensor([5, 2]), 2)
    tensor([[5, 6],
            [2, 3]])
    """
    tokens = count_of("tokens", tokens)
    if not isinstance(past, Tensor):
        past = count_of("past", past, least=0, most=LONGEST)
        return torch.arange(past, past + tokens)
    check_rows("past", past, "an int or integers (batch,)", axes=(1,), integers=True)
    check_fits("past and tokens", len(past), tokens)
    return past.long()[:, None] + torch.arange(tokens, device=past.device)


def zigzag(length: int, rank: int, world: int) -> Tensor:
    """Positions ``(length / world,)`` that one rank holds in zigzag context parallelism.

    The sequence is cut into ``2 · world`` equal chunks; rank r holds chunks r and 2 · world − 1 − r, which
    balances causal work. Attend with ``causal="positions"``: order in memory is not order in the text.

    >>> zigzag(8, rank=0, world=2)
    tensor([0, 1, 6, 7])
    """
    length, world = count_of("length", length), count_of("world", world)
    rank = within("rank", rank, 0, world - 1, "world - 1")
    if length % (2 * world):
        raise ValueError(f"length must be a multiple of 2 * world = {2 * world}, got {length}; pad the sequence")
    chunk = length // (2 * world)
    first, second = rank * chunk, (2 * world - 1 - rank) * chunk
    return torch.cat([torch.arange(first, first + chunk), torch.arange(second, second + chunk)])


def abacus(input_ids: Tensor, digit_tokens: Tensor | Sequence[int], *, shift: int = 0) -> Tensor:
    """Ids for `Abacus` (arXiv 2405.17399): 1, 2, 3, … along each run of digits, 0 at all other tokens.

    Args:
        input_ids: integers ``(tokens,)`` or ``(batch, tokens)``. While decoding, give the whole row and keep the last
            ids: a new digit may continue a number.
        digit_tokens: the token ids of the digits; numbers have their least significant digit first.
        shift: added to the ids above 0. In training a number that the caller draws anew for each batch.

    >>> abacus(torch.tensor([5, 5, 9, 5]), digit_tokens=[4, 5], shift=10)
    tensor([11, 12,  0, 11])
    """
    check_rows("input_ids", input_ids, "integers (tokens,) or (batch, tokens)", integers=True)
    several = digit_tokens if isinstance(digit_tokens, Tensor) else check_several("digit_tokens", digit_tokens)
    digits = table_of("digit_tokens", several, "integers (digits,)")
    if digits.ndim != 1 or not digits.numel() or not is_whole(digits):
        raise ValueError(f"digit_tokens must be integers (digits,), got {shown(digit_tokens)}")
    shift = count_of("shift", shift, least=0, most=LONGEST)
    is_digit = torch.isin(input_ids.long(), digits.to(input_ids.device).long())
    index = torch.arange(1, input_ids.shape[-1] + 1, device=input_ids.device)
    ids = index - torch.where(is_digit, 0, index).cummax(-1).values  # cummax: the newest token that is no digit
    return ids + shift * is_digit
