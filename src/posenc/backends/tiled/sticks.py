"""Blocks of queries under stick-breaking: a range of keys at a time, carrying on what is left of each stick.

Logarithms are to base two, because exp2 has no slow range where exp has one. Once what is left in every row of a block
is below the rounding of the weights so far, or below a tolerance, older keys are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.backends.tiled.gradients import Gradients, Known, descend, weights_gradient
from posenc.backends.tiled.tile import Tile, room, suffix_sums
from posenc.backends.tiled.tiled_call import LOG2_E, SMALLEST, Part, Saved, TiledCall, add_extra_values, mask_of, scored
from posenc.heads import by_key_head

FIRST, STRETCH = 128, 1024  # keys before the first look at what is left, and at most between two looks


Remainder = Literal["drop", "own", "vector"]


class KeyRange(NamedTuple):
    """What the backward pass needs of one range of keys."""

    tile: Tile
    weights: Tensor
    beta: Tensor
    q: Tensor
    saved: Saved


class Sticks:
    """Stick-breaking weights; see `posenc.structure.Sticks`.

    Args:
        tensors: the vector ``(heads, value_dim)``, if there is one.
        attend_current, remainder: as in the structure.
        tolerance: weight of a row that may be left out.
    """

    def __init__(
        self,
        *tensors: Tensor,
        attend_current: bool,
        remainder: Remainder,
        tolerance: float,
    ) -> None:
        self.tensors = tensors
        self.gradients: list[Tensor] = []
        self.attend_current, self.remainder = attend_current, remainder
        self.enough = -math.log2(tolerance)

    def start_backward(self, wide: torch.dtype) -> None:
        """Room for the vector's gradient."""
        self.gradients = [torch.zeros(t.shape, dtype=wide, device=t.device) for t in self.tensors]

    def finish_backward(self) -> list[Tensor]:
        """The vector's gradient, if there is one."""
        return self.gradients

    def forward(self, call: TiledCall, part: Part, tile: Tile) -> tuple[Tensor, Tensor]:
        """The block's results, ``(batch, heads, rows, value_dim)``, and −log2 of what is left of the sticks."""
        out: Tensor | None = None
        used: Tensor | None = None
        for piece in self._stretches(call, tile):
            mask = mask_of(call, piece)
            scores, _, _ = scored(call, part, piece, mask)
            weights, used, _ = self._weights(scores, used, piece, keep=False)
            factors = call.dropout_factors(piece)
            weights = weights if factors is None else weights.mul_(factors)
            read = by_key_head(weights, part.v[:, piece.near : piece.far])
            out = read if out is None else out.add_(read)
            add_extra_values(call, out, weights, piece)
            if self._spent(used):
                break
        assert out is not None
        assert used is not None
        return self.with_remainder(call, tile, out, used, lambda: part.v), used

    def weights_of_row(self, scores: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
        """Weights of all keys at once, in place of their scores, and −log2 of what is left of the sticks."""
        weights, used, _ = self._weights(scores, None, tile, keep=False)
        return weights, used

    def with_remainder(self, call: TiledCall, tile: Tile, out: Tensor, used: Tensor, v: Callable[[], Tensor]) -> Tensor:
        """``out``, changed in place, plus the remainder of the sticks times the value that receives it.

        Args:
            v: gives the reversed values, ``(batch · num_kv_heads, keys, value_dim)``, if they are needed.
        """
        left = self._left(call, tile, used)
        return out if left is None else out.add_(left * self._receivers(call, tile, v))

    def backward(
        self, call: TiledCall, part: Part, tile: Tile, known: Known, into: Gradients, of_part: tuple[Tensor, Tensor]
    ) -> None:
        """Gather the gradients of a block: from the newest to the oldest key, and back."""
        grad = known.grad
        done, used = self._again(call, part, tile)
        of_k, of_v = of_part
        behind: Tensor | None = None
        left = self._left(call, tile, used)
        if left is not None:
            receivers = self._receivers(call, tile, lambda: part.v)
            behind = left * (grad * receivers).sum(-1, keepdim=True)  # log of what is left: −Σ softplus(score)
            self._receive(call, tile, grad * left, of_v)
        for piece, weights, beta, q, saved in reversed(done):
            of_weights = weights_gradient(call, part, piece, grad, weights, of_v)
            of_logs = of_weights.mul_(weights)
            sums = suffix_sums(of_logs)
            sums = sums if behind is None else sums.add_(behind)
            behind = sums[..., :1].clone()
            target = room(of_logs) if call.skewed else of_logs
            of_scores = torch.addcmul(of_logs, sums, beta, value=-1, out=target)
            descend(call, part, piece, of_scores, q, saved, into, of_k)

    def _again(self, call: TiledCall, part: Part, tile: Tile) -> tuple[list[KeyRange], Tensor]:
        """The forward pass of a block, kept."""
        done: list[KeyRange] = []
        used: Tensor | None = None
        for piece in self._stretches(call, tile):
            scores, q, saved = scored(call, part, piece, mask_of(call, piece), backward=True)
            weights, used, beta = self._weights(scores, used, piece, keep=True)
            assert beta is not None
            done.append(KeyRange(piece, weights, beta, q, saved))
            if self._spent(used):
                break
        assert used is not None
        return done, used

    def _stretches(self, call: TiledCall, tile: Tile) -> list[Tile]:
        """A block's keys from the newest on; in one piece where some term's own sums run over all of them."""
        if any(term.scans for term in call.terms):
            return [tile]
        ranges, near, size = [], tile.near, FIRST
        while near < tile.far:
            ranges.append(tile._replace(near=near, far=min(near + size, tile.far)))
            near, size = near + size, min(2 * size, STRETCH)
        return ranges

    def _spent(self, used: Tensor) -> bool:
        """Whether all rows have given away what counts of their sticks."""
        return bool((used > self.enough).all())

    def _weights(
        self, scores: Tensor, used: Tensor | None, tile: Tile, *, keep: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Weights of a range of keys, in place of their scores; −log2 of what is left behind them; betas if kept."""
        if not self.attend_current:
            _hide_own(scores, tile)
        beta = scores.sigmoid() if keep else None
        taken = _softplus2(scores.mul_(LOG2_E))
        scores.sub_(taken)  # log2 of the betas, exact, before large sums come in
        total = taken.cumsum(-1)
        if used is not None:
            total.add_(used)
            scores[..., :1].sub_(used)
        scores[..., 1:].sub_(total[..., :-1])
        weights = torch.threshold_(scores, SMALLEST, -math.inf).exp2_()
        return weights, total[..., -1:].clone(), beta

    def _left(self, call: TiledCall, tile: Tile, used: Tensor) -> Tensor | None:
        """What is left of the sticks and given to somebody, ``(batch, heads, rows, 1)``."""
        if self.remainder == "drop":
            return None
        left = (-used).exp2()
        own_key = _own_key(tile, left.device)
        dropped = call.dropout_factors(tile, own_key) if self.remainder == "own" else None  # a weight of the own key
        left = left if dropped is None else left.mul_(dropped)
        if call.visibility.order_only and call.visibility.window is None and tile.queries <= tile.keys:
            return left
        seen = tile.of(call.visibility.rows(tile.start, tile.stop, tile.queries, tile.keys))
        if self.remainder == "vector":
            return left * seen.any(-1, keepdim=True)
        return left * seen.gather(-1, own_key.clamp(min=0).expand(*seen.shape[:3], 1)) * (own_key >= 0)

    def _receivers(self, call: TiledCall, tile: Tile, reversed_values: Callable[[], Tensor]) -> Tensor:
        """What the remainder is given to: the own value, or the head's vector."""
        if self.remainder == "vector":
            return self.tensors[0][tile.heads].to(call.wide).unsqueeze(1)
        v = reversed_values()
        own_key = (tile.keys - 1 - _own_key(tile, v.device))[:, 0].clamp(max=tile.keys - 1)
        heads = tile.heads.stop - tile.heads.start
        values = v.index_select(1, own_key) + sum(term.own_values() for term in call.terms)
        return values.repeat_interleave(call.q.shape[1] // call.k.shape[1], 0).view(-1, heads, *values.shape[1:])

    def _receive(self, call: TiledCall, tile: Tile, grad: Tensor, of_v: Tensor) -> None:
        """The gradient of the receivers."""
        if self.remainder == "vector":
            self.gradients[0][tile.heads] += grad.sum((0, 2))
        else:
            own_key = (tile.keys - 1 - _own_key(tile, grad.device))[:, 0].clamp(max=tile.keys - 1)
            of_v.index_add_(1, own_key, grad.reshape(of_v.shape[0], -1, *grad.shape[2:]).sum(1))
            for term in call.terms:
                term.own_values_gradient(grad.sum((0, 1, 2)))


def _own_key(tile: Tile, device: torch.device) -> Tensor:
    """The index of each query's own key in the order of the sequence, ``(rows, 1)``; negative: before the first."""
    return torch.arange(tile.start, tile.stop, device=device)[:, None] + (tile.keys - tile.queries)


def _hide_own(scores: Tensor, tile: Tile) -> None:
    """−inf at each query's own key."""
    first = -tile.offset  # column of query 0's own key; query c's lies c columns before
    low, high = max(0, first - tile.columns + 1), min(tile.rows, first + 1)
    if high > low:
        rows = torch.arange(low, high, device=scores.device)
        scores[..., rows, first - rows] = -torch.inf


def _softplus2(x: Tensor) -> Tensor:
    """log2(1 + 2^x), exact for small and for large x."""
    if bool(x.amax() < 60):  # then 2^x is finite in every precision, and log1p costs half of softplus
        return x.exp2().log1p_().mul_(LOG2_E)
    return F.softplus(x, beta=math.log(2.0), threshold=60.0)
