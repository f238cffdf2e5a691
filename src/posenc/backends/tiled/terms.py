"""Terms that are added to the scores of a tile, and their gradients.

A term adds itself to a tile in place. Given the gradient of the tile's scores, it accumulates the gradients of its own
tensors and returns what it contributes to the gradients of other tensors.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.backends.tiled.tile import Tile, by_distance, diagonals
from posenc.visibility import VisibilityMask


class Change(NamedTuple):
    """What a term adds to gradients that are not its own."""

    scores: Tensor | None = None  # of q and k: (batch, heads, rows, columns)
    capped: Tensor | None = None  # of their products under a cap, of the same shape
    q: Tensor | None = None  # times the scale: (batch, heads, rows, width)


NOTHING = Change()


class TermContext(NamedTuple):
    """What a term needs to know in addition to its tensors."""

    scale: float
    constants_cancel: bool  # whether a number that all keys of a query share has no effect, as under softmax
    softmax: bool
    visibility: VisibilityMask
    queries: int
    number: int
    factor: float


class Term:
    """One term of the scores, over all tiles of a call."""

    scans = False  # whether a tile must begin at the newest key, as sums run from there
    mixes_heads = False  # whether it acts on everything added before it, across heads
    skewed = False  # whether it reads the gradient of the logits by distance
    shares_features = False  # whether all heads of a tile share what it computes first
    acts_on_products = False  # whether it acts on the bare products
    tensors: tuple[Tensor, ...]
    frozen: set[int]  # tensors that need no gradient, by index; where that saves work, they get none

    def __init__(self, *tensors: Tensor) -> None:
        self.tensors = tensors
        self.gradients: list[Tensor] = []
        self.frozen = set()

    @classmethod
    def build(cls, tensors: dict[str, Tensor], context: TermContext) -> Term:
        """The term of a structure's tensors, named as in its ``tile_term``; those along keys are reversed."""
        raise NotImplementedError

    def start_backward(self, wide: torch.dtype) -> None:
        """Make room for the gradients, in the precision of the scores."""
        self.gradients = [torch.zeros(t.shape, dtype=wide, device=t.device) for t in self.tensors]

    def finish_backward(self) -> list[Tensor]:
        """The gradients of all tensors."""
        return self.gradients

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        """Add the term to ``scores`` (batch, heads, rows, columns), in place; returns what `gradient` wants back.

        Args:
            scores: of q and k, with −inf at hidden keys.
            q: queries of the tile times the scale, ``(batch, heads, rows, width)``.
            tile: which.
            mask: 0 at visible and −inf at hidden keys, ``(batch | 1, heads | 1, rows, columns)``; None in plain order.
        """
        raise NotImplementedError

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> Change:
        """Gather the gradients of the term's own tensors from the gradient of the scores, which lies in `tile.room`."""
        raise NotImplementedError

    reads_values = False  # whether `add_output` does anything

    def add_output(self, out: Tensor, weights: Tensor, tile: Tile) -> None:
        """Add what the weights, which lie in `tile.room`, read in addition to v to ``out``."""

    def output_gradient(self, grad_weights: Tensor, grad: Tensor, weights: Tensor, tile: Tile) -> None:
        """The gradients of `add_output`: of the weights, in place, and of the term's own tensors."""

    def own_values(self) -> Tensor | int:
        """What the weight of a query's own key reads in addition to v, ``(value_dim,)``."""
        return 0

    def own_values_gradient(self, grad: Tensor) -> None:
        """Gather the gradient of `own_values`."""


class Row(Term):
    """A function of the distance: one row of numbers a head, ``(heads | 1, queries + keys − 1)``."""

    skewed = True

    @classmethod
    def build(cls, tensors: dict[str, Tensor], context: TermContext) -> Row:
        row = tensors["row"]
        if context.constants_cancel:  # to a head's constant: what is near the own key shall be small
            own_entry = min(context.queries - 1, row.shape[-1] - 1)
            row = row - row[:, own_entry : own_entry + 1]
        return cls(row)

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        (row,) = self.tensors
        scores.add_(diagonals(row if row.shape[0] == 1 else row[tile.heads], tile))
        return None

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> Change:
        (total,) = self.gradients
        sums = by_distance(grad, tile.rows + tile.columns - 1).sum((0, 2))
        sums = sums.sum(0, keepdim=True) if total.shape[0] == 1 else sums
        first = tile.offset + tile.queries - 1
        heads = slice(None) if total.shape[0] == 1 else tile.heads
        total[heads, first : first + sums.shape[-1]] += sums
        return NOTHING


class Column(Term):
    """A number for each key, ``(batch | 1, heads, keys)`` in reversed order."""

    @classmethod
    def build(cls, tensors: dict[str, Tensor], context: TermContext) -> Column:
        return cls(tensors["values"].flip(-1))

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        scores.add_(tile.of(self.tensors[0])[:, :, None, tile.near : tile.far].to(scores.dtype))
        return None

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> Change:
        tile.add_to(self.gradients[0], grad.sum(2), slice(tile.near, tile.far))
        return NOTHING


_STEEP = 32.0  # nats that queries of one tile may lie apart before each gets its own differences


class Decay(Term):
    """Sums of gates over later keys, ``(batch | 1, heads, keys)`` in reversed order.

    They are differences of one running sum: in float64, and taken anew for each tile, so that neither the length of the
    text nor strong gates cost digits where weights are large. What is constant in a row is nothing to softmax: unless
    that row is far from the tile's newest, or the weights do not come from softmax, it is left out.
    """

    def __init__(self, gates: Tensor, *, softmax: bool, per_key: bool, causal: bool) -> None:
        super().__init__(gates)
        self.softmax, self.per_key, self.causal, self.scans = softmax, per_key, causal, not per_key
        self.sums = F.pad(gates.double().cumsum(-1), (1, 0))  # of the keys before key r

    @classmethod
    def build(cls, tensors: dict[str, Tensor], context: TermContext) -> Decay:
        gates, visibility = tensors["gates"], context.visibility
        if visibility.mask is not None and visibility.per_key:  # a hidden key forgets nothing
            gates = gates * visibility.mask[:, :, 0]
        per_key = visibility.per_key and (context.softmax or visibility.window is None)
        return cls(gates.flip(-1), softmax=context.softmax, per_key=per_key, causal=visibility.causal is True)

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        if not self.per_key and mask is not None:
            seen = mask.exp()
            gates = tile.of(self.tensors[0])[:, :, None, tile.near : tile.far] * seen
            scores.add_(gates.cumsum(-1).sub_(gates))
            return seen
        if self.shift(tile) is None:
            self._add_apart(scores, tile)
        else:  # the sums at keys, from the tile's last query on
            sums = tile.of(self.sums)
            newest = sums.index_select(2, self._own_sum(tile)[-1:])
            scores.add_((sums[:, :, tile.near : tile.far] - newest).to(scores.dtype).unsqueeze(2))
        return None

    def _add_apart(self, scores: Tensor, tile: Tile) -> None:
        """Add all differences of sums at keys and at queries, in place: each in two floats, as large parts cancel."""
        sums = tile.of(self.sums)
        at_queries = sums.index_select(2, self._own_sum(tile))
        newest = at_queries[:, :, -1:]
        keys, queries = sums[:, :, tile.near : tile.far] - newest, at_queries - newest
        high_k, high_q = keys.to(scores.dtype), queries.to(scores.dtype)
        low_k, low_q = (keys - high_k).to(scores.dtype), (queries - high_q).to(scores.dtype)
        scores.add_(high_k.unsqueeze(2) - high_q.unsqueeze(3)).add_(low_k.unsqueeze(2)).sub_(low_q.unsqueeze(3))

    def shift(self, tile: Tile) -> Tensor | None:
        """What the tile's rows are too high by, ``(batch | 1, heads, rows, 1)``, as they are left; None: they are not.

        These are the sums at queries, from the tile's last one on.
        """
        if not self.per_key or not self.softmax:
            return None
        sums = tile.of(self.sums).index_select(2, self._own_sum(tile))
        wide = torch.promote_types(self.tensors[0].dtype, torch.float32)
        at_queries = (sums - sums[:, :, -1:]).to(wide).unsqueeze(3)
        return at_queries if bool(at_queries.amin() > -_STEEP) else None

    def steep(self, rows: int) -> bool:
        """Whether so many rows in a line may need differences of their own."""
        ends = self.sums[..., ::rows]
        return not (self.per_key and self.softmax) or bool((ends.diff(dim=-1) < -_STEEP).any())

    def _own_sum(self, tile: Tile) -> Tensor:
        """The index of each query's sum, ``(rows,)``: before its own key, or none where all keys are seen."""
        device = self.sums.device
        if not self.causal:
            return torch.zeros(tile.rows, dtype=torch.long, device=device)
        return (tile.near - tile.offset - torch.arange(tile.rows, device=device)).clamp(0, tile.keys)

    def start_backward(self, wide: torch.dtype) -> None:
        self.gradients = [torch.zeros_like(self.sums), torch.zeros_like(self.tensors[0], dtype=torch.float64)]

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> Change:
        of_sums, of_gates = self.gradients
        if isinstance(saved, Tensor):
            older = grad.flip(-1).cumsum(-1).flip(-1).sub_(grad)  # of all keys behind the gate
            tile.add_to(of_gates, older.mul_(saved).sum(2).double(), slice(tile.near, tile.far))
            return NOTHING
        wide = grad.double()  # a gate gathers all sums before it, and with them all their rounding
        tile.add_to(of_sums, wide.sum(2), slice(tile.near, tile.far))
        at_queries = wide.new_zeros(*grad.shape[:2], of_sums.shape[2])
        tile.add_to(of_sums, at_queries.index_add_(2, self._own_sum(tile), -wide.sum(3)))
        return NOTHING

    def finish_backward(self) -> list[Tensor]:
        of_sums, of_gates = self.gradients
        return [of_gates + of_sums.flip(-1).cumsum(-1).flip(-1)[..., 1:]]  # a gate is part of every later sum
