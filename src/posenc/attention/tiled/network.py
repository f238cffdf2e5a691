"""A small network of one number for each query and key, by the few of its units that bend: FIRE.

On the numbers that a tile holds, most units are zero or straight. Together these are one straight line; only units that
bend inside are computed, and one product adds all to the scores. Exact, as relu is.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.attention.tiled.terms import NOTHING, Change, Term
from posenc.attention.tiled.tile import Tile, by_distance, diagonals, room


class Made(NamedTuple):
    """What a tile's inputs became."""

    x: Tensor  # (rows · columns,)
    features: Tensor  # (1 + x + units that bend, rows · columns)
    straight: Tensor  # bool (units,)
    bent: Tensor  # indices (units that bend,)


class Network(Term):
    """See `posenc.structure.Network`: by_distance, by_query, inner, inner_bias, outer, outer_bias."""

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        by_distance, by_query, inner, inner_bias, outer, outer_bias = self.tensors
        x = diagonals(by_distance[None], tile)[0] * by_query[tile.start : tile.stop, None]
        x = x.reshape(-1)
        ends = torch.stack([x.amin(), x.amax()])[:, None] * inner + inner_bias
        straight, dead = (ends >= 0).all(0), (ends <= 0).all(0)
        bent = (~(straight | dead)).nonzero()[:, 0]
        features = x.new_empty(2 + len(bent), x.numel())
        features[0], features[1] = 1.0, x
        torch.outer(inner[bent], x, out=features[2:])
        features[2:].add_(inner_bias[bent, None]).clamp_(min=0)
        of_heads = outer[tile.heads]
        line = of_heads * straight
        coefficients = torch.cat(
            [(outer_bias[tile.heads] + line @ inner_bias)[:, None], (line @ inner)[:, None], of_heads[:, bent]], 1
        )
        for row in scores:  # the same for all rows of the batch
            row.view(row.shape[0], -1).addmm_(coefficients, features)
        return Made(x, features, straight, bent)

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, kept: object) -> Change:
        assert isinstance(kept, Made)
        _, by_query, inner, inner_bias, outer, _ = self.tensors
        of_distance, of_query, of_inner, of_inner_bias, of_outer, of_outer_bias = self.gradients
        x, features, straight, bent = kept
        heads, of_heads = tile.heads, outer[tile.heads]
        flat = grad.sum(0).reshape(of_heads.shape[0], -1)
        by_feature = flat @ features.mT  # (heads, features)
        ones, xs = by_feature[:, 0], by_feature[:, 1]
        of_outer_bias[heads] += ones
        of_outer[heads] += straight * (torch.outer(xs, inner) + torch.outer(ones, inner_bias))
        of_outer[heads, bent] += by_feature[:, 2:]
        of_inner += straight * (xs @ of_heads)
        of_inner_bias += straight * (ones @ of_heads)
        of_units = (of_heads[:, bent].mT @ flat).mul_(features[2:] > 0)
        of_inner[bent] += of_units @ x
        of_inner_bias[bent] += of_units.sum(1)
        of_x = ((of_heads * straight) @ inner) @ flat + inner[bent] @ of_units
        of_x = of_x.view(tile.rows, tile.columns)
        first = tile.offset + tile.queries - 1
        near = diagonals(self.tensors[0][None], tile)[0]
        of_query[tile.start : tile.stop] += (of_x * near).sum(1)
        turned = torch.mul(of_x, by_query[tile.start : tile.stop, None], out=room(of_x))
        sums = by_distance(turned, tile.rows + tile.columns - 1).sum(0)
        of_distance[first : first + len(sums)] += sums
        return NOTHING
