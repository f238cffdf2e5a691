"""A small relu network of one number per query and key: FIRE.

The idea: over the range of numbers in a tile, most units are zero or linear. The linear ones together are one straight
line; only the units whose kink lies inside the range are computed, and one product adds all of them to the scores. The
result is exact, because relu is piecewise linear.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.dtypes import precision
from posenc.structure.interface import NO_INPUT_GRADIENTS, InputGradients, ScoreMod, Structure, Visible
from posenc.structure.tile import LONG, Tile, skew_view, toeplitz_view, with_zero_tail

FEATURES = 1 << 22  # numbers of features at a time


class Units(NamedTuple):
    """The units of a network on the numbers of one tile."""

    straight: Tensor  # bool (units,)
    bending: Tensor  # indices of the units with a kink inside the range
    coefficients: Tensor  # (heads, 2 + units that bend): of one, of x, of each of these
    features: Tensor | None = None  # of the whole tile, if that is small enough


class DistanceNetwork(NamedTuple):
    """The same of positions that are indices, in its own parameters, of any floating dtype: x_ij = psi(n) · r_i,

    psi(n) = log(1 + |c · n|),  r_i = 1 / (psi(max(position_i, |multiplier · threshold|)) + epsilon).
    """

    c: Tensor  # (1,)
    multiplier: Tensor  # (1,)
    inner: Tensor  # (units,)
    inner_bias: Tensor  # (units,)
    outer: Tensor  # (heads, units)
    outer_bias: Tensor  # (heads,)
    threshold: float
    epsilon: float
    leak: float  # slope of the units below 0

    def of_lengths(self, queries: int, keys: int, *, like: Tensor) -> Network:
        """The numbers of each distance and of each query, on the device of ``like``."""
        dtype = precision(like, self.c)
        apart = torch.arange(queries + keys - 1, device=like.device) - (queries - 1)
        own_key = torch.arange(keys - queries, keys, device=like.device).to(dtype)
        limit = (self.multiplier.to(dtype) * self.threshold).abs()
        # the input is a quotient of a number a distance and a number a query, which is what a tile exploits
        by_query = 1 / (self._psi(torch.maximum(own_key, limit)) + self.epsilon)
        inner, inner_bias, outer, outer_bias = (layer.to(dtype) for layer in self[2:6])
        if self.leak:  # what leaks through a unit is a second one, turned round
            inner, inner_bias = torch.cat([inner, -inner]), torch.cat([inner_bias, -inner_bias])
            outer = torch.cat([outer, -self.leak * outer], 1)
        return Network(self._psi(apart.abs().to(dtype)), by_query, inner, inner_bias, outer, outer_bias)

    def _psi(self, tokens: Tensor) -> Tensor:
        return torch.log1p((self.c.to(tokens.dtype) * tokens).abs())


@dataclass(eq=False)
class Network(Structure):
    """s_ij ← s_ij + outer_h · relu(inner · x_ij + inner_bias) + outer_bias_h,  x_ij = by_distance_n · by_query_i."""

    by_distance: Tensor  # (queries + keys − 1,), at n = −(queries − 1) … keys − 1
    by_query: Tensor  # (queries,)
    inner: Tensor  # (units,)
    inner_bias: Tensor  # (units,)
    outer: Tensor  # (heads, units)
    outer_bias: Tensor  # (heads,)

    description = "a network of the distance"
    shares_features = True

    def score_mod(self, queries: int, keys: int, visible: Visible) -> ScoreMod:
        """The sum over the units written out: a compiler cannot lower a reduction inside a score_mod."""
        tensors = self.by_distance, self.by_query, self.inner, self.inner_bias, self.outer, self.outer_bias
        by_distance, by_query, inner, inner_bias, outer, outer_bias = (t.detach() for t in tensors)
        shift = torch.full((), keys - 1, device=by_query.device)
        units = inner.shape[0]

        def term(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            x = by_distance[i - j + shift] * by_query[i]
            total = outer_bias[h]
            for unit in range(units):
                total = total + outer[h, unit] * (inner[unit] * x + inner_bias[unit]).relu()
            return score + total

        return term

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        units = self._units(tile)
        for columns in self._column_ranges(units, tile):
            features = self._features(self._x(tile, columns), units)
            all_columns = columns.stop - columns.start == tile.columns
            for row in scores:  # the same for all rows of the batch
                if all_columns:
                    units = units._replace(features=features)
                    row.view(row.shape[0], -1).addmm_(units.coefficients, features)
                else:
                    row[..., columns].add_((units.coefficients @ features).view(row.shape[0], tile.rows, -1))
        return units

    def _units(self, tile: Tile) -> Units:
        """Which units bend, and what the others add up to."""
        inner, inner_bias, outer = self.inner, self.inner_bias, self.outer[tile.heads]
        first = tile.offset + tile.queries - 1
        factors = self.by_distance[first : first + tile.rows + tile.columns - 1], self.by_query[tile.start : tile.stop]
        # x is a product of two numbers that each lie in a range, so that it lies between the products of their ends; a
        # unit is linear in x before its relu. Its values at these four ends therefore bound it over the whole tile.
        distance_ends, query_ends = (torch.stack(factor.aminmax()) for factor in factors)
        ends = torch.outer(distance_ends, query_ends).view(-1, 1) * inner + inner_bias
        straight, dead = (ends >= 0).all(0), (ends <= 0).all(0)
        bending = (~(straight | dead)).nonzero()[:, 0]
        line = outer * straight
        line = torch.stack([self.outer_bias[tile.heads] + line @ inner_bias, line @ inner], 1)
        return Units(straight, bending, torch.cat([line, outer[:, bending]], 1))

    def _column_ranges(self, units: Units, tile: Tile) -> Iterator[slice]:
        """Columns of the tile, so many at a time that their features take little memory."""
        most = FEATURES if tile.keys <= LONG else FEATURES // 2
        step = max(1, most // ((2 + len(units.bending)) * tile.rows))
        for first in range(0, tile.columns, step):
            yield slice(first, min(first + step, tile.columns))

    def _x(self, tile: Tile, columns: slice) -> Tensor:
        """The network's input, ``(rows, columns)``."""
        by_distance = toeplitz_view(self.by_distance[None], tile)[0, :, columns]
        return by_distance * self.by_query[tile.start : tile.stop, None]

    def _features(self, x: Tensor, units: Units) -> Tensor:
        """One, x and the units that bend, ``(features, rows · columns)``."""
        inner, inner_bias = self.inner[units.bending], self.inner_bias[units.bending]
        features = x.new_empty(2 + len(units.bending), x.numel())
        features[0], features[1] = 1.0, x.reshape(-1)
        # a product of width 2 instead of an outer one and a sum: one pass over the features less
        torch.mm(torch.stack([inner_bias, inner], 1), features[:2], out=features[2:]).clamp_(min=0)
        return features

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> InputGradients:
        assert isinstance(saved, Units)
        grad_x = grad.new_empty(tile.rows, tile.columns)
        for columns in self._column_ranges(saved, tile):
            features = self._features(self._x(tile, columns), saved) if saved.features is None else saved.features
            flat = grad[..., columns].sum(0).reshape(grad.shape[1], -1)
            grad_x[:, columns] = self._network_gradient(flat, features, saved, tile).view(tile.rows, -1)
        by_query = self.by_query[tile.start : tile.stop, None]
        by_distance = toeplitz_view(self.by_distance[None], tile)[0]
        self.gradients["by_query"][tile.start : tile.stop] += (grad_x * by_distance).sum(1)
        scaled = torch.mul(grad_x, by_query, out=with_zero_tail(grad_x))
        sums = skew_view(scaled, tile.rows + tile.columns - 1).sum(0)
        first = tile.offset + tile.queries - 1
        self.gradients["by_distance"][first : first + len(sums)] += sums
        return NO_INPUT_GRADIENTS

    def _network_gradient(self, flat: Tensor, features: Tensor, units: Units, tile: Tile) -> Tensor:
        """Gather the network's gradients from score gradients ``(heads, numbers)``; returns the gradient of x."""
        inner, inner_bias, outer, heads = self.inner, self.inner_bias, self.outer[tile.heads], tile.heads
        totals, straight, bending = self.gradients, units.straight, units.bending
        by_feature = flat @ features.mT
        ones, xs = by_feature[:, 0], by_feature[:, 1]
        totals["outer_bias"][heads] += ones
        totals["outer"][heads] += straight * (torch.outer(xs, inner) + torch.outer(ones, inner_bias))
        totals["outer"][heads, bending] += by_feature[:, 2:]
        totals["inner"] += straight * (xs @ outer)
        totals["inner_bias"] += straight * (ones @ outer)
        grad_units = (outer[:, bending].mT @ flat).mul_(features[2:] > 0)
        totals["inner"][bending] += grad_units @ features[1]
        totals["inner_bias"][bending] += grad_units.sum(1)
        return ((outer * straight) @ inner) @ flat + inner[bending] @ grad_units
