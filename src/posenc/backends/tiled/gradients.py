"""Backpropagation through a tile: from its results to its weights, scores, terms, queries, keys and values."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.backends.tiled.tile import Tile, room
from posenc.backends.tiled.tiled_call import Part, Saved, TiledCall
from posenc.heads import by_key_head


def extra_values_gradient(call: TiledCall, of_weights: Tensor, grad: Tensor, weights: Tensor, tile: Tile) -> None:
    """The gradients of `add_extra_values`: the gradient of the weights is added in place."""
    readers = [term for term in call.terms if term.reads_values]
    if readers:
        weights = room(weights).copy_(weights)
    for term in readers:
        term.output_gradient(of_weights, grad, weights, tile)


def weights_gradient(call: TiledCall, part: Part, tile: Tile, grad: Tensor, weights: Tensor, of_v: Tensor) -> Tensor:
    """The gradient of a tile's weights before their dropout; gradients of the values are gathered.

    Args:
        grad: of the results, ``(batch, heads, rows, value_dim)``.
        weights: ``(batch, heads, rows, columns)``, before their dropout.
        of_v: gradients of the part's reversed values, changed in place.
    """
    factors, seen = call.dropout_factors(tile), slice(tile.near, tile.far)
    dropped = weights if factors is None else weights * factors
    add_transposed(of_v[:, seen], dropped, grad)
    of_weights = by_key_head(grad, part.v_t[..., seen])
    extra_values_gradient(call, of_weights, grad, dropped, tile)
    return of_weights if factors is None else of_weights.mul_(factors)


class Known(NamedTuple):
    """What the backward pass knows of a block of queries."""

    grad: Tensor  # of its results, (batch, heads, rows, value_dim)
    out: Tensor  # its results
    norm: Tensor  # what `forward` returned with them, (batch, heads, rows, 1)


class Gradients:
    """Where the gradients of q, k and v are gathered; a part's keys and values in reversed order."""

    def __init__(self, call: TiledCall) -> None:
        self.q, self.k, self.v = (
            torch.zeros(t.shape, dtype=call.wide, device=t.device) for t in (call.q, call.k, call.v)
        )

    def of_part(self, part: Part) -> tuple[Tensor, Tensor]:
        """Room for the gradients of a part's reversed keys and values."""
        return torch.zeros_like(part.k), torch.zeros_like(part.v)

    def close(self, part: Part, of_k: Tensor, of_v: Tensor) -> None:
        """A part is done: its keys' and values' gradients back in the order of the sequence."""
        for total, of_part in ((self.k, of_k), (self.v, of_v)):
            where = total[part.batch, part.kv]
            where.copy_(of_part.flip(1).view(where.shape))


def add_transposed(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += leftᵀ · right, over the rows of all query heads of a key head.

    Args:
        total: ``(batch · num_kv_heads, n, width)``, changed in place.
        left: ``(batch, heads, m, n)``.
        right: ``(batch, heads, m, width)``.
    """
    folded = left.reshape(total.shape[0], -1, left.shape[3]).mT
    total.baddbmm_(folded, right.reshape(total.shape[0], -1, right.shape[3]))


def descend(
    call: TiledCall, part: Part, tile: Tile, grad: Tensor, q: Tensor, saved: Saved, into: Gradients, of_k: Tensor
) -> None:
    """From the gradient of a tile's scores (changed in place) to the gradients of the terms, of q and of k."""
    terms = list(zip(call.terms, saved.terms, strict=True))
    changes = [term.gradient(grad, q, tile, k) for term, k in reversed(terms)]  # head mixing passes on another gradient
    for change in changes:
        if change.capped is not None:
            grad.add_(change.capped)
    if saved.slope is not None:
        grad.mul_(saved.slope)
    for change in changes:
        if change.scores is not None:
            grad[..., : change.scores.shape[-1]].add_(change.scores)
    chain = call.chain
    if chain is None:
        of_q = by_key_head(grad, part.k[:, tile.near : tile.far])
        add_transposed(of_k[:, tile.near : tile.far], grad, q)
    else:
        of_q = chain.descend(grad, part.k, tile, saved.states, of_k, call.scale)
    for change in changes:
        if change.q is not None:
            of_q.add_(change.q)
    into.q[tile.batch, tile.heads, tile.start : tile.stop].add_(of_q, alpha=call.scale)
