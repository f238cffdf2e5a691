"""One call as the loop processes it: slices of batch and heads, blocks of queries, scores with all their terms.

Keys and values are reversed once: sums that run from the newest key back are then plain running sums, and softmax does
not depend on the order. No tile has more than `ELEMENTS` numbers where that is possible, so that
it stays in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from posenc.backends.tiled.reflections import BLOCK, Chain
from posenc.backends.tiled.terms import Decay, Term
from posenc.backends.tiled.tile import Tile, hidden_future, room
from posenc.heads import by_key_head
from posenc.visibility import VisibilityMask

if TYPE_CHECKING:
    from posenc.backends.tiled.prune import PruneBounds
    from posenc.dropout import Dropout

ELEMENTS = 1 << 20  # scores of a tile: 4 MiB in float32
COPIES = 1 << 22  # numbers of reversed keys and values at a time: 16 MiB; as much again for their gradients
FEW = 16  # queries, as of a decode step
QUERIES = 64  # of a block; half of a causal block's own square is wasted
LONG = 8192  # keys from which on memory is spared: tiles are cut smaller, keys copied once
LOG2_E = math.log2(math.e)
SMALLEST = -100.0  # log2 of weights that count as zero: products with numbers from 2^-126 down are very slow


class Weights(Protocol):
    """Computes from the scores of a block its weights, results and their gradients: `Softmax`, `Sticks`."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What it learns."""

    def start_backward(self, wide: torch.dtype) -> None:
        """Make room for the gradients of `tensors`."""

    def finish_backward(self) -> list[Tensor]:
        """The gradients of `tensors`."""

    def forward(self, call: TiledCall, part: Part, tile: Tile) -> tuple[Tensor, Tensor]:
        """The block's results ``(batch, heads, rows, value_dim)``, and what its weights were divided by."""

    @property
    def backward(self) -> Callable[..., None]:
        """Gathers the gradients of a block, of what `gradients` has for it."""


class TiledCall(NamedTuple):
    """One call: tensors, terms, and the rule that maps scores to weights."""

    q: Tensor  # (batch, heads, queries, width)
    k: Tensor  # (batch, num_kv_heads, keys, width), in the order of the sequence
    v: Tensor
    terms: list[Term]
    weights: Weights
    visibility: VisibilityMask
    scale: float
    bounds: PruneBounds | None = None  # where far keys have lost all weight
    skewed: bool = False  # whether some term reads the gradient of the scores by distance
    learned: bool = True  # whether some term may have a gradient
    elements: int = ELEMENTS  # scores of a tile
    rows: int = QUERIES  # queries of a block
    futures: dict[tuple[int, int, int], Tensor] | None = (
        None  # what hides the keys after each query, by the tile's shape
    )
    softcap: float | None = None  # of the products of queries and keys
    dropout: Dropout | None = None  # on the weights
    sink: Tensor | None = None  # logits that take weight and have no value, (heads,)

    @property
    def chain(self) -> Chain | None:
        """What stands instead of the products of queries and keys."""
        return next((term for term in self.terms if isinstance(term, Chain)), None)

    @property
    def mixes_heads(self) -> bool:
        """Whether some term looks at the scores of all heads, so that a tile has to hold them."""
        return any(term.mixes_heads for term in self.terms)

    @property
    def wide(self) -> torch.dtype:
        """Float32 or better."""
        return torch.promote_types(self.q.dtype, torch.float32)

    @property
    def kernels(self) -> bool:
        """Whether nothing is done to scores and weights, the terms aside, that fused kernels do not know."""
        return self.softcap is None and self.dropout is None

    def dropout_factors(self, tile: Tile, keys: Tensor | None = None) -> Tensor | None:
        """What dropout makes of each weight of a tile, 0 or a factor, ``(batch, heads, rows, columns)``; or None.

        Args:
            tile: which.
            keys: indices in the order of the sequence, ``(rows, 1)``, instead of all keys of the tile.
        """
        if self.dropout is None:
            return None
        if keys is None:
            keys = torch.arange(tile.keys - 1 - tile.near, tile.keys - 1 - tile.far, -1, device=self.q.device)
        return self.dropout.factors(tile.batch, tile.heads, slice(tile.start, tile.stop), keys, self.wide)

    def shift(self, tile: Tile) -> Tensor | float:
        """log2 of what a tile's rows have too much, as terms left out constants, ``(batch, heads, rows, 1)``."""
        shifts = [term.shift(tile) for term in self.terms if isinstance(term, Decay)]
        return sum(shift * LOG2_E for shift in shifts if shift is not None)


class Part(NamedTuple):
    """Some rows of the batch and some heads, with their keys and values reversed, in float32 or better."""

    batch: slice
    kv: slice
    heads: slice
    k: Tensor  # (batch · num_kv_heads, keys, width); many keys: a view of k_t
    k_t: Tensor  # keys as columns, contiguous: products with it take two thirds of the time; few queries: a view of k
    v: Tensor  # (batch · num_kv_heads, keys, value_dim), contiguous in the forward pass
    v_t: Tensor  # values as columns, contiguous in the backward pass; else a view


def parts(call: TiledCall, *, backward: bool = False) -> Iterator[Part]:
    """Parts of the batch and of the heads whose tiles have no more than `ELEMENTS` numbers."""
    batch, num_kv_heads, keys = call.k.shape[:3]
    group = call.q.shape[1] // num_kv_heads
    tile = max(1, min(call.rows, call.q.shape[2]) * keys * group)
    most = max(1, COPIES // (keys * (call.k.shape[3] + call.v.shape[3])))  # rows and heads whose keys may be copied
    heads = num_kv_heads if call.mixes_heads else max(1, min(num_kv_heads, call.elements // tile, most))
    rows = max(1, min(batch, call.elements // (tile * heads), most // heads)) if heads == num_kv_heads else 1
    for b in range(0, batch, rows):
        for h in range(0, num_kv_heads, heads):
            of_batch, kv = slice(b, min(b + rows, batch)), slice(h, min(h + heads, num_kv_heads))
            if call.q.shape[2] <= FEW:  # whose products take less time than turning the keys
                k_t = _reversed(call.k[of_batch, kv], 2).to(call.wide).mT
            else:
                k_t = _reversed(call.k[of_batch, kv].mT.to(call.wide), 3)
            v = (
                _reversed(call.v[of_batch, kv].mT.to(call.wide), 3).mT
                if backward
                else _reversed(call.v[of_batch, kv], 2)
            )
            v = v.to(call.wide)
            k = k_t.mT.contiguous() if backward and keys <= LONG else k_t.mT
            yield Part(of_batch, kv, slice(kv.start * group, kv.stop * group), k, k_t, v, v.mT)


def _reversed(x: Tensor, axis: int) -> Tensor:
    """The last axes of ``x`` (batch, num_kv_heads, …) with one reversed, ``(batch · num_kv_heads, …)``, contiguous."""
    return x.flip(axis).contiguous().flatten(0, 1)


def blocks(call: TiledCall, part: Part) -> Iterator[Tile]:
    """Blocks of queries that attend to any key, each with all the reversed keys visible to any of them."""
    queries, keys, causal = call.q.shape[2], call.k.shape[2], call.visibility.causal is True
    stop = max(0, queries - keys) if causal else 0
    while stop < queries:
        start, stop = stop, min(stop + call.rows, queries)
        if call.chain is not None:  # whose tiles end where blocks of tokens do
            stop = min(stop, start + BLOCK - (start + keys - queries) % BLOCK)
        near, far = queries - stop if causal else 0, keys
        if call.visibility.window is not None and call.visibility.causal != "positions":
            near = max(near, queries - stop + 1 - call.visibility.window)
            far = min(far, queries - start - 1 + call.visibility.window)
        if far > near:
            tile = Tile(part.batch, part.heads, part.kv, start, stop, near, far, queries, keys)
            yield tile if call.bounds is None else call.bounds.within(tile)


def mask_of(call: TiledCall, tile: Tile) -> Tensor | None:
    """0 where the tile's queries may attend and −inf elsewhere; None where the order of the indices says it all."""
    if call.visibility.order_only and call.visibility.window is None:
        return None
    first, last = tile.keys - tile.far, tile.keys - tile.near
    seen = tile.of(call.visibility.rows(tile.start, tile.stop, tile.queries, tile.keys, first, last))
    return seen.flip(-1).to(call.wide).log_()


class Saved(NamedTuple):
    """What the backward pass of a tile's scores reads again."""

    terms: list[object]  # what each term saved
    slope: Tensor | None  # of the cap, where there is one
    states: list[Tensor]  # of the queries, where a chain changes them


def scored(
    call: TiledCall, part: Part, tile: Tile, mask: Tensor | None, *, backward: bool = False
) -> tuple[Tensor, Tensor, Saved]:
    """Scores of a tile with all terms, the scaled queries, and what `descend` wants back if there is a ``backward``."""
    q = call.q[tile.batch, tile.heads, tile.start : tile.stop].to(call.wide) * call.scale
    chain, states = call.chain, list[Tensor]()
    if chain is None:
        scores = by_key_head(q, part.k_t[..., tile.near : tile.far])
    else:
        scores, states = chain.products(q, part.k_t, tile, call.scale)
    slope = capped_(scores, call.softcap, backward=backward)
    early = len(call.terms) if call.mixes_heads else sum(term.acts_on_products for term in call.terms)
    saved = [term.add(scores, q, tile, mask) for term in call.terms[:early]]
    hide(scores, call, tile, mask)
    saved += [term.add(scores, q, tile, mask) for term in call.terms[early:]]
    return scores, q, Saved(saved, slope, states)


def hide(scores: Tensor, call: TiledCall, tile: Tile, mask: Tensor | None) -> None:
    """−inf at hidden keys, in place."""
    if mask is not None:
        scores.add_(mask)
    elif call.visibility.causal and tile.offset < 0:
        shape = (tile.offset, tile.rows, min(tile.columns, -tile.offset))
        known = {} if call.futures is None else call.futures
        if shape not in known:
            known[shape] = hidden_future(*shape, like=scores)
        scores[..., : shape[2]].add_(known[shape])


def capped_(products: Tensor, softcap: float | None, *, backward: bool = False) -> Tensor | None:
    """`posenc.encoding.softcapped` in place; its slope, 1 − tanh², if there is a ``backward`` pass."""
    if softcap is None:
        return None
    products.div_(softcap).tanh_()
    slope = products.square().neg_().add_(1.0) if backward else None
    products.mul_(softcap)
    return slope


def add_extra_values(call: TiledCall, out: Tensor, weights: Tensor, tile: Tile) -> None:
    """Add to ``out`` what weights read in addition to v."""
    readers = [term for term in call.terms if term.reads_values]
    if readers:
        weights = room(weights).copy_(weights)
    for term in readers:
        term.add_output(out, weights, tile)
