"""Sums of gates over later keys: forget gates and what is written as such.

    s_ij ← s_ij + C_j − C_i,   C_r = Σ gates_l over the keys l after key r

A sum over a long text has digits that its differences do not need and lacks those that they do: float32 sums of 131,072
gates leave an error of 8e-3 in a score near the diagonal. So every form here takes differences of float64 sums, near
the tile or block at hand, and only those are rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.structure.interface import NO_INPUT_GRADIENTS, InputGradients, ScoreMod, Structure, TileContext, Visible
from posenc.structure.tile import Tile

_STEEP = 32.0  # nats that queries of one tile may lie apart before each gets its own differences


@dataclass(eq=False)
class Decay(Structure):
    """s_ij ← s_ij + Σ gates_l over the keys l with j < l ≤ i that query i attends to."""

    gates: Tensor  # (batch | 1, heads, keys), not positive

    # Of a working copy
    sums: Tensor = field(init=False)  # of the gates before reversed key r, float64 (batch | 1, heads, keys + 1)
    softmax: bool = field(init=False)
    per_key: bool = field(init=False)  # whether all queries sum the same gates, so that `sums` serves all of them
    causal: bool = field(init=False)
    seen: Tensor | None = field(init=False)  # bool, which keys' gates count, (batch | 1, heads | 1, keys); None: all
    stated_rows: int = field(init=False)  # rows of the batch that the encoding stated

    description = "forget gates"
    adds_only = True

    def flex_refusal(self, encoding: str, *, ordered: bool, sink: bool) -> str | None:
        if sink:
            return "a sink sees what gates add to all keys of a query, which has no gradient there"
        return None if ordered else "a decay by gates needs the causal order of indices, and no mask per query"

    def score_mod(self, queries: int, keys: int, visible: Visible) -> ScoreMod:
        """C_i − C_j of running sums C; each sum is a pair of floats, whose parts are subtracted one by one."""
        at_queries, rest_at_queries, at_keys, rest_at_keys = gate_sums(self.gates, queries, visible)
        one_row, one_head = at_keys.shape[0] == 1, at_keys.shape[1] == 1

        def term(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            b, h = b * 0 if one_row else b, h * 0 if one_head else h
            rest = rest_at_queries[b, h, i] - rest_at_keys[b, h, j]
            return score + ((at_queries[b, h, i] - at_keys[b, h, j]) + rest)

        return term

    def prepare(self, context: TileContext) -> None:
        super().prepare(context)
        visible = context.visibility
        self.stated_rows = self.gates.shape[0]
        self.seen = visible.mask[:, :, 0] if visible.mask is not None and visible.per_key else None
        if self.seen is not None:  # a hidden key forgets nothing
            self.gates = self.gates * self.seen
        self.gates = self.gates.flip(-1)
        self.softmax, self.causal = context.softmax, visible.causal is True
        # A window ends each query's sum at a place of its own. To softmax that is a number a row, which cancels;
        # without softmax every row has to get its own sum.
        self.per_key = visible.per_key and (context.softmax or visible.window is None)
        self.scans = not self.per_key
        self.sums = F.pad(self.gates.double().cumsum(-1), (1, 0))

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        # The same sum in three ways, cheapest last.
        # 1. Queries see different keys: each row sums the gates of its own visible keys, from the newest on.
        if not self.per_key and mask is not None:
            seen = mask.exp()
            gates = tile.of(self.gates)[:, :, None, tile.near : tile.far] * seen
            scores.add_(gates.cumsum(-1).sub_(gates))
            return seen
        if self.shift(tile) is None:
            # 2. Rows differ by more than float32 holds next to the scores, or their level counts: all differences.
            self._add_differences(scores, tile)
        else:
            # 3. A row's level is nothing to softmax: one number a key, relative to the tile's last query. Rows are then
            # too high by `shift`, which the loop takes off the norm.
            sums = tile.of(self.sums)
            newest = sums.index_select(2, self._own_sum(tile)[-1:])
            scores.add_((sums[:, :, tile.near : tile.far] - newest).to(scores.dtype).unsqueeze(2))
        return None

    def _add_differences(self, scores: Tensor, tile: Tile) -> None:
        """Add all differences of sums at keys and at queries, in place: each in two floats, as large parts cancel."""
        sums = tile.of(self.sums)
        at_queries = sums.index_select(2, self._own_sum(tile))
        newest = at_queries[:, :, -1:]
        keys, queries = sums[:, :, tile.near : tile.far] - newest, at_queries - newest
        # A matrix of float64 would be twice the tile. High parts subtract exactly where they are near, and low parts
        # bring back the digits that rounding the sums to float32 took.
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
        at_queries = (sums - sums[:, :, -1:]).to(self.gates.dtype).unsqueeze(3)
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

    def start_backward(self) -> None:
        # A gate gathers the gradients of all scores behind it, and with them their rounding: in float64.
        self.gradients = {
            "sums": torch.zeros_like(self.sums),
            "gates": torch.zeros_like(self.gates, dtype=torch.float64),
        }

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> InputGradients:
        if isinstance(saved, Tensor):
            older = grad.flip(-1).cumsum(-1).flip(-1).sub_(grad)  # of all keys behind the gate
            gates = older.mul_(saved).sum(2).double()
            tile.add_to(self.gradients["gates"], gates, slice(tile.near, tile.far))
            return NO_INPUT_GRADIENTS
        grad_sums, wide = self.gradients["sums"], grad.double()
        tile.add_to(grad_sums, wide.sum(2), slice(tile.near, tile.far))
        at_queries = wide.new_zeros(*grad.shape[:2], grad_sums.shape[2])
        tile.add_to(grad_sums, at_queries.index_add_(2, self._own_sum(tile), -wide.sum(3)))
        return NO_INPUT_GRADIENTS

    def finish_backward(self) -> dict[str, Tensor]:
        # A gate is part of every sum that comes later in the reversed order.
        later = self.gradients["sums"].flip(-1).cumsum(-1).flip(-1)[..., 1:]
        gates = (self.gradients["gates"] + later).flip(-1)
        gates = gates if self.seen is None else gates * self.seen
        return {"gates": gates.sum(0, keepdim=True) if gates.shape[0] > self.stated_rows else gates}


class GateSums(NamedTuple):
    """Running sums of gates as pairs of float32 (float64 calls: of float64)."""

    at_queries: Tensor  # (batch | 1, heads, queries)
    rest_at_queries: Tensor
    at_keys: Tensor  # (batch | 1, heads, keys)
    rest_at_keys: Tensor


def gate_sums(gates: Tensor, queries: int, visible: Visible) -> GateSums:
    """Sums over each key and all keys of its document before it; for queries, the sum at their own key.

    Hidden keys forget nothing. Documents need not lie in one piece: keys are sorted by document for the sum.
    """
    keys, dtype, sums = gates.shape[-1], gates.dtype, running_sums(gates, visible.mask, visible.segments)
    own_key = torch.arange(keys - queries, keys, device=gates.device).clamp(min=0)
    # Under softmax a number that all keys of a query share has no effect: the sums at queries carry no gradient, and
    # neither does the part of a sum that float32 drops.
    at_queries = sums.detach()[..., own_key]
    near, near_keys = at_queries.to(dtype), sums.to(dtype)
    rest = (at_queries - near).to(dtype), (sums.detach() - near_keys.detach()).to(dtype)
    return GateSums(near, rest[0], near_keys, rest[1])


def running_sums(gates: Tensor, mask: Tensor | None, segments: tuple[Tensor, Tensor] | None) -> Tensor:
    """Sums over each key and all visible keys of its document before it, float64 ``(batch | 1, heads, keys)``.

    Args:
        gates: ``(batch | 1, heads, keys)``.
        mask: ``(batch | 1, heads | 1, 1, keys)`` bool, which keys are visible.
        segments: documents of queries and of keys, ``(batch | 1, keys)``.
    """
    wide = gates.double()
    if mask is not None:
        wide = wide * mask[:, :, 0]
    if segments is None:
        return wide.cumsum(-1)
    order = segments[1].argsort(dim=-1, stable=True).unsqueeze(1)  # (batch | 1, 1, keys)
    wide = wide.expand(max(len(wide), len(order)), -1, -1)
    order = order.expand(len(wide), wide.shape[1], -1)
    return torch.zeros_like(wide).scatter(-1, order, wide.gather(-1, order).cumsum(-1))
