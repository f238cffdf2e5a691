"""Which queries meet which keys in each range, as rectangles that one call of a kernel takes.

Where positions are the indices, a range is a band, a triangle or chunks: squares under the causal flag and
rectangles without any mask, but for the edges of bands. Elsewhere, under masks, documents, windows and given positions,
it is blocks of queries with the keys that any of them meets, and a mask each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.call import AttentionCall
from posenc.dtypes import float32_or_better
from posenc.structure import Range, Ranges

BLOCK = 256  # queries of a block with a mask


class Rectangle(NamedTuple):
    """Queries and keys of one range that meet in one call of a kernel."""

    number: int  # of its range
    rows: slice  # queries
    keys: slice
    causal: bool = False  # whether query r of these attends to the first r + 1 of as many keys
    mask: Tensor | None = None  # added to the scores, (batch | 1, heads | 1, rows, keys)
    unseen: Tensor | None = None  # bool, queries without any key here, (batch | 1, heads | 1, rows)


def needs_no_masks(call: AttentionCall) -> bool:
    """Whether positions are the indices, and only the causal order and the ranges hide keys."""
    hidden = call.mask is not None or call.segments is not None or call.window is not None
    return call.aligned and call.causal is True and not hidden


class Rectangles:
    """A call cut into rectangles; those with masks are computed again each time, so that they never live together."""

    def __init__(self, call: AttentionCall, ranges: Ranges) -> None:
        self.stated, self.visibility = ranges, call.visibility._replace(narrowed=())  # what the ranges say themselves
        self.queries, self.keys, self.wide = call.q.shape[2], call.k.shape[2], float32_or_better(call.q.dtype)
        self.by_index = call.causal is True
        self._known = list(self._without_masks(call.q)) if needs_no_masks(call) else None

    def __iter__(self) -> Iterator[Rectangle]:
        return iter(self._known) if self._known is not None else self._by_blocks()

    def extent(self, number: int) -> tuple[slice, slice]:
        """The queries and keys that any rectangle of a range, by its number, may have."""
        if self._known is None:
            return slice(0, self.queries), slice(0, self.keys)
        of_range = [rectangle for rectangle in self._known if rectangle.number == number]
        if not of_range:
            return slice(0, 0), slice(0, 0)
        rows, keys = [rectangle.rows for rectangle in of_range], [rectangle.keys for rectangle in of_range]
        return tuple(slice(min(s.start for s in some), max(s.stop for s in some)) for some in (rows, keys))  # type: ignore[return-value]

    def _without_masks(self, like: Tensor) -> Iterator[Rectangle]:
        """Rectangles where key j is at position j, and query r at r + keys − queries."""
        for number, part in enumerate(self.stated.parts):
            if self.stated.chunk is not None:
                yield from self._chunks(number, part, self.stated.chunk)
            elif part.last is None or part.last >= self.keys:
                yield from self._triangle(number, part.first or 0, self.keys if part.until is None else part.until)
            else:
                yield from self._band(number, part.first or 0, part.last, like)

    def _triangle(self, number: int, first: int, until: int) -> Iterator[Rectangle]:
        """Keys at least ``first`` before their query, and before key ``until``."""
        ahead, until = self.keys - self.queries, min(until, self.keys)
        start = max(0, first - ahead)  # the first query with a key
        full = min(self.queries, max(start, until - 1 + first - ahead))  # queries from here on meet all of the keys
        yield from _steps(number, start, full, start + ahead - first + 1)
        if full < self.queries and until > 0:
            yield Rectangle(number, slice(full, self.queries), slice(0, until))

    def _band(self, number: int, first: int, last: int, like: Tensor) -> Iterator[Rectangle]:
        """Keys ``first`` to before ``last`` tokens before their query."""
        ahead = self.keys - self.queries
        unbounded = min(self.queries, max(0, last - ahead))  # queries before this one meet no end of the band
        start = max(0, first - ahead)
        if start < unbounded:
            yield from _steps(number, start, unbounded, start + ahead - first + 1)
        masks: dict[int, Tensor] = {}
        for low in range(max(unbounded, start), self.queries, BLOCK):
            high = min(low + BLOCK, self.queries)
            keys, mask = slice(low + ahead - last + 1, high + ahead - first), None
            if high - low > 1:
                if high - low not in masks:
                    apart = torch.arange(high - low, device=like.device)[:, None] + (last - 1)
                    apart = apart - torch.arange(keys.stop - keys.start, device=like.device)
                    hidden = (apart < first) | (apart >= last)
                    empty = torch.zeros(hidden.shape, dtype=self.wide, device=like.device)
                    masks[high - low] = empty.masked_fill_(hidden, -math.inf)[None, None]
                mask = masks[high - low]
            yield Rectangle(number, slice(low, high), keys, mask=mask)

    def _chunks(self, number: int, part: Range, chunk: int) -> Iterator[Rectangle]:
        """Keys of the chunks ``first`` to before ``last`` before the chunk of their query."""
        ahead, first = self.keys - self.queries, part.first or 0
        for chunk_index in range(ahead // chunk, (self.keys - 1) // chunk + 1):
            rows = slice(max(0, chunk_index * chunk - ahead), min(self.queries, (chunk_index + 1) * chunk - ahead))
            if first == 0 and part.last == 1:
                done = rows.start + ahead - chunk_index * chunk
                for rectangle in _steps(number, rows.start, rows.stop, done + 1):
                    yield rectangle._replace(
                        keys=slice(
                            rectangle.keys.start + chunk_index * chunk, rectangle.keys.stop + chunk_index * chunk
                        )
                    )
                continue
            low, high = 0 if part.last is None else max(0, chunk_index - part.last + 1), chunk_index - first + 1
            if high > low:
                yield Rectangle(number, rows, slice(low * chunk, high * chunk))

    def _by_blocks(self) -> Iterator[Rectangle]:
        """Rectangles with masks, whatever the positions and whatever is visible."""
        visibility = self.visibility
        for low in range(0, self.queries, BLOCK):
            high = min(low + BLOCK, self.queries)
            last = max(1, min(self.keys, high + self.keys - self.queries)) if self.by_index else self.keys
            visible = visibility.rows(low, high, self.queries, self.keys, 0, last)
            for number, part in enumerate(self.stated.parts):
                held = self.stated.holds(part, visibility.q_pos[..., low:high], visibility.k_pos[..., :last])
                seen = visible & (held.unsqueeze(-3) if held.ndim == 3 else held)
                any_of = seen.flatten(0, -2).any(0).nonzero().flatten()
                if not len(any_of):
                    continue
                keys = slice(int(any_of[0]), int(any_of[-1]) + 1)
                seen = seen[..., keys]
                mask = torch.zeros(seen.shape, dtype=self.wide, device=seen.device).masked_fill_(~seen, -math.inf)
                yield Rectangle(number, slice(low, high), keys, mask=mask, unseen=~seen.any(-1))


def _steps(number: int, start: int, stop: int, met: int) -> Iterator[Rectangle]:
    """Queries ``start`` to before ``stop``, the first of which meets the first ``met`` keys, each next one more."""
    rows = slice(start, stop)
    count = stop - start
    if count == 1:
        yield Rectangle(number, rows, slice(0, met))
    elif count > 1:
        if met > 1:
            yield Rectangle(number, rows, slice(0, met - 1))
        yield Rectangle(number, rows, slice(met - 1, met - 1 + count), causal=True)
