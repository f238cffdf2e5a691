"""Products of reflections, block by block, so that tiles compute only matrix products: PaTH.

    A_ij = q_i · H_i H_{i−1} … H_{j+1} · k_j,   H_t = I − beta_t · w_t w_tᵀ

The idea: a row vector x that passes through all reflections of a block, the newest first, loses c · w with
c = (x · stepsᵀ) · T, where steps = beta · w and T is the inverse of a unit triangular matrix (the UT transform). So a
block acts as one matrix, I − stepsᵀ T w. Queries are carried to the start of their own block and keys to the end of
theirs; only whole blocks lie between the two. Scores of queries and keys in one block are computed directly, queries ×
BLOCK numbers.

`ReflectionProducts` fills the tiles. The queries of a tile lie in one block. Their states, one per older block, are
computed from the newest block on, each by one product with the block's matrix; the backward pass goes back from the
oldest. The invariant: no intermediate is larger than the tile's scores.

Source: Yang et al., PaTH Attention, arXiv 2505.16381, the section on products by the UT transform.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from posenc.structure.interface import NO_INPUT_GRADIENTS, InputGradients, Structure, TileFacts
from posenc.structure.tile import Tile

BLOCK = 128  # tokens


@dataclass(eq=False)
class Reflections(Structure):
    """s_ij ← s_ij + scale · (q_i · H_i … H_{j+1} · k_j − q_i·k_j),  H_t = I − beta_t · w_t w_tᵀ: the call's q and k."""

    w: Tensor  # (batch, num_kv_heads, keys, width)
    beta: Tensor  # (batch, num_kv_heads, keys)

    description = "products of reflections"
    stage = -1

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        if sum(isinstance(structure, Reflections) for structure in facts.structures) > 1:
            return "two encodings reflect"
        return "the definition reflects few queries in fewer steps" if facts.few_queries else None


class Blocks(NamedTuple):
    """What the tiles need."""

    q: Tensor  # (batch, heads, queries, width), at the start of each query's block
    k: Tensor  # (batch, num_kv_heads, keys, width), at the end of each key's block
    products: Tensor  # (batch, num_kv_heads, blocks, width, width): each block's product of reflections
    near: Tensor  # (batch, heads, queries, BLOCK): products of queries with the keys of their own blocks


def blocks_of(q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> Blocks:
    """Queries, keys and blocks for the tiles; differentiable, and recomputed in the backward pass.

    Args:
        q: ``(batch, heads, queries, width)``, of the last keys, in float32 or better.
        k, w: ``(batch, num_kv_heads, keys, width)``.
        beta: ``(batch, num_kv_heads, keys)``.
    """
    if torch.compiler.is_compiling():
        return _blocks_of(q, k, w, beta)
    group, by_head = q.shape[1] // k.shape[1], list[Blocks]()
    for head in range(k.shape[1]):  # so that what a block takes on the way lives for one head at a time
        some = q[:, head * group : (head + 1) * group], *(t[:, head : head + 1] for t in (k, w, beta))
        trained = torch.is_grad_enabled()
        by_head.append(checkpoint(_blocks_of, *some, use_reentrant=False) if trained else _blocks_of(*some))
    return Blocks(*(torch.cat(heads, 1) for heads in zip(*by_head, strict=True)))


def _blocks_of(q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> Blocks:
    queries, keys = q.shape[2], k.shape[2]
    before = keys - queries
    skipped, ahead = before // BLOCK, before % BLOCK  # blocks without queries; tokens of the first one before them
    blocked_k, blocked_w = (_blocked(t, 0) for t in (k, w))
    steps = _blocked(beta.unsqueeze(-1), 0) * blocked_w
    system = (blocked_w @ steps.mT).tril(-1)
    eye = torch.eye(BLOCK, dtype=k.dtype, device=k.device)
    inverse = torch.linalg.solve_triangular(system, eye.expand_as(system), upper=False, unitriangular=True)
    met = (blocked_w @ blocked_k.mT).tril(-1)  # token × key: the tokens after a key
    inverse_steps = inverse.mT @ steps
    at_ends = blocked_k - met.mT @ inverse_steps
    block_products = torch.eye(k.shape[3], dtype=k.dtype, device=k.device) - inverse_steps.mT @ blocked_w
    blocked_q = _blocked(q, ahead)
    group = q.shape[1] // k.shape[1]
    k_q, w_q, steps_q, inverse_q, met_q = (
        t[:, :, skipped:].repeat_interleave(group, 1) for t in (blocked_k, blocked_w, steps, inverse, met)
    )
    taken = (blocked_q @ steps_q.mT).tril() @ inverse_q
    near = blocked_q @ k_q.mT - taken @ met_q
    at_starts = blocked_q - taken @ w_q
    rows = slice(ahead, ahead + queries)
    return Blocks(
        at_starts.flatten(2, 3)[:, :, rows],
        at_ends.flatten(2, 3)[:, :, :keys],
        block_products,
        near.flatten(2, 3)[:, :, rows],
    )


def _blocked(x: Tensor, ahead: int) -> Tensor:
    """``(batch, heads, tokens, width)`` as ``(batch, heads, blocks, BLOCK, width)``, with zeros around."""
    behind = -(x.shape[2] + ahead) % BLOCK
    padded = F.pad(x, (0, 0, ahead, behind))
    return padded.view(*x.shape[:2], -1, BLOCK, x.shape[3])


@dataclass(eq=False)
class ReflectionProducts(Structure):
    """Instead of q·k in tiles: products through the reflections of blocks, as `Reflections` becomes them there."""

    products: Tensor  # (batch, num_kv_heads, blocks, width, width): `Blocks.products`
    near: Tensor  # (batch, heads, queries, BLOCK): `Blocks.near`

    description = "products of reflections"
    scans = True

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        return None  # `scores` has made them already

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, saved: object) -> InputGradients:
        return NO_INPUT_GRADIENTS  # `descend` gathers them

    def scores(self, q: Tensor, k_t: Tensor, tile: Tile, scale: float) -> tuple[Tensor, list[Tensor]]:
        """Scores ``(batch, heads, rows, columns)``, and the states of the queries, newest block first.

        Args:
            q: ``(batch, heads, rows, width)``, times the scale.
            k_t: reversed keys as columns, ``(batch · num_kv_heads, width, keys)``.
            tile: which; its queries lie in one block.
            scale: of the products.
        """
        scores = q.new_empty(*q.shape[:3], tile.columns)
        own_keys = self._own_keys(tile)
        near = self.near[tile.batch, tile.heads, tile.start : tile.stop, : self._met(tile)].flip(-1)[..., :own_keys]
        torch.mul(near, scale, out=scores[..., :own_keys])
        folded = scores.view(k_t.shape[0], -1, tile.columns)
        state, states = q.reshape(k_t.shape[0], -1, q.shape[3]), list[Tensor]()
        block_products = self.products[tile.batch, tile.kv]
        for block, columns in self._older(tile, own_keys):
            if states:
                state = torch.bmm(state, block_products[:, :, block + 1].flatten(0, 1))
            states.append(state)
            keys = k_t[..., tile.near + columns.start : tile.near + columns.stop]
            torch.bmm(state, keys, out=folded[..., columns])
        return scores, states

    def descend(
        self, grad: Tensor, k: Tensor, tile: Tile, states: list[Tensor], grad_k: Tensor, scale: float
    ) -> Tensor:
        """The gradient of the scaled queries from the gradient of a tile's products; other gradients are gathered.

        Args:
            grad: ``(batch, heads, rows, columns)``.
            k: reversed keys, ``(batch · num_kv_heads, keys, width)``.
            tile: which.
            states: what `scores` gave.
            grad_k: gradients of the reversed keys, changed in place.
            scale: of the products.
        """
        own_keys = self._own_keys(tile)
        met = self._met(tile)
        near = self.gradients["near"][tile.batch, tile.heads, tile.start : tile.stop, met - own_keys : met]
        near.add_(grad[..., :own_keys].flip(-1), alpha=scale)
        folded = grad.reshape(k.shape[0], -1, tile.columns)
        block_products, sums = (t[tile.batch, tile.kv] for t in (self.products, self.gradients["products"]))
        grad_state: Tensor | None = None
        for (block, columns), state in zip(reversed(list(self._older(tile, own_keys))), reversed(states), strict=True):
            grad_scores = folded[..., columns]
            seen = slice(tile.near + columns.start, tile.near + columns.stop)
            grad_k[:, seen].baddbmm_(grad_scores.mT, state)
            older, grad_state = grad_state, torch.bmm(grad_scores, k[:, seen])
            if older is not None:
                grad_state.baddbmm_(older, block_products[:, :, block].flatten(0, 1).mT)
                sums[:, :, block].add_(torch.bmm(state.mT, older).view_as(sums[:, :, block]))
        shape = (*grad.shape[:3], k.shape[2])
        return grad.new_zeros(shape) if grad_state is None else grad_state.view(shape)

    def _met(self, tile: Tile) -> int:
        """Tokens of the queries' block up to the last query."""
        return (tile.stop - 1 + tile.keys - tile.queries) % BLOCK + 1

    def _own_keys(self, tile: Tile) -> int:
        """Keys of the queries' own block that the tile holds."""
        return min(self._met(tile), tile.columns)

    def _older(self, tile: Tile, own_keys: int) -> Iterator[tuple[int, slice]]:
        """Older blocks from the newest on, and the columns of the tile that are theirs."""
        block = (tile.stop - 1 + tile.keys - tile.queries) // BLOCK - 1
        for first in range(own_keys, tile.columns, BLOCK):
            yield block, slice(first, min(first + BLOCK, tile.columns))
            block -= 1
