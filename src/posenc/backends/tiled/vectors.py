"""Queries times vectors of the distance, and weights times vectors of the distance: Shaw, Transformer-XL."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.backends.tiled.terms import Change, Term, TermContext
from posenc.backends.tiled.tile import Tile, by_distance, spread
from posenc.backends.tiled.tiled_call import QUERIES


class Reach(NamedTuple):
    """Distances of a tile, entry e = n − offset: the first ``before`` take the first row, from ``near`` on the last."""

    entries: int
    before: int
    near: int
    low: int  # entries before … near − 1 are rows low … high − 1
    high: int


def reach(tile: Tile, first: int, rows: int) -> Reach:
    """Where the rows of a table from distance ``first`` on meet a tile."""
    entries = tile.rows + tile.columns - 1
    before = min(max(0, first - tile.offset), entries)
    near = max(before, min(entries, first + rows - 1 - tile.offset))
    return Reach(entries, before, near, before + tile.offset - first, near + tile.offset - first)


def add_products(scores: Tensor, left: Tensor, rows: Tensor, at: Reach) -> None:
    """scores[c, x] += left_c · row of their distance, in place; ``rows`` (heads | 1, distances, width)."""
    last = left @ rows[:, -1:].mT if at.near < at.entries else None
    if last is not None:
        scores.add_(last)
    parts = []
    if at.before:
        parts.append((left @ rows[:, :1].mT).expand(*left.shape[:-1], at.before))
    if at.high > at.low and at.near > at.before:
        parts.append(left @ rows[:, at.low : at.high].mT)
    if parts:
        near = parts[0].contiguous() if len(parts) == 1 else torch.cat(parts, -1)
        spread(scores, near if last is None else near.sub_(last))


def products(scores: Tensor, rows: Tensor, at: Reach, left: Tensor | None, grad_rows: Tensor | None) -> Tensor:
    """Σ_x scores[c, x] · row of their distance, ``(batch, heads, rows, width)``: the transpose of `add_products`.

    With ``left``, the rows' gradients, scores[c, x] · left_c, are added to ``grad_rows``.
    """
    near = by_distance(scores, at.near)
    pieces = [(near[..., at.before :], slice(at.low, at.high))]
    if at.before:
        pieces.append((near[..., : at.before].sum(-1, keepdim=True), slice(0, 1)))
    if at.near < at.entries:
        pieces.append((scores.sum(-1, keepdim=True).sub_(near.sum(-1, keepdim=True)), slice(-1, None)))
    total: Tensor | None = None
    for part, where in pieces:
        if part.shape[-1]:
            product = part @ rows[:, where]
            total = product if total is None else total.add_(product)
            if left is not None and grad_rows is not None:
                _gather(grad_rows[:, where], part, left)
    return scores.new_zeros(*scores.shape[:-1], rows.shape[-1]) if total is None else total


def _gather(total: Tensor, part: Tensor, left: Tensor) -> None:
    """total_h += Σ_b part_bhᵀ · left_bh, in place; summed over heads where they share it, and have few rows."""
    if total.shape[0] == part.shape[1]:
        for of_row, left_row in zip(part, left, strict=True):
            total.baddbmm_(of_row.mT, left_row)
    else:
        total += (part.mT @ left).sum((0, 1)).unsqueeze(0)


def _few(tile: Tile, rows: Tensor, left: Tensor) -> bool:
    """Whether a tile has so few queries that a weight meets them rather than the rows."""
    return tile.rows * (rows.shape[1] + left.shape[3]) < rows.shape[1] * left.shape[3]


class Vectors(Term):
    """See `posenc.structure.Vectors`: rows, shift, weight and values, of which only the rows must be there.

    With a weight, the rows of some heads are made when their first tile comes, and their gradient becomes the weight's
    when other heads follow: never those of all heads at once.
    """

    skewed = True

    def __init__(self, tensors: dict[str, Tensor], *, first: int, scale: float, unseen: int = 0) -> None:
        """Where no key after its query is seen, ``unseen`` rows of zeros stand for such distances inside a tile."""
        for name in ("rows", "values"):
            if name in tensors and unseen:
                tensors = {**tensors, name: F.pad(tensors[name], (0, 0, unseen, 0))}
        super().__init__(*tensors.values())
        self.names, self.first, self.scale, self.unseen = list(tensors), first - unseen, scale, unseen
        self.reads_values = "values" in tensors
        self._heads: slice | None = None
        self._made: Tensor | None = None
        self._made_grad: Tensor | None = None

    @classmethod
    def build(cls, tensors: dict[str, Tensor], context: TermContext) -> Vectors:
        hidden = context.visibility.causal is True and context.number == 0 and context.queries > 1
        return cls(tensors, first=context.number, scale=context.scale, unseen=QUERIES - 1 if hidden else 0)

    def _get(self, name: str, of: list[Tensor] | tuple[Tensor, ...] | None = None) -> Tensor | None:
        """The tensor of a name, or its gradient out of ``of``."""
        return (self.tensors if of is None else of)[self.names.index(name)] if name in self.names else None

    def _rows(self, tile: Tile) -> Tensor:
        """Vectors of the tile's heads, ``(heads | 1, distances, width)``."""
        rows, weight = self._get("rows"), self._get("weight")
        assert rows is not None
        if weight is None:
            return rows if rows.shape[0] == 1 else rows[tile.heads]
        if self._made is None or self._heads != tile.heads:
            self._flush()
            self._heads, self._made = tile.heads, rows @ weight[tile.heads].mT
        return self._made

    def _grad_rows(self, tile: Tile) -> Tensor:
        """Where the gradients of the tile's rows are gathered."""
        rows = self._get("rows", self.gradients)
        assert rows is not None
        if "weight" in self.names:
            if self._made_grad is None:
                self._made_grad = torch.zeros_like(self._rows(tile))
            return self._made_grad
        return rows if rows.shape[0] == 1 else rows[tile.heads]

    def _flush(self) -> None:
        """From the gradient of computed rows, the gradients of the weight and of the rows that heads share."""
        weight, rows = self._get("weight"), self._get("rows")
        if self._made_grad is None or self._heads is None or weight is None or rows is None:
            return
        grad_weight, grad_rows = self._get("weight", self.gradients), self._get("rows", self.gradients)
        assert grad_weight is not None
        assert grad_rows is not None
        grad_weight[self._heads] += self._made_grad.mT @ rows
        if grad_rows.numel():
            grad_rows += (self._made_grad @ weight[self._heads]).sum(0, keepdim=True)
        self._made_grad = None

    def _left(self, q: Tensor, tile: Tile) -> Tensor:
        shift = self._get("shift")
        content = self._get("content")
        q = q if content is None else tile.of(content)[:, :, tile.start : tile.stop] * self.scale
        return q if shift is None else q + shift[tile.heads].unsqueeze(1) * self.scale

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        left, weight, rows = self._left(q, tile), self._get("weight"), self._get("rows")
        assert rows is not None
        at = reach(tile, self.first, rows.shape[1])
        if weight is not None and _few(tile, rows, left):
            add_products(scores, left @ weight[tile.heads], rows, at)  # for few queries, before rows were made
        else:
            add_products(scores, left, self._rows(tile), at)
        return left

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> Change:
        assert isinstance(saved, Tensor)
        rows = self._rows(tile)
        of_left = products(grad, rows, reach(tile, self.first, rows.shape[1]), saved, self._grad_rows(tile))
        shift, content = self._get("shift", self.gradients), self._get("content", self.gradients)
        if shift is not None:
            shift[tile.heads] += of_left.sum((0, 2)) * self.scale
        if content is None:
            return Change(q=of_left)
        tile.add_to(content, of_left * self.scale, slice(tile.start, tile.stop))
        return Change()

    def start_backward(self, wide: torch.dtype) -> None:
        super().start_backward(wide)
        shared = self.names.index("rows")
        if "weight" in self.names and shared in self.frozen:  # sinusoids: as large as all keys
            self.gradients[shared] = self.gradients[shared].new_zeros(1, 0, 0)

    def finish_backward(self) -> list[Tensor]:
        self._flush()
        cut = {"rows": (slice(None), slice(self.unseen, None)), "values": (slice(self.unseen, None),)}
        return [g[cut[name]].clone() if name in cut else g for name, g in zip(self.names, self.gradients, strict=True)]

    def add_output(self, out: Tensor, weights: Tensor, tile: Tile) -> None:
        values = self._get("values")
        if values is not None:
            out.add_(products(weights, values[None], reach(tile, self.first, len(values)), None, None))

    def own_values(self) -> Tensor | int:
        values = self._get("values")
        return 0 if values is None else values[-self.first]

    def own_values_gradient(self, grad: Tensor) -> None:
        total = self._get("values", self.gradients)
        if total is not None:
            total[-self.first] += grad

    def output_gradient(self, grad_weights: Tensor, grad: Tensor, weights: Tensor, tile: Tile) -> None:
        values, total = self._get("values"), self._get("values", self.gradients)
        if values is not None and total is not None:
            at = reach(tile, self.first, len(values))
            products(weights, values[None], at, grad, total[None])
            add_products(grad_weights, grad, values[None], at)
