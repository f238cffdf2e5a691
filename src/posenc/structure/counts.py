"""Positions that count gates, from the newest key back: CoPE.

Once every query of a tile has counted to the last position, all older keys share one number per query: they need
neither gates nor sums. That is what makes it quick, as a text of any length counts to a hundred within some hundred
tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.dtypes import widened
from posenc.heads import by_key_head
from posenc.structure.interface import NO_INPUT_GRADIENTS, InputGradients, Structure, TileContext, TileFacts
from posenc.structure.tile import Tile, suffix_sums

_STEP = 256  # keys between two looks at whether all queries have counted to the end


class GateCounts(NamedTuple):
    """What a tile's gates became, for its first ``columns`` keys; the others are at the last position."""

    left: Tensor  # queries that the gates saw, (batch, heads, rows, width), times the scale
    gates: Tensor  # (batch, heads, rows, columns)
    below: Tensor  # int64: the position at or below the count
    share: Tensor  # how far on to the next
    slope: Tensor  # z there minus z below; zero at the last position


@dataclass(eq=False)
class Counts(Structure):
    """s_ij ← s_ij + factor · z_i[p_ij], z_i = q_i · table: positions p that count gates from key j up to query i.

    p_ij = min(Σ_{j ≤ l ≤ i} sigmoid(scale · q_i · k_l), positions − 1); z between two positions in proportion.
    """

    table: Tensor  # (width, positions)
    factor: float
    queries: Tensor | None = None  # queries of the gates and z, (batch, heads, queries, width); None: the call's q
    keys: Tensor | None = None  # (batch, num_kv_heads, keys, width); None: the call's k

    # Of a working copy
    scale: float = field(init=False)
    last: int = field(init=False)  # position

    description = "counts"
    stage = 1  # the gates read the bare products of q and k
    scans = True

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        if self.keys is not None and self.keys.shape[1] != facts.num_kv_heads:
            return f"{encoding} counts with other key heads than the call's"
        return None

    def with_products(self, q: Tensor, k: Tensor, *, changed: bool, chained: bool) -> Counts:
        queries = widened(q) if self.queries is None and chained else self.queries
        keys = widened(k) if self.keys is None and (changed or queries is not None) else self.keys
        return Counts(self.table, self.factor, queries, keys)

    def prepare(self, context: TileContext) -> None:
        super().prepare(context)
        self.keys = None if self.keys is None else self.keys.flip(2)
        self.scale, self.last = context.scale, self.table.shape[1] - 1

    @property
    def _own_gates(self) -> bool:
        """Whether gates have products of their own, instead of the scores that the tile holds."""
        return self.queries is not None or self.keys is not None

    def _left(self, q: Tensor, tile: Tile) -> Tensor:
        """The gates' queries, times the scale."""
        return q if self.queries is None else tile.of(self.queries)[:, :, tile.start : tile.stop] * self.scale

    def _keys(self, tile: Tile, columns: slice) -> Tensor:
        """The gates' keys, ``(batch · num_kv_heads, columns, width)``."""
        assert self.keys is not None
        columns = slice(tile.near + columns.start, tile.near + columns.stop)
        return self.keys[tile.batch, tile.kv, columns].flatten(0, 1)

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        left = self._left(q, tile)
        z = (left @ self.table.to(left.dtype)).mul_(self.factor / self.scale)  # (batch, heads, rows, positions)
        gates, counts = self._count(scores, left, tile)
        columns = gates.shape[-1]
        scores[..., columns:].add_(z[..., -1:])
        if bool(counts[..., -1].isnan().any()):  # where any gate was: sums carry it to the end
            counts.nan_to_num_(0.0)  # an index must be a number; the NaN itself stays in the score
        below = counts.clamp_(max=self.last).long()
        share = counts.sub_(below)
        slope = F.pad(z.diff(dim=-1), (0, 1)).gather(-1, below)
        scores[..., :columns].add_(z.gather(-1, below)).addcmul_(slope, share)
        return GateCounts(left, gates, below, share, slope)

    def _count(self, scores: Tensor, left: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
        """Gates and their sums for as many keys as any query still counts."""
        gates, sums = [], []
        for first in range(0, tile.columns, _STEP):
            seen = slice(first, min(first + _STEP, tile.columns))
            raw = self._raw(left, scores, tile, seen) if self._own_gates else scores[..., seen]
            gates.append(raw.sigmoid())
            sums.append(gates[-1].cumsum(-1))
            if len(sums) > 1:
                sums[-1].add_(sums[-2][..., -1:])
            if bool((sums[-1][..., -1] >= self.last).all()):
                break
        return (gates[0], sums[0]) if len(gates) == 1 else (torch.cat(gates, -1), torch.cat(sums, -1))

    def _raw(self, left: Tensor, scores: Tensor, tile: Tile, seen: slice) -> Tensor:
        """Products of queries and keys of the gates, hidden where the scores are."""
        raw = by_key_head(left, self._keys(tile, seen).mT)
        return raw.masked_fill_(scores[..., seen] == -torch.inf, -torch.inf)

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> InputGradients:
        assert isinstance(saved, GateCounts)
        left, gates, below, share, slope = saved
        columns = gates.shape[-1]
        counted = grad[..., :columns]
        shape = (*counted.shape[:3], self.last + 1)
        # z between two positions: 1 − share to the one below, share to the next.
        grad_z = counted.new_zeros(shape).scatter_add_(-1, below, counted)
        moved = counted.new_zeros(shape).scatter_add_(-1, below, counted * share)
        grad_z.sub_(moved)[..., 1:].add_(moved[..., :-1])
        grad_z[..., -1].add_(grad[..., columns:].sum(-1)).add_(moved[..., -1])  # there is no next one
        grad_z.mul_(self.factor / self.scale)
        self.gradients["table"] += left.flatten(0, 2).mT @ grad_z.flatten(0, 2)
        grad_left = grad_z @ self.table.mT
        grad_gates = suffix_sums(counted * slope)  # a gate is part of all later sums
        grad_raw = grad_gates.mul_(gates).addcmul_(grad_gates, gates, value=-1)
        if not self._own_gates:
            return InputGradients(scores=grad_raw, q=grad_left)
        return self._own_gradients(grad_raw, grad_left, left, tile)

    def _own_gradients(self, grad_raw: Tensor, grad_left: Tensor, left: Tensor, tile: Tile) -> InputGradients:
        """Gradients of queries and keys that are not the call's."""
        keys = self._keys(tile, slice(0, grad_raw.shape[-1]))
        grad_left = grad_left + by_key_head(grad_raw, keys)
        folded = grad_raw.reshape(keys.shape[0], -1, grad_raw.shape[3]).mT
        grad_keys = torch.bmm(folded, left.reshape(keys.shape[0], -1, left.shape[3]))
        where = self.gradients["keys"][tile.batch, tile.kv, tile.near : tile.near + grad_raw.shape[-1]]
        where.add_(grad_keys.view(where.shape))
        if self.queries is None:
            return InputGradients(q=grad_left)
        tile.add_to(self.gradients["queries"], grad_left * self.scale, slice(tile.start, tile.stop))
        return NO_INPUT_GRADIENTS

    def finish_backward(self) -> dict[str, Tensor]:
        keys = {} if self.keys is None else {"keys": self.gradients["keys"].flip(2)}
        return {**self.gradients, **keys}
