"""Queries and keys through the rotary encodings of a call, and the lengths that some of these depend on.

The idea: a rotation acts on q and k alone, so all rotations of a list are applied once, before a backend is chosen, and
every backend serves them at no cost of its own. Length-dependent spectra (dynamic NTK, LongRoPE, CLEX) need more than a
token's position: how many tokens a sequence spans. The span counts the sequence's own visible keys, document by
document where it is packed: never the batch, nor keys that no query attends to. The invariant is that neither the other
sequences of a batch nor padding change a sequence.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.encoding import Encoding, RotaryEncoding, ScoreEncoding, WeightEncoding, float64_if_supported
from posenc.positions import checking as position


def rotated(
    encodings: Sequence[Encoding],
    q: Tensor,
    k: Tensor,
    q_pos: Tensor,
    k_pos: Tensor,
    length: int | None,
    mask: Tensor | None,
    segments: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """q and k after all rotary encodings; length-dependent ones span ``length`` or what `row_lengths` finds.

    Raises:
        ValueError: for a rotation after one that changed the width of a head.
    """
    width, before = q.shape[-1], None
    for rotation in encodings:
        if not isinstance(rotation, RotaryEncoding):
            continue
        if q.shape[-1] != width and q.shape[-1] != getattr(rotation, "head_dim", q.shape[-1]):
            # As after PoPE, whose result has two channels for each.
            raise ValueError(
                f"encodings must not hold {type(rotation).__name__} after {type(before).__name__}, which leaves "
                f"{q.shape[-1]} channels of a head's {width}: take one of the two"
            )
        at, before = near_origin(rotation, encodings, q_pos, k_pos), rotation
        if rotation.length_dependent:
            q, k = rotation(q, k, *at, row_lengths_for(rotation, k_pos, mask, segments) if length is None else length)
        else:
            q, k = rotation(q, k, *at)
    return q, k


def near_origin(
    rotation: RotaryEncoding, encodings: Sequence[Encoding], q_pos: Tensor, k_pos: Tensor
) -> tuple[Tensor, Tensor]:
    """Positions of one call counted from the middle of each row, where a relative rotation learns its frequencies.

    The gradient of a frequency is a sum over tokens of position times what reaches the angle. Under a relative rotation
    those sum to zero, so that the origin does not matter, but their rounding is multiplied by the position: at +1,000
    tokens in bfloat16 nothing else is left. That holds while nothing but q·k reads what is rotated, all tokens have
    places, and for the last rotation of the list; keys that were rotated in an earlier call have the origin of that
    call.

    Args:
        rotation: of the list.
        encodings: all of the call.
        q_pos, k_pos: ``(*batch, tokens)`` or with coordinates on a last axis; one tensor stays one.
    """
    if not (rotation._parameters or rotation._modules) or k_pos.numel() == 0:  # nothing can be learned
        return q_pos, k_pos
    if not (rotation.relative and torch.is_grad_enabled() and any(p.requires_grad for p in rotation.parameters())):
        return q_pos, k_pos
    rotations = [e for e in encodings if isinstance(e, RotaryEncoding)]
    read = any(isinstance(e, ScoreEncoding | WeightEncoding) and e.reads.rotated for e in encodings)
    if read or rotation is not rotations[-1]:
        return q_pos, k_pos
    if k_pos.is_floating_point() or q_pos.is_floating_point():
        same, wide = q_pos is k_pos, float64_if_supported(k_pos.device)
        k_pos = k_pos.to(wide)
        q_pos = k_pos if same else q_pos.to(wide)
    axis = -1 if rotation.axes == 1 else -2
    first, last = k_pos.amin(axis, keepdim=True), k_pos.amax(axis, keepdim=True)
    middle = (first + torch.div(last - first, 2, rounding_mode="floor")).round().detach()
    # Tokens without a place are not rotated, so that the others stand at some distance from 0 for them.
    has_unplaced = (position.has_no_position(p, rotation.axes).any(-1, keepdim=True) for p in (q_pos, k_pos))
    unplaced = functools.reduce(torch.logical_or, has_unplaced)
    unplaced = unplaced if rotation.axes == 1 else unplaced.unsqueeze(-1)
    middle = middle.masked_fill(unplaced | (last - first >= -position.NO_POSITION), 0)  # nor shall one come to be so
    moved = k_pos - middle
    return (moved, moved) if q_pos is k_pos else (q_pos - middle, moved)


def row_lengths_for(
    rotation: RotaryEncoding, k_pos: Tensor, mask: Tensor | None, segments: tuple[Tensor, Tensor] | None
) -> RowLengths:
    """`row_lengths` for a rotation of positions with any number of coordinates, of which the largest counts."""
    return row_lengths(k_pos if rotation.axes == 1 else k_pos.amax(-1), mask, segments)


class RowLengths(NamedTuple):
    """Tokens that rows or documents span, as `row_lengths` found them, for each query and each key of a call."""

    queries: Tensor  # (*batch, queries | 1)
    keys: Tensor  # (*batch, keys | 1)


def some(lengths: Tensor, start: int, stop: int) -> Tensor:
    """The lengths of tokens ``start … stop − 1``, where each token has one of its own."""
    return lengths if lengths.shape[-1] == 1 else lengths[..., start:stop]


def row_lengths(k_pos: Tensor, mask: Tensor | None, segments: tuple[Tensor, Tensor] | None) -> RowLengths:
    """Tokens that each row's own keys span, the last position + 1, for queries and for keys.

    Keys hidden from all queries do not count; of a packed row, each document counts for itself.

    Returns:
        Two tensors that broadcast with ``(*batch, queries)`` and ``(*batch, keys)``.
    """
    if mask is not None:
        seen = mask.any(1).any(1)  # (batch | 1, keys)
        k_pos = k_pos.expand(seen.shape[0], -1) if k_pos.ndim == 1 else k_pos
        k_pos = torch.where(seen, k_pos, -1)
    if segments is None:
        row = position.span(k_pos)
        return RowLengths(row, row)
    return RowLengths(*_row_lengths_of_documents(k_pos, *segments))


def _row_lengths_of_documents(k_pos: Tensor, q_segments: Tensor, k_segments: Tensor) -> tuple[Tensor, Tensor]:
    """The same for each document: keys are sorted by document, and each run of equals takes its largest position."""
    k_pos = k_pos if k_pos.ndim == 2 else k_pos[None]
    rows = max(k_pos.shape[0], q_segments.shape[0], k_segments.shape[0])
    k_pos, q_segments, k_segments = (t.expand(rows, -1) for t in (k_pos, q_segments, k_segments))
    ordered, order = k_segments.sort(-1)
    starts = torch.ones_like(ordered)
    starts[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).to(ordered.dtype)
    run = starts.long().cumsum(-1) - 1
    last = torch.full_like(k_pos, -1).scatter_reduce(1, run, k_pos.gather(1, order), "amax")
    lengths = position.span(last.gather(1, run).unsqueeze(-1)).squeeze(-1)
    index = torch.searchsorted(ordered, q_segments.contiguous()).clamp(max=ordered.shape[1] - 1)
    query_lengths = torch.where(ordered.gather(1, index) == q_segments, lengths.gather(1, index), 0)
    return query_lengths, torch.zeros_like(lengths).scatter(1, order, lengths)
