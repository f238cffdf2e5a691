"""Queries times vectors of the distance, and weights times vectors of the distance: Shaw, Transformer-XL.

The idea: a query meets the vectors of all distances once, a product of the tile's rows with a slice of the table, and
the result is read along anti-diagonals (`tile.add_skewed`): nothing is gathered, and no tile of vectors is built. Most
distances of a long text lie past the ends of a clipped table. They share one product a query, which is added to whole
rows; only what differs from it is skewed.

The invariants: `RowRange` cuts the distances of a tile into those before the table, inside it, and past it, in this
order; `products` is the transpose of `add_products` over the same three ranges, so that gradients and the values that
weights read (`add_output`) come from one function.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.dtypes import widened
from posenc.structure.interface import InputGradients, Structure, TileContext, TileFacts
from posenc.structure.tile import QUERIES, Tile, add_skewed, skew_view


class RowRange(NamedTuple):
    """Distances of a tile, entry e = n − offset: the first ``before`` take the first row, from ``past`` on the last."""

    entries: int
    before: int
    past: int
    low: int  # entries before … past − 1 are rows low … high − 1
    high: int

    @classmethod
    def of(cls, tile: Tile, first: int, rows: int) -> RowRange:
        """Where the rows of a table from distance ``first`` on meet a tile."""
        entries = tile.rows + tile.columns - 1
        before = min(max(0, first - tile.offset), entries)
        past = max(before, min(entries, first + rows - 1 - tile.offset))
        return cls(entries, before, past, before + tile.offset - first, past + tile.offset - first)


def add_products(scores: Tensor, left: Tensor, rows: Tensor, at: RowRange) -> None:
    """scores[c, x] += left_c · row of their distance, in place; ``rows`` (heads | 1, distances, width)."""
    # A skewed view shows zeros where it has no entry. So the last row's product is first added everywhere, without a
    # view, and taken off the entries that have rows of their own: those past the table then need no entries at all, and
    # what is skewed is as wide as the table, however long the text.
    last = left @ rows[:, -1:].mT if at.past < at.entries else None
    if last is not None:
        scores.add_(last)
    parts = []
    if at.before:
        parts.append((left @ rows[:, :1].mT).expand(*left.shape[:-1], at.before))
    if at.high > at.low and at.past > at.before:
        parts.append(left @ rows[:, at.low : at.high].mT)
    if parts:
        entries = parts[0].contiguous() if len(parts) == 1 else torch.cat(parts, -1)
        add_skewed(scores, entries if last is None else entries.sub_(last))


def products(scores: Tensor, rows: Tensor, at: RowRange, left: Tensor | None, grad_rows: Tensor | None) -> Tensor:
    """Σ_x scores[c, x] · row of their distance, ``(batch, heads, rows, width)``: the transpose of `add_products`.

    With ``left``, the rows' gradients, scores[c, x] · left_c, are added to ``grad_rows``.
    """
    by_distance = skew_view(scores, at.past)
    pairs = [(by_distance[..., at.before :], slice(at.low, at.high))]
    if at.before:  # all of them meet the first row: one sum for each query
        pairs.append((by_distance[..., : at.before].sum(-1, keepdim=True), slice(0, 1)))
    if at.past < at.entries:  # what is not in the view is past the table
        pairs.append((scores.sum(-1, keepdim=True).sub_(by_distance.sum(-1, keepdim=True)), slice(-1, None)))
    total: Tensor | None = None
    for sums, where in pairs:
        if sums.shape[-1]:
            product = sums @ rows[:, where]
            total = product if total is None else total.add_(product)
            if left is not None and grad_rows is not None:
                _add_row_gradients(grad_rows[:, where], sums, left)
    return scores.new_zeros(*scores.shape[:-1], rows.shape[-1]) if total is None else total


def _add_row_gradients(total: Tensor, sums: Tensor, left: Tensor) -> None:
    """total_h += Σ_b sums_bhᵀ · left_bh, in place; summed over heads where they share it, and have few rows."""
    if total.shape[0] == sums.shape[1]:
        for batch_sums, batch_left in zip(sums, left, strict=True):
            total.baddbmm_(batch_sums.mT, batch_left)
    else:
        total += (sums.mT @ left).sum((0, 1)).unsqueeze(0)


@dataclass(eq=False)
class Vectors(Structure):
    """s_ij ← s_ij + scale · (q_i + shift) · r_n, and o_i ← o_i + Σ_j a_ij values_n, for vectors of the distance.

    r_n is row n − first of ``rows``; distances beyond the first or last row take that row. With ``weight``,
    r_n = weight_h · row: rows are then something that heads share, sinusoids for instance.
    """

    rows: Tensor  # (heads | 1, distances, width), or (1, distances, features) with weight
    first: int  # n of the first row; not positive
    content: Tensor | None = None  # queries that meet the rows, (batch, heads, queries, width); None: the call's q
    shift: Tensor | None = None  # (heads, width)
    weight: Tensor | None = None  # (heads, width, features)
    values: Tensor | None = None  # (distances, value_dim)

    # Of a working copy. With a weight, the rows of some heads are made when their first tile comes, and their gradient
    # becomes the weight's when other heads follow: never those of all heads at once.
    scale: float = field(init=False)
    padding: int = field(init=False)  # rows of zeros in front
    made_heads: slice | None = field(init=False)
    made_rows: Tensor | None = field(init=False)
    made_gradient: Tensor | None = field(init=False)

    description = "vectors of the distance"
    skewed = True

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        if facts.aligned:
            return None
        return "positions are given: nothing is a function of the difference of two indices"

    def with_products(self, q: Tensor, k: Tensor, *, changed: bool, chained: bool) -> Vectors:
        if self.content is not None or not chained:
            return self
        return Vectors(self.rows, self.first, widened(q), self.shift, self.weight, self.values)

    def prepare(self, context: TileContext) -> None:
        super().prepare(context)
        # A table that begins at distance 0 says nothing of keys after the query, and in causal order they are hidden. A
        # tile still has such pairs in its corner, and `add_products` would give them the first row, as a range of its
        # own with a product and a copy. As many rows of zeros in front as a tile has such distances make it one range.
        unseen = context.visibility.causal is True and self.first == 0 and context.queries > 1
        self.padding = QUERIES - 1 if unseen else 0
        self.rows = F.pad(self.rows, (0, 0, self.padding, 0))
        self.values = None if self.values is None else F.pad(self.values, (0, 0, self.padding, 0))
        self.first, self.scale = self.first - self.padding, context.scale
        self.made_heads = self.made_rows = self.made_gradient = None

    def _rows(self, tile: Tile) -> Tensor:
        """Vectors of the tile's heads, ``(heads | 1, distances, width)``."""
        if self.weight is None:
            return self.rows if self.rows.shape[0] == 1 else self.rows[tile.heads]
        if self.made_rows is None or self.made_heads != tile.heads:
            self._flush()
            self.made_heads, self.made_rows = tile.heads, self.rows @ self.weight[tile.heads].mT
        return self.made_rows

    def _grad_rows(self, tile: Tile) -> Tensor:
        """Where the gradients of the tile's rows are gathered."""
        if self.weight is not None:
            if self.made_gradient is None:
                self.made_gradient = torch.zeros_like(self._rows(tile))
            return self.made_gradient
        rows = self.gradients["rows"]
        return rows if rows.shape[0] == 1 else rows[tile.heads]

    def _flush(self) -> None:
        """From the gradient of computed rows, the gradients of the weight and of the rows that heads share."""
        if self.made_gradient is None or self.made_heads is None or self.weight is None:
            return
        self.gradients["weight"][self.made_heads] += self.made_gradient.mT @ self.rows
        if "rows" in self.gradients:
            self.gradients["rows"] += (self.made_gradient @ self.weight[self.made_heads]).sum(0, keepdim=True)
        self.made_gradient = None

    def _left(self, q: Tensor, tile: Tile) -> Tensor:
        """What meets the rows, times the scale."""
        if self.content is not None:
            q = tile.of(self.content)[:, :, tile.start : tile.stop] * self.scale
        return q if self.shift is None else q + self.shift[tile.heads].unsqueeze(1) * self.scale

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        left, distances = self._left(q, tile), self.rows.shape[1]
        at = RowRange.of(tile, self.first, distances)
        # Of few queries, as in a decode step, it is cheaper to carry these to the features than to make the rows of all
        # distances: (q W) R instead of q (W R).
        if self.weight is not None and tile.rows * (distances + left.shape[3]) < distances * left.shape[3]:
            add_products(scores, left @ self.weight[tile.heads], self.rows, at)
        else:
            add_products(scores, left, self._rows(tile), at)
        return left

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> InputGradients:
        assert isinstance(saved, Tensor)
        rows = self._rows(tile)
        grad_left = products(grad, rows, RowRange.of(tile, self.first, rows.shape[1]), saved, self._grad_rows(tile))
        if self.shift is not None:
            self.gradients["shift"][tile.heads] += grad_left.sum((0, 2)) * self.scale
        if self.content is None:
            return InputGradients(q=grad_left)
        tile.add_to(self.gradients["content"], grad_left * self.scale, slice(tile.start, tile.stop))
        return InputGradients()

    def start_backward(self) -> None:
        super().start_backward()
        if self.weight is not None and "rows" not in self.learned:
            del self.gradients["rows"]  # sinusoids: as large as all keys

    def finish_backward(self) -> dict[str, Tensor]:
        self._flush()
        cut = {"rows": (slice(None), slice(self.padding, None)), "values": (slice(self.padding, None),)}
        return {name: t[cut[name]].clone() if name in cut else t for name, t in self.gradients.items()}

    @property
    def reads_values(self) -> bool:
        return self.values is not None

    def add_output(self, out: Tensor, weights: Tensor, tile: Tile) -> None:
        if self.values is not None:
            at = RowRange.of(tile, self.first, len(self.values))
            out.add_(products(weights, self.values[None], at, None, None))

    def output_gradient(self, grad_weights: Tensor, grad: Tensor, weights: Tensor, tile: Tile) -> None:
        if self.values is not None:
            at = RowRange.of(tile, self.first, len(self.values))
            products(weights, self.values[None], at, grad, self.gradients["values"][None])
            add_products(grad_weights, grad, self.values[None], at)

    def own_values(self) -> Tensor | int:
        return 0 if self.values is None else self.values[-self.first]

    def own_values_gradient(self, grad: Tensor) -> None:
        if self.values is not None:
            self.gradients["values"][-self.first] += grad
