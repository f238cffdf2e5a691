"""Calls whose queries span more tokens than xPos can scale: one block of queries at a time.

xPos splits a decay between query and key around the middle of the queries. That holds as far as the range of
floating-point numbers allows, tens of thousands of tokens; beyond, each block of queries has a middle of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from posenc.call import AttentionCall, AttentionOptions, prepare_call
from posenc.encoding import Encoding, RotaryEncoding
from posenc.rotate import Spans, part, spans_of
from posenc.tracing import tracing


def prepare_ranges(
    q: Tensor, k: Tensor, v: Tensor, encodings: Sequence[Encoding], options: AttentionOptions
) -> tuple[AttentionCall, list[tuple[int, int]]]:
    """The validated call, and the ranges of queries that `attend_in_blocks` takes where there are several.

    A call of one range is rotated; one that is divided is not, as each range is rotated about a middle of its own.
    """
    reach = reach_of(encodings, q.dtype) if isinstance(q, Tensor) else None
    if reach is not None:
        call = prepare_call(q, k, v, encodings, **options, rotate=False)
        ranges = [] if 0 in q.shape[:3] else blocks(call, reach)
        if len(ranges) > 1:
            return call, ranges
    call = prepare_call(q, k, v, encodings, **options)
    return call, [(0, call.q.shape[2])]


def reach_of(encodings: Sequence[Encoding], dtype: torch.dtype) -> int | None:
    """Tokens that the queries of one call may span, or None where it does not matter."""
    all_of_them = [e.reach(dtype) for e in encodings if isinstance(e, RotaryEncoding)]
    reaches = [reach for reach in all_of_them if reach is not None]
    return min(reaches) if reaches else None


def blocks(call: AttentionCall, reach: int | None) -> list[tuple[int, int]]:
    """Ranges of queries that span at most ``reach`` tokens, in every row. One for all, wherever that is enough.

    Visible keys whose given positions lie after a range are within its span as well: they grow with the distance.
    Under a compiler given positions are not looked at: their queries must lie within the reach.

    Raises:
        ValueError: where a query attends to a key so far after it that their factors leave the range of the dtype.
    """
    queries = call.q.shape[2]
    if reach is None or (call.aligned and queries <= reach):
        return [(0, queries)]
    if call.aligned:
        return [(start, min(start + reach, queries)) for start in range(0, queries, reach)]
    if tracing():
        return [(0, queries)]
    rows, start, ranges = call.q_pos.reshape(-1, queries), 0, []
    farthest = _farthest(call, rows)
    while start < queries:
        first, last = (best(rows[:, start:], -1).values for best in (torch.cummin, torch.cummax))
        beyond = torch.maximum(farthest[:, start:] - last, torch.zeros_like(last))
        near = (last - first + 2 * beyond < reach).all(0)
        fitting = int(near.long().cumprod(0).sum())
        if not fitting:
            _check_growth(call, start, reach)
        ranges.append((start, start + max(1, fitting)))
        start = ranges[-1][1]
    return ranges


def _farthest(call: AttentionCall, rows: Tensor) -> Tensor:
    """The last position visible to each query by the order of indices, ``(rows, queries)``; its own otherwise."""
    queries, keys = call.q.shape[2], call.k.shape[2]
    if call.causal is not True:  # by position no key lies after its query
        return rows
    return call.k_pos.reshape(-1, keys).cummax(-1).values[:, keys - queries :]


def _check_growth(call: AttentionCall, query: int, reach: int) -> None:
    """Raise a ValueError where a query attends to a key farther after it than the room of its dtype."""
    ahead = (call.k_pos - call.q_pos[..., query : query + 1])[..., None, None, :]
    visible = call.visible(query, query + 1)
    grown = ahead if visible is None else torch.where(visible, ahead, 0)
    most = grown.amax().item()
    if 2 * most >= reach:
        raise ValueError(
            f"k_pos must lie less than {reach / 2:g} tokens after the query that attends to them in {call.q.dtype}, got"
            f" {most:g} at query {query}: xPos grows with such distances (causal='positions' hides these keys)"
        )


def attend_in_blocks(
    attend: Callable[..., Tensor],
    ranges: Sequence[tuple[int, int]],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Sequence[Encoding],
    options: AttentionOptions,
    call: AttentionCall,
) -> Tensor:
    """``attend(q, k, v, encodings, **options)`` for each range of queries, end to end.

    Args:
        attend: takes what `attention` takes; returns ``(batch, heads, queries, ...)``.
        ranges: first and last + 1 of the queries of each block.
        q, k, v, encodings, options: as the caller passed them, not yet rotated.
        call: the same, validated.
    """
    out = []
    for one in calls_of(ranges, q, k, v, encodings, options, call):
        if isinstance(one, int):  # queries before the first key
            out.append(q.new_zeros(*q.shape[:2], one, v.shape[3]))
        else:
            out.append(attend(*one[:3], encodings, **one[3]))
    return torch.cat(out, 2)


def calls_of(
    ranges: Sequence[tuple[int, int]],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Sequence[Encoding],
    options: AttentionOptions,
    call: AttentionCall,
) -> Iterator[tuple[Tensor, Tensor, Tensor, AttentionOptions] | int]:
    """q, k, v and the options of each range of queries; their number alone where they attend to no key.

    Rotations that span a row span what they would in one call, also beyond the keys of a block.
    """
    queries, keys, mask, segments = q.shape[2], k.shape[2], call.mask, call.segments
    x, states, length = options.get("x"), options.get("token_states"), options.get("length")
    by_index = call.causal is True  # then keys after the last query of a block are hidden
    counted = call.aligned and by_index
    spanning = [e for e in encodings if isinstance(e, RotaryEncoding) and e.length_dependent]
    span = spans_of(spanning[0], call.k_pos, mask, segments) if spanning and length is None else None
    for start, stop in ranges:
        visible = stop + keys - queries if by_index else keys
        if visible <= 0:
            yield stop - start
            continue
        rows = mask if mask is None or mask.shape[2] == 1 else mask[:, :, start:stop]
        block: AttentionOptions = {
            **options,
            "length": length if span is None else Spans(part(span[0], start, stop), part(span[1], 0, visible)),
            "q_pos": None if counted else call.q_pos[..., start:stop],
            "k_pos": None if counted else call.k_pos[..., :visible],
            "x": None if x is None else x[:, :visible],
            "token_states": None if states is None else [None if s is None else s[:, :, :visible] for s in states],
            "mask": None if rows is None else rows[..., :visible],
            "segments": None if segments is None else (segments[0][:, start:stop], segments[1][:, :visible]),
        }
        yield q[:, :, start:stop], k[:, :, :visible], v[:, :, :visible], block
