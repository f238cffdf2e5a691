"""Biases by coordinate differences, looked up at the sum of a query's and a key's index.

The idea: keys of an image, row by row, have indices that grow by one, and by a larger step from row to row. The bias of
a run of queries is then a strided view of the table and its gradient a sum along diagonals: no element is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.structure.interface import NO_INPUT_GRADIENTS, InputGradients, Structure, TileContext
from posenc.structure.tile import Tile

SHORTEST = 4  # queries of a run from which a view pays


class Raster(NamedTuple):
    """Indices that begin as in an image's raster order: ``lines`` times ``width``, each line ``step`` further on.

    Of a query whose index is a, the entries a + index of these keys are then ``lines`` runs of ``width`` neighbours,
    ``step`` apart: a strided view of the table. The next query of a run reads the same view one entry further on.
    """

    lines: int
    width: int
    step: int

    @classmethod
    def of(cls, index: Tensor) -> Raster:
        """How far ``index`` (tokens,) goes so from its beginning."""
        ones = torch.cat([index.diff() == 1, index.new_zeros(1, dtype=torch.bool)])
        width = int((~ones).int().argmax()) + 1  # argmax finds the first: where a line ends
        step = max(int(index[width] - index[0]), 0) if len(index) > width else width  # a view cannot step back
        at = torch.arange(len(index), device=index.device)
        follows = index == index[0] + at // width * step + at % width
        count = len(index) if bool(follows.all()) else int((~follows).int().argmax())
        return cls(count // width, width, step)  # whole lines; what is left over is looked up

    @property
    def tokens(self) -> int:
        """Tokens of the whole lines."""
        return self.lines * self.width


@dataclass(eq=False)
class Offsets(Structure):
    """s_ij ← s_ij + values_h[query_index_i + key_index_j]: a bias of differences of coordinates that lie on a grid."""

    values: Tensor  # (heads, entries)
    query_index: Tensor  # int64 (queries,)
    key_index: Tensor  # int64 (keys,)

    # Of a working copy
    runs: list[int] = field(init=False)  # where runs of queries begin whose indices grow by one, and the end
    raster: Raster = field(init=False)  # of the reversed keys; no lines where runs are too short to pay

    description = "a bias by differences of coordinates"

    def prepare(self, context: TileContext) -> None:
        super().prepare(context)
        self.key_index = self.key_index.flip(0)
        ends = (self.query_index.diff() != 1).nonzero()[:, 0] + 1
        self.runs = [0, *ends.tolist(), len(self.query_index)]
        long = len(self.query_index) >= SHORTEST * (len(self.runs) - 1)
        self.raster = Raster.of(self.key_index) if long else Raster(0, 1, 1)

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        values, (lines, width, step) = self.values[tile.heads].contiguous(), self.raster
        whole = self._whole_lines(tile)
        for rows, first in self._runs(tile) if whole else ():
            block = scores[:, :, rows, :whole].unflatten(-1, (lines, width))  # type: ignore[no-untyped-call]
            shape, strides = (len(values), rows.stop - rows.start, lines, width), (values.shape[1], 1, step, 1)
            block.add_(values.as_strided(shape, strides, first))
        if whole < tile.columns:
            index = self._index(tile, whole)
            gathered = values.index_select(1, index.flatten()).view(len(values), *index.shape)
            scores[..., whole:].add_(gathered)
        return None

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> InputGradients:
        total, (lines, width, step) = self.gradients["values"][tile.heads], self.raster
        whole, grad = self._whole_lines(tile), grad[0] if len(grad) == 1 else grad.sum(0)
        for rows, first in self._runs(tile) if whole else ():
            sums = _difference_sums(grad[:, rows, :whole], lines, width)
            entries = sums.shape[2]
            if step >= entries:  # lines do not overlap in the table, so that one view can be added to
                total.as_strided(sums.shape, (total.stride(0), step, 1), total.storage_offset() + first).add_(sums)
                continue
            for line in range(lines):
                at = first + line * step
                total[:, at : at + entries] += sums[:, line]
        if whole < tile.columns:
            total.index_add_(1, self._index(tile, whole).flatten(), grad[..., whole:].flatten(1))
        return NO_INPUT_GRADIENTS

    def _whole_lines(self, tile: Tile) -> int:
        """Columns of the tile that are whole lines of the raster; 0 unless the tile begins where the raster does."""
        tokens = self.raster.tokens
        return tokens if tile.near == 0 and tokens <= tile.far else 0

    def _runs(self, tile: Tile) -> Iterator[tuple[slice, int]]:
        """Rows of the tile whose indices grow by one, and the entry of the first row and column."""
        key = int(self.key_index[0])
        for start, stop in zip(self.runs[:-1], self.runs[1:], strict=True):
            low, high = max(start, tile.start), min(stop, tile.stop)
            if low < high:
                yield slice(low - tile.start, high - tile.start), int(self.query_index[low]) + key

    def _index(self, tile: Tile, first: int) -> Tensor:
        """The entry of each row and each column from ``first`` on."""
        return self.query_index[tile.start : tile.stop, None] + self.key_index[tile.near + first : tile.far]


def _difference_sums(grad: Tensor, lines: int, width: int) -> Tensor:
    """Sums ``(heads, lines, width + rows − 1)`` of ``(heads, rows, lines · width)`` over row + place in its line."""
    rows, heads = grad.shape[1], len(grad)
    padded = grad.new_zeros(heads, lines, rows, width + rows - 1)  # rows followed by zeros, as in `skew_view`
    padded[..., :width].copy_(grad.view(heads, rows, lines, width).transpose(1, 2))
    return padded.as_strided(padded.shape, (*padded.stride()[:2], padded.shape[3] - 1, 1)).sum(2)
