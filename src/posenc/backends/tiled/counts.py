"""Positions that count gates, from the newest key back: CoPE.

Once every query of a tile has counted to the last position, all older keys share one number per query: they need
neither gates nor sums.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.backends.tiled.terms import Change, Term, TermContext
from posenc.backends.tiled.tile import Tile, suffix_sums
from posenc.heads import by_key_head

_STEP = 256  # keys between two looks at whether all queries have counted to the end


class Counted(NamedTuple):
    """What a tile's gates became, for its first ``columns`` keys; the others are at the last position."""

    left: Tensor  # queries that the gates saw, (batch, heads, rows, width), times the scale
    gates: Tensor  # (batch, heads, rows, columns)
    below: Tensor  # int64: the position at or below the count
    share: Tensor  # how far on to the next
    slope: Tensor  # z there minus z below; zero at the last position


class Counts(Term):
    """See `posenc.structure.Counts`: the table, and queries and keys (reversed) of the gates where they are others."""

    scans = True

    def __init__(self, *tensors: Tensor, factor: float, scale: float) -> None:
        super().__init__(*tensors)
        self.factor, self.scale, self.last = factor / scale, scale, tensors[0].shape[1] - 1

    @classmethod
    def build(cls, tensors: dict[str, Tensor], context: TermContext) -> Counts:
        keys = [tensors["keys"].flip(2)] if "keys" in tensors else []
        queries = [tensors["queries"]] if "queries" in tensors else []
        return cls(tensors["table"], *queries, *keys, scale=context.scale, factor=context.factor)

    def _left(self, q: Tensor, tile: Tile) -> Tensor:
        """The gates' queries, times the scale."""
        return q if len(self.tensors) < 3 else tile.of(self.tensors[1])[:, :, tile.start : tile.stop] * self.scale

    def _keys(self, tile: Tile, columns: slice) -> Tensor:
        """The gates' keys, ``(batch · num_kv_heads, columns, width)``."""
        columns = slice(tile.near + columns.start, tile.near + columns.stop)
        return self.tensors[-1][tile.batch, tile.kv, columns].flatten(0, 1)

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        table, left = self.tensors[0], self._left(q, tile)
        z = (left @ table).mul_(self.factor)  # (batch, heads, rows, positions)
        gates, counts = self._count(scores, left, tile, mask)
        columns = gates.shape[-1]
        scores[..., columns:].add_(z[..., -1:])
        if bool(counts[..., -1].isnan().any()):  # where any gate was: sums carry it to the end
            counts.nan_to_num_(0.0)
        below = counts.clamp_(max=self.last).long()
        share = counts.sub_(below)
        slope = F.pad(z.diff(dim=-1), (0, 1)).gather(-1, below)
        scores[..., :columns].add_(z.gather(-1, below)).addcmul_(slope, share)
        return Counted(left, gates, below, share, slope)

    def _count(self, scores: Tensor, left: Tensor, tile: Tile, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Gates and their sums for as many keys as any query still counts."""
        gates, sums = [], []
        for first in range(0, tile.columns, _STEP):
            seen = slice(first, min(first + _STEP, tile.columns))
            raw = scores[..., seen] if len(self.tensors) == 1 else self._raw(left, scores, tile, seen)
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

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> Change:
        assert isinstance(saved, Counted)
        left, gates, below, share, slope = saved
        columns, table = gates.shape[-1], self.tensors[0]
        here = grad[..., :columns]
        shape = (*here.shape[:3], self.last + 1)
        of_z = here.new_zeros(shape).scatter_add_(-1, below, here)
        moved = here.new_zeros(shape).scatter_add_(-1, below, here * share)  # from a position on to the next
        of_z.sub_(moved)[..., 1:].add_(moved[..., :-1])
        of_z[..., -1].add_(grad[..., columns:].sum(-1)).add_(moved[..., -1])  # there is no next one
        of_z.mul_(self.factor)
        self.gradients[0] += left.flatten(0, 2).mT @ of_z.flatten(0, 2)
        of_left = of_z @ table.mT
        of_gates = suffix_sums(here * slope)  # a gate is part of all later sums
        of_raw = of_gates.mul_(gates).addcmul_(of_gates, gates, value=-1)
        if len(self.tensors) == 1:
            return Change(scores=of_raw, q=of_left)
        return self._of_others(of_raw, of_left, left, tile)

    def _of_others(self, of_raw: Tensor, of_left: Tensor, left: Tensor, tile: Tile) -> Change:
        """Gradients of queries and keys that are not the call's."""
        keys = self._keys(tile, slice(0, of_raw.shape[-1]))
        of_left = of_left + by_key_head(of_raw, keys)
        folded = of_raw.reshape(keys.shape[0], -1, of_raw.shape[3]).mT
        of_keys = torch.bmm(folded, left.reshape(keys.shape[0], -1, left.shape[3]))
        where = self.gradients[-1][tile.batch, tile.kv, tile.near : tile.near + of_raw.shape[-1]]
        where.add_(of_keys.view(where.shape))
        if len(self.tensors) < 3:
            return Change(q=of_left)
        tile.add_to(self.gradients[1], of_left * self.scale, slice(tile.start, tile.stop))
        return Change()
