"""A small relu network of one number per query and key: FIRE.

The idea: over the range of numbers in a tile, most units are zero or linear. The linear ones together are one straight
line; only the units whose kink lies inside the range are computed, and one product adds all of them to the scores. The
result is exact, because relu is piecewise linear.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.backends.tiled.terms import NOTHING, Change, Term, TermContext
from posenc.backends.tiled.tile import Tile, by_distance, diagonals, room
from posenc.backends.tiled.tiled_call import LONG

FEATURES = 1 << 22  # numbers of features at a time


class Units(NamedTuple):
    """The units of a network on the numbers of one tile."""

    straight: Tensor  # bool (units,)
    bending: Tensor  # indices of the units with a kink inside the range
    coefficients: Tensor  # (heads, 2 + units that bend): of one, of x, of each of these
    features: Tensor | None = None  # of the whole tile, if that is small enough


class Network(Term):
    """See `posenc.structure.Network`: by_distance, by_query, inner, inner_bias, outer, outer_bias."""

    shares_features = True

    @classmethod
    def build(cls, tensors: dict[str, Tensor], context: TermContext) -> Network:
        return cls(*tensors.values())

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        units = self._units(tile)
        for columns in self._stretches(units, tile):
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
        _, _, inner, inner_bias, outer, outer_bias = self.tensors
        first = tile.offset + tile.queries - 1
        factors = self.tensors[0][first : first + tile.rows + tile.columns - 1], self.tensors[1][tile.start : tile.stop]
        of_distances, of_queries = (torch.stack(factor.aminmax()) for factor in factors)
        ends = torch.outer(of_distances, of_queries)  # x lies between them
        ends = ends.view(-1, 1) * inner + inner_bias
        straight, dead = (ends >= 0).all(0), (ends <= 0).all(0)
        bending = (~(straight | dead)).nonzero()[:, 0]
        line = outer[tile.heads] * straight
        line = torch.stack([outer_bias[tile.heads] + line @ inner_bias, line @ inner], 1)
        return Units(straight, bending, torch.cat([line, outer[tile.heads][:, bending]], 1))

    def _stretches(self, units: Units, tile: Tile) -> Iterator[slice]:
        """Columns of the tile, so many at a time that their features take little room."""
        room = FEATURES if tile.keys <= LONG else FEATURES // 2
        step = max(1, room // ((2 + len(units.bending)) * tile.rows))
        for first in range(0, tile.columns, step):
            yield slice(first, min(first + step, tile.columns))

    def _x(self, tile: Tile, columns: slice) -> Tensor:
        """The network's input, ``(rows, columns)``."""
        by_distance, by_query = self.tensors[:2]
        near = diagonals(by_distance[None], tile)[0, :, columns]
        return near * by_query[tile.start : tile.stop, None]

    def _features(self, x: Tensor, units: Units) -> Tensor:
        """One, x and the units that bend, ``(features, rows · columns)``."""
        inner, inner_bias = self.tensors[2][units.bending], self.tensors[3][units.bending]
        features = x.new_empty(2 + len(units.bending), x.numel())
        features[0], features[1] = 1.0, x.reshape(-1)
        torch.outer(inner, features[1], out=features[2:])
        features[2:].add_(inner_bias[:, None]).clamp_(min=0)
        return features

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> Change:
        assert isinstance(saved, Units)
        of_x = grad.new_empty(tile.rows, tile.columns)
        for columns in self._stretches(saved, tile):
            features = self._features(self._x(tile, columns), saved) if saved.features is None else saved.features
            flat = grad[..., columns].sum(0).reshape(grad.shape[1], -1)
            of_x[:, columns] = self._of_stretch(flat, features, saved, tile).view(tile.rows, -1)
        of_distance, of_query = self.gradients[:2]
        by_query = self.tensors[1][tile.start : tile.stop, None]
        near = diagonals(self.tensors[0][None], tile)[0]
        of_query[tile.start : tile.stop] += (of_x * near).sum(1)
        scaled = torch.mul(of_x, by_query, out=room(of_x))
        sums = by_distance(scaled, tile.rows + tile.columns - 1).sum(0)
        first = tile.offset + tile.queries - 1
        of_distance[first : first + len(sums)] += sums
        return NOTHING

    def _of_stretch(self, flat: Tensor, features: Tensor, units: Units, tile: Tile) -> Tensor:
        """Gather the network's gradients from score gradients ``(heads, numbers)``; returns the gradient of x."""
        _, _, inner, inner_bias, outer, _ = self.tensors
        _, _, of_inner, of_inner_bias, of_outer, of_outer_bias = self.gradients
        straight, bending, heads, of_heads = units.straight, units.bending, tile.heads, outer[tile.heads]
        by_feature = flat @ features.mT
        ones, xs = by_feature[:, 0], by_feature[:, 1]
        of_outer_bias[heads] += ones
        of_outer[heads] += straight * (torch.outer(xs, inner) + torch.outer(ones, inner_bias))
        of_outer[heads, bending] += by_feature[:, 2:]
        of_inner += straight * (xs @ of_heads)
        of_inner_bias += straight * (ones @ of_heads)
        of_units = (of_heads[:, bending].mT @ flat).mul_(features[2:] > 0)
        of_inner[bending] += of_units @ features[1]
        of_inner_bias[bending] += of_units.sum(1)
        return ((of_heads * straight) @ inner) @ flat + inner[bending] @ of_units
