"""Biases by coordinate differences, looked up at the sum of a query's and a key's index; and low-rank products.

The idea: keys of an image, row by row, have indices that grow by one, and by a larger step from row to row. The bias of
a run of queries is then a strided view of the table and its gradient a sum along diagonals: no element is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.backends.tiled.terms import NOTHING, Change, Term, TermContext
from posenc.backends.tiled.tile import Tile

SHORTEST = 4  # queries of a run from which a view pays


class Raster(NamedTuple):
    """Indices that begin as in an image's raster order: ``lines`` times ``width``, each line ``step`` further on."""

    lines: int
    width: int
    step: int

    @classmethod
    def of(cls, index: Tensor) -> Raster:
        """How far ``index`` (tokens,) goes so from its beginning."""
        ones = torch.cat([index.diff() == 1, index.new_zeros(1, dtype=torch.bool)])
        width = int((~ones).int().argmax()) + 1
        step = int(index[width] - index[0]) if len(index) > width else width
        at = torch.arange(len(index), device=index.device)
        follows = index == index[0] + at // width * step + at % width
        count = len(index) if bool(follows.all()) else int((~follows).int().argmax())
        return cls(count // width, width, step)

    @property
    def tokens(self) -> int:
        """Tokens of the whole lines."""
        return self.lines * self.width


class Offsets(Term):
    """See `posenc.structure.Offsets`: values ``(heads, entries)``, indices of queries and of reversed keys."""

    def __init__(self, values: Tensor, of_queries: Tensor, of_keys: Tensor) -> None:
        super().__init__(values)
        self.of_queries, self.of_keys = of_queries, of_keys
        ends = (of_queries.diff() != 1).nonzero()[:, 0] + 1
        self.runs: list[int] = [0, *ends.tolist(), len(of_queries)]
        long = len(of_queries) >= SHORTEST * (len(self.runs) - 1)
        self.raster = Raster.of(of_keys) if long else Raster(0, 1, 1)

    @classmethod
    def build(cls, tensors: dict[str, Tensor], context: TermContext) -> Offsets:
        return cls(tensors["values"], tensors["of_queries"], tensors["of_keys"].flip(0))

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        values, (lines, width, step) = self.tensors[0][tile.heads].contiguous(), self.raster
        seen = self._seen(tile)
        for rows, first in self._runs(tile) if seen else ():
            part = scores[:, :, rows, :seen].unflatten(-1, (lines, width))  # type: ignore[no-untyped-call]
            shape, strides = (len(values), rows.stop - rows.start, lines, width), (values.shape[1], 1, step, 1)
            part.add_(values.as_strided(shape, strides, first))
        if seen < tile.columns:
            index = self._index(tile, seen)
            gathered = values.index_select(1, index.flatten()).view(len(values), *index.shape)
            scores[..., seen:].add_(gathered)
        return None

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> Change:
        total, (lines, width, step) = self.gradients[0][tile.heads], self.raster
        seen, grad = self._seen(tile), grad[0] if len(grad) == 1 else grad.sum(0)
        for rows, first in self._runs(tile) if seen else ():
            sums = _by_difference(grad[:, rows, :seen], lines, width)
            entries = sums.shape[2]
            if step >= entries:  # lines do not overlap
                total.as_strided(sums.shape, (total.stride(0), step, 1), total.storage_offset() + first).add_(sums)
                continue
            for line in range(lines):
                at = first + line * step
                total[:, at : at + entries] += sums[:, line]
        if seen < tile.columns:
            total.index_add_(1, self._index(tile, seen).flatten(), grad[..., seen:].flatten(1))
        return NOTHING

    def _seen(self, tile: Tile) -> int:
        """Columns of the tile that are whole lines of the raster."""
        tokens = self.raster.tokens
        return tokens if tile.near == 0 and tokens <= tile.far else 0

    def _runs(self, tile: Tile) -> Iterator[tuple[slice, int]]:
        """Rows of the tile whose indices grow by one, and the entry of the first row and column."""
        key = int(self.of_keys[0])
        for start, stop in zip(self.runs[:-1], self.runs[1:], strict=True):
            low, high = max(start, tile.start), min(stop, tile.stop)
            if low < high:
                yield slice(low - tile.start, high - tile.start), int(self.of_queries[low]) + key

    def _index(self, tile: Tile, first: int) -> Tensor:
        """The entry of each row and each column from ``first`` on."""
        of_keys = self.of_keys[tile.near + first : tile.far]
        return self.of_queries[tile.start : tile.stop, None] + of_keys


def _by_difference(grad: Tensor, lines: int, width: int) -> Tensor:
    """Sums ``(heads, lines, width + rows − 1)`` of ``(heads, rows, lines · width)`` over row + place in its line."""
    rows, heads = grad.shape[1], len(grad)
    lying = grad.new_zeros(heads, lines, rows, width + rows - 1)  # rows followed by zeros, as in `by_distance`
    lying[..., :width].copy_(grad.view(heads, rows, lines, width).transpose(1, 2))
    return lying.as_strided(lying.shape, (*lying.stride()[:2], lying.shape[3] - 1, 1)).sum(2)


class LowRank(Term):
    """See `posenc.structure.LowRank`: left ``(batch, heads, queries, entries)``, right ``(entries, keys)`` reversed."""

    @classmethod
    def build(cls, tensors: dict[str, Tensor], context: TermContext) -> LowRank:
        return cls(tensors["left"], tensors["right"].flip(-1))

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        left, right = self._parts(tile)
        scores.view(-1, scores.shape[-1]).addmm_(left.reshape(-1, left.shape[-1]), right)
        return None

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> Change:
        _, right = self._parts(tile)
        tile.add_to(self.gradients[0], grad @ right.T, slice(tile.start, tile.stop))
        return NOTHING

    def _parts(self, tile: Tile) -> tuple[Tensor, Tensor]:
        left, right = self.tensors
        return tile.of(left)[:, :, tile.start : tile.stop], right[:, tile.near : tile.far]
