"""Pruning: keys whose weight is below rounding, under a bias or forget gates that decay with distance, are skipped.

The idea: where all that is added to the logits is known by distance, a bound on the dot products says how far a query
can attend at all. By Cauchy and Schwarz a logit exceeds the query's own key's logit by at most

    excess_i = |q_i| · max|k| · scale − scale · q_i·k_i

A key whose bias is lower than the bias at distance 0 by excess_i + log(keys) + margin has, together with all keys like
it, less than e^−margin of the row's weight; the margin is −log(tolerance).

The invariant: the result differs from the result over all keys by less than the rounding of the dtype (or by the
caller's ``tolerance``), whatever queries and keys are. A logit that is NaN or infinite is never pruned. Bounds hold for
whole blocks of keys and of queries, so tiles only shrink; no mask is needed.

Measured: pruning also keeps weights out of the range near 1e-38, where float32's exp is 12 to 31 times slower on CPU.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.context import softcapped
from posenc.dtypes import float32_or_better
from posenc.structure import Decay, Row
from posenc.structure.tile import Tile

BLOCK = 256  # bounds by distance are rounded to so many tokens


class PruneBounds:
    """Bounds of one call, whose only terms are a function of the distance, forget gates, or both.

    Args:
        row, decay: the terms; not both None.
        q, k: of the call, queries being the last of the keys.
        scale: of their products.
        tolerance: weight of a row that may be left out.
        softcap: of the products.
    """

    def __init__(
        self,
        row: Row | None,
        decay: Decay | None,
        q: Tensor,
        k: Tensor,
        scale: float,
        tolerance: float,
        softcap: float | None = None,
    ) -> None:
        queries, keys = q.shape[2], k.shape[2]
        margin = math.log(keys) - math.log(tolerance)
        self.excess = _excess(q, k, scale, softcap) + margin  # (batch, heads, queries)
        self.row: Tensor | None = None
        self.decay = decay
        if row is not None:
            self._bound(row.values, queries)
        if decay is not None:
            self._bound_sums(decay, queries, keys)

    def _bound(self, row: Tensor, queries: int) -> None:
        """Entries low … high − 1 of the row matter, head by head."""
        floor = row[:, queries - 1] - self.excess.amax((0, 2))
        matters = ~(row < floor.unsqueeze(-1))  # also where a score is NaN or infinite
        self.row = row.masked_fill(~matters, -math.inf)
        index = torch.arange(row.shape[-1], device=row.device)
        self.low = (index.where(matters, row.shape[-1]).amin(-1) // BLOCK * BLOCK).tolist()
        high = (index.where(matters, 0).amax(-1) // BLOCK + 1) * BLOCK
        self.high = high.clamp(max=row.shape[-1]).tolist()

    def _bound_sums(self, decay: Decay, queries: int, keys: int) -> None:
        """Sums of gates below the floor of a query matter no more."""
        at_queries = decay.sums[:, :, : keys + 1].flip(2)[:, :, keys + 1 - queries :]  # before each query's own key
        span = self.excess.new_zeros(1)
        if self.row is not None:  # by how much a far key may be favoured
            span = (self.row.amax(-1) - self.row[:, queries - 1]).clamp(min=0)
        self.floor = at_queries - (self.excess + span.unsqueeze(-1)).double()
        self.rising = decay.sums[..., :keys].neg().contiguous()  # as a search wants them

    def within(self, tile: Tile) -> Tile:
        """The tile without keys that have no weight."""
        near, far = tile.near, tile.far
        if self.row is not None:
            heads = slice(None) if len(self.low) == 1 else tile.heads
            near = max(near, min(self.low[heads]) - tile.stop + 1)
            far = min(far, max(self.high[heads]) - tile.start)
        if self.decay is not None:
            floor = self.floor[tile.batch, tile.heads, tile.start : tile.stop].amin(-1, keepdim=True)
            rising = tile.of(self.rising).expand(*floor.shape[:2], -1).contiguous()
            kept = torch.searchsorted(rising, -floor.contiguous(), right=True).amax()
            far = min(far, int(kept))
        return tile._replace(near=near, far=max(far, near + 1))

    def head_groups(self, num_kv_heads: int, group: int) -> list[tuple[int, int]]:
        """Neighbouring key heads whose rows reach equally far."""
        if self.row is None or len(self.low) == 1:
            return [(0, num_kv_heads)]
        ends = [
            (min(self.low[h * group : (h + 1) * group]), max(self.high[h * group : (h + 1) * group]))
            for h in range(num_kv_heads)
        ]
        starts = [h for h in range(num_kv_heads) if h == 0 or ends[h] != ends[h - 1]]
        return list(zip(starts, [*starts[1:], num_kv_heads], strict=True))


def _excess(q: Tensor, k: Tensor, scale: float, softcap: float | None) -> Tensor:
    """By how much a score can exceed the query's own key's score, ``(batch, heads, queries)``; head by head."""
    queries, keys, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    wide = float32_or_better(q.dtype)
    largest = k.norm(dim=-1, dtype=wide).amax(2).repeat_interleave(group, 1) * abs(scale)
    excess: Tensor = softcapped(q.norm(dim=-1, dtype=wide).mul_(largest.unsqueeze(-1)), softcap)
    for head in range(q.shape[1]):
        own_k = k[:, head // group, keys - queries :].to(wide)
        excess[:, head].sub_(softcapped((q[:, head].to(wide) * own_k).sum(-1) * scale, softcap))
    return excess
