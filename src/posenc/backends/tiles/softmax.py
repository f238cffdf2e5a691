"""Blocks of queries under softmax: whole rows at a time, since a block has few rows. Rows without a key get zeros."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.backends.tiles.block import (
    LOG2_E,
    SMALLEST,
    BlockOutput,
    Gradients,
    HeadSlice,
    TiledCall,
    add_extra_values,
    descend,
    mask_of,
    scored,
    weights_gradient,
)
from posenc.heads import by_key_head
from posenc.structure.tile import Tile, with_zero_tail


def forward(call: TiledCall, heads: HeadSlice, tile: Tile) -> tuple[Tensor, Tensor]:
    """The block's results ``(batch, heads, rows, value_dim)``, and log2 of what its weights were divided by."""
    scores, _, _ = scored(call, heads, tile, mask_of(call, tile))
    largest = scores.amax(-1, keepdim=True).clamp_(min=torch.finfo(scores.dtype).min / 4).mul_(LOG2_E)
    weights = powers(scores, largest)
    total = weights.sum(-1, keepdim=True)
    unseen = total == 0
    total.masked_fill_(unseen, 1.0)
    factors = call.dropout_factors(tile)
    weights = weights if factors is None else weights.mul_(factors)
    out = by_key_head(weights, heads.v[:, tile.near : tile.far])
    add_extra_values(call, out, weights, tile)
    # Scores of a decay are relative to the tile; the norm is not, as a sink is joined to it and the backward pass may
    # cut its tiles otherwise.
    norm = largest + total.log2() - call.shift(tile)
    return out.div_(total), norm.masked_fill_(unseen, math.inf)


def backward(
    call: TiledCall,
    heads: HeadSlice,
    tile: Tile,
    known: BlockOutput,
    into: Gradients,
    grad_kv: tuple[Tensor, Tensor],
) -> None:
    """Gather the gradients of a block."""
    grad_k, grad_v = grad_kv
    scores, q, saved = scored(call, heads, tile, mask_of(call, tile), backward=True)
    weights = powers(scores, known.norm + call.shift(tile))
    grad_weights = weights_gradient(call, heads, tile, known.grad, weights, grad_v)
    if call.q.dtype == call.dtype:
        mean = (known.grad * known.out).sum(-1, keepdim=True)
    else:  # results were rounded to half precision: their error would be in every gradient of the row
        mean = (grad_weights * weights).sum(-1, keepdim=True)
    grad_weights.sub_(mean)
    if call.skewed:
        grad_scores = torch.mul(grad_weights, weights, out=with_zero_tail(weights))
    else:
        grad_scores = grad_weights.mul_(weights)
    descend(call, heads, tile, grad_scores, q, saved, into, grad_k)


def powers(scores: Tensor, norm: Tensor) -> Tensor:
    """e^scores / 2^norm, in place of the scores.

    In powers of two, as exp is slow far below zero; and without numbers so small that products with them are slow, far
    below what a sum with the largest of a row can show.
    """
    torch.add(norm.neg(), scores, alpha=LOG2_E, out=scores)
    return torch.threshold_(scores, SMALLEST, -math.inf).exp2_()
