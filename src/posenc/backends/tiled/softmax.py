"""Blocks of queries under softmax: whole rows at a time, since a block has few rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.backends.tiled.gradients import Gradients, Known, descend, weights_gradient
from posenc.backends.tiled.tile import Tile, room
from posenc.backends.tiled.tiled_call import LOG2_E, SMALLEST, Part, TiledCall, add_extra_values, mask_of, scored
from posenc.heads import by_key_head


class Softmax:
    """Weights by softmax; a row that attends to no key gets zeros."""

    tensors: tuple[Tensor, ...] = ()

    def start_backward(self, wide: torch.dtype) -> None:
        """Nothing is learned here."""

    def finish_backward(self) -> list[Tensor]:
        """No gradients."""
        return []

    def forward(self, call: TiledCall, part: Part, tile: Tile) -> tuple[Tensor, Tensor]:
        """The block's results ``(batch, heads, rows, value_dim)``, and log2 of what its weights were divided by."""
        scores, _, _ = scored(call, part, tile, mask_of(call, tile))
        largest = scores.amax(-1, keepdim=True).clamp_(min=torch.finfo(scores.dtype).min / 4).mul_(LOG2_E)
        weights = powers(scores, largest)
        total = weights.sum(-1, keepdim=True)
        unseen = total == 0
        total.masked_fill_(unseen, 1.0)
        factors = call.dropout_factors(tile)
        weights = weights if factors is None else weights.mul_(factors)
        out = by_key_head(weights, part.v[:, tile.near : tile.far])
        add_extra_values(call, out, weights, tile)
        norm = largest + total.log2() - call.shift(tile)
        return out.div_(total), norm.masked_fill_(unseen, math.inf)

    def backward(
        self, call: TiledCall, part: Part, tile: Tile, known: Known, into: Gradients, of_part: tuple[Tensor, Tensor]
    ) -> None:
        """Gather the gradients of a block."""
        of_k, of_v = of_part
        scores, q, saved = scored(call, part, tile, mask_of(call, tile), backward=True)
        weights = powers(scores, known.norm + call.shift(tile))
        of_weights = weights_gradient(call, part, tile, known.grad, weights, of_v)
        if call.q.dtype == call.wide:
            delta = (known.grad * known.out).sum(-1, keepdim=True)
        else:  # results were rounded to half precision
            delta = (of_weights * weights).sum(-1, keepdim=True)
        of_weights.sub_(delta)
        of_scores = torch.mul(of_weights, weights, out=room(weights)) if call.skewed else of_weights.mul_(weights)
        descend(call, part, tile, of_scores, q, saved, into, of_k)


def powers(scores: Tensor, norm: Tensor) -> Tensor:
    """e^scores / 2^norm, in place of the scores.

    In powers of two, as exp is slow far below zero; and without numbers so small that products with them are slow, far
    below what a sum with the largest of a row can show.
    """
    torch.add(norm.neg(), scores, alpha=LOG2_E, out=scores)
    return torch.threshold_(scores, SMALLEST, -math.inf).exp2_()
