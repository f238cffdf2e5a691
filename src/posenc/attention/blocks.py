"""Calls whose queries lie too far apart for a rotation that is relative to them: block by block of queries.

xPos splits a decay between query and key around the middle of the queries. That holds as far as the range of
floating-point numbers allows, tens of thousands of tokens; beyond, each block of queries has a middle of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from posenc.attention.problem import Problem
from posenc.attention.rotation import Spans, spans_of
from posenc.encoding import Encoding, RotaryEncoding


def reach_of(encodings: Sequence[Encoding], dtype: torch.dtype) -> int | None:
    """Tokens that the queries of one call may span, or None where it does not matter."""
    all_of_them = [e.reach(dtype) for e in encodings if isinstance(e, RotaryEncoding)]
    found = [reach for reach in all_of_them if reach is not None]
    return min(found) if found else None


def blocks(problem: Problem, reach: int | None) -> list[tuple[int, int]]:
    """Ranges of queries that span at most ``reach`` tokens, in every row. One for all, wherever that is enough.

    Under a compiler given positions are not looked at: their queries must lie within the reach.
    """
    queries = problem.q.shape[2]
    if reach is None or (problem.aligned and queries <= reach):
        return [(0, queries)]
    if problem.aligned:
        return [(start, min(start + reach, queries)) for start in range(0, queries, reach)]
    if torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return [(0, queries)]
    rows, start, found = problem.q_pos.reshape(-1, queries), 0, []
    while start < queries:
        rest = rows[:, start:]
        near = (rest.cummax(-1).values - rest.cummin(-1).values < reach).all(0)
        stop = start + max(1, int(near.long().cumprod(0).sum()))
        found.append((start, stop))
        start = stop
    return found


def attend_in_blocks(
    call: Callable[..., Tensor],
    ranges: Sequence[tuple[int, int]],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    problem: Problem,
    encodings: Sequence[Encoding],
    *,
    length: int | None,
    x: Tensor | None,
    features: Sequence[Tensor | None] | None,
) -> Tensor:
    """``call`` for each range of queries, end to end; q and k as they were given, the rest as the problem has it.

    Rotations that span a row span what they would in one call, also beyond the keys of a block.
    """
    queries, keys, mask, segments = q.shape[2], k.shape[2], problem.mask, problem.segments
    by_index = problem.causal is True  # then keys after the last query of a block are hidden
    counted = problem.aligned and by_index
    spanning = [e for e in encodings if isinstance(e, RotaryEncoding) and e.length_dependent]
    span = spans_of(spanning[0], problem.k_pos, mask, segments) if spanning and length is None else None
    out = []
    for start, stop in ranges:
        seen = stop + keys - queries if by_index else keys
        if seen <= 0:  # queries before the first key
            out.append(q.new_zeros(*q.shape[:2], stop - start, v.shape[3]))
            continue
        rows = mask if mask is None or mask.shape[2] == 1 else mask[:, :, start:stop]
        out.append(
            call(
                q[:, :, start:stop], k[:, :, :seen], v[:, :, :seen],
                length=length if span is None else Spans(_part(span[0], start, stop), _part(span[1], 0, seen)),
                q_pos=None if counted else problem.q_pos[..., start:stop],
                k_pos=None if counted else problem.k_pos[..., :seen],
                x=None if x is None else x[:, :seen],
                features=None if features is None else [None if f is None else f[:, :, :seen] for f in features],
                mask=None if rows is None else rows[..., :seen],
                segments=None if segments is None else (segments[0][:, start:stop], segments[1][:, :seen]),
            )
        )  # fmt: skip
    return torch.cat(out, 2)


def _part(span: Tensor, start: int, stop: int) -> Tensor:
    """The entries of some tokens, where each has one of its own."""
    return span if span.shape[-1] == 1 else span[..., start:stop]
