"""Queries that whole blocks of tokens change on their way to older keys: the tiles of `reflections`.

A tile's queries lie in one block. Their states, one for each older block, are made from the newest on, each by one
product with what a block does; the backward pass goes back from the oldest. Nothing is larger than the tile's scores.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from posenc.backends.tiled.reflections import BLOCK
from posenc.backends.tiled.terms import NOTHING, Change, Term
from posenc.backends.tiled.tile import Tile


class Chain(Term):
    """In the place of the products of queries and keys: ``whole`` and ``near`` of `reflections.Blocks`."""

    scans = True

    def add(self, scores: Tensor, q: Tensor, tile: Tile, mask: Tensor | None) -> object:
        return None  # `products` has made the scores already

    def gradient(self, grad: Tensor, q: Tensor, tile: Tile, kept: object) -> Change:
        return NOTHING  # `descend` gathers them

    def products(self, q: Tensor, k_t: Tensor, tile: Tile, scale: float) -> tuple[Tensor, list[Tensor]]:
        """Scores ``(batch, heads, rows, columns)``, and the states of the queries, newest block first.

        Args:
            q: ``(batch, heads, rows, width)``, times the scale.
            k_t: reversed keys as columns, ``(batch · kv_heads, width, keys)``.
            tile: which; its queries lie in one block.
            scale: of the products.
        """
        whole, near = self.tensors
        scores = q.new_empty(*q.shape[:3], tile.columns)
        own = self._own(tile)
        here = near[tile.batch, tile.heads, tile.start : tile.stop, : self._met(tile)].flip(-1)[..., :own]
        torch.mul(here, scale, out=scores[..., :own])
        folded = scores.view(k_t.shape[0], -1, tile.columns)
        state, states = q.reshape(k_t.shape[0], -1, q.shape[3]), list[Tensor]()
        of_blocks = whole[tile.batch, tile.kv]
        for block, columns in self._older(tile, own):
            if states:
                state = torch.bmm(state, of_blocks[:, :, block + 1].flatten(0, 1))
            states.append(state)
            keys = k_t[..., tile.near + columns.start : tile.near + columns.stop]
            torch.bmm(state, keys, out=folded[..., columns])
        return scores, states

    def descend(self, grad: Tensor, k: Tensor, tile: Tile, states: list[Tensor], of_k: Tensor, scale: float) -> Tensor:
        """From the gradient of a tile's products to that of the scaled queries; all others are gathered.

        Args:
            grad: ``(batch, heads, rows, columns)``.
            k: reversed keys, ``(batch · kv_heads, keys, width)``.
            tile: which.
            states: what `products` gave.
            of_k: gradients of the reversed keys, changed in place.
            scale: of the products.
        """
        of_whole, of_near = self.gradients
        own = self._own(tile)
        met = self._met(tile)
        here = of_near[tile.batch, tile.heads, tile.start : tile.stop, met - own : met]
        here.add_(grad[..., :own].flip(-1), alpha=scale)
        folded = grad.reshape(k.shape[0], -1, tile.columns)
        of_blocks, sums = self.tensors[0][tile.batch, tile.kv], of_whole[tile.batch, tile.kv]
        of_state: Tensor | None = None
        for (block, columns), state in zip(reversed(list(self._older(tile, own))), reversed(states), strict=True):
            part = folded[..., columns]
            seen = slice(tile.near + columns.start, tile.near + columns.stop)
            of_k[:, seen].baddbmm_(part.mT, state)
            older, of_state = of_state, torch.bmm(part, k[:, seen])
            if older is not None:
                of_state.baddbmm_(older, of_blocks[:, :, block].flatten(0, 1).mT)
                sums[:, :, block].add_(torch.bmm(state.mT, older).view_as(sums[:, :, block]))
        shape = (*grad.shape[:3], k.shape[2])
        return grad.new_zeros(shape) if of_state is None else of_state.view(shape)

    def _met(self, tile: Tile) -> int:
        """Tokens of the queries' block up to the last query."""
        return (tile.stop - 1 + tile.keys - tile.queries) % BLOCK + 1

    def _own(self, tile: Tile) -> int:
        """Those of them that the tile holds."""
        return min(self._met(tile), tile.columns)

    def _older(self, tile: Tile, own: int) -> Iterator[tuple[int, slice]]:
        """Older blocks from the newest on, and the columns of the tile that are theirs."""
        block = (tile.stop - 1 + tile.keys - tile.queries) // BLOCK - 1
        for first in range(own, tile.columns, BLOCK):
            yield block, slice(first, min(first + BLOCK, tile.columns))
            block -= 1
