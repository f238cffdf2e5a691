"""One block of queries against its keys: scores with all their terms, and the way back to every gradient.

Keys and values are reversed once: sums that run from the newest key back are then plain running sums, and softmax does
not depend on the order. No tile has more than `ELEMENTS` numbers where that is possible, so that it stays in the cache.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from posenc.dropout import Dropout
from posenc.dtypes import float32_or_better
from posenc.heads import by_key_head
from posenc.structure import Decay, HeadMixing, ReflectionProducts, Sink, Sticks, Structure
from posenc.structure.tile import QUERIES, Tile, hidden_future, with_zero_tail
from posenc.visibility import VisibilityMask

if TYPE_CHECKING:
    from posenc.backends.tiles.prune import PruneBounds

ELEMENTS = 1 << 20  # scores of a tile: 4 MiB in float32
FEW = 16  # queries, as of a decode step
LOG2_E = math.log2(math.e)
SMALLEST = -100.0  # log2 of weights that count as zero: products with numbers from 2^-126 down are very slow


class TiledCall(NamedTuple):
    """One call at work: tensors, structures that are ready for tiles, and what replaces softmax."""

    q: Tensor  # (batch, heads, queries, width)
    k: Tensor  # (batch, num_kv_heads, keys, width), in the order of the sequence
    v: Tensor
    terms: tuple[Structure, ...]  # in the order in which they act
    weights: Sticks | Sink | None
    visibility: VisibilityMask
    scale: float
    tolerance: float  # weight of a row that may be left out
    futures: dict[tuple[int, int, int], Tensor]  # what hides the keys after each query, by the tile's shape
    softcap: float | None = None  # of the products of queries and keys
    dropout: Dropout | None = None  # on the weights
    bounds: PruneBounds | None = None  # where far keys have lost all weight
    elements: int = ELEMENTS  # scores of a tile
    rows: int = QUERIES  # queries of a block

    @property
    def reflections(self) -> ReflectionProducts | None:
        """What stands instead of the products of queries and keys."""
        return next((term for term in self.terms if isinstance(term, ReflectionProducts)), None)

    @property
    def mixes_heads(self) -> bool:
        """Whether some term looks at the scores of all heads, so that a tile has to hold them."""
        return any(isinstance(term, HeadMixing) for term in self.terms)

    @property
    def skewed(self) -> bool:
        """Whether some term reads the gradient of the scores by distance."""
        return any(term.skewed for term in self.terms)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of scores."""
        return float32_or_better(self.q.dtype)

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
        return self.dropout.factors(tile.batch, tile.heads, slice(tile.start, tile.stop), keys, self.dtype)

    def shift(self, tile: Tile) -> Tensor | float:
        """log2 of what a tile's rows have too much, as terms left out constants, ``(batch, heads, rows, 1)``."""
        shifts = [term.shift(tile) for term in self.terms if isinstance(term, Decay)]
        return sum(shift * LOG2_E for shift in shifts if shift is not None)


class HeadSlice(NamedTuple):
    """Some rows of the batch and some heads, with their keys and values reversed, in float32 or better."""

    batch: slice
    kv: slice
    heads: slice
    k: Tensor  # (batch · num_kv_heads, keys, width); many keys: a view of k_t
    k_t: Tensor  # keys as columns, contiguous: products with it take two thirds of the time; few queries: a view of k
    v: Tensor  # (batch · num_kv_heads, keys, value_dim), contiguous in the forward pass
    v_t: Tensor  # values as columns, contiguous in the backward pass; else a view


def mask_of(call: TiledCall, tile: Tile) -> Tensor | None:
    """0 where the tile's queries may attend and −inf elsewhere; None where the order of the indices says it all."""
    if call.visibility.order_only and call.visibility.window is None:
        return None
    first, last = tile.keys - tile.far, tile.keys - tile.near
    seen = tile.of(call.visibility.rows(tile.start, tile.stop, tile.queries, tile.keys, first, last))
    return seen.flip(-1).to(call.dtype).log_()


class Saved(NamedTuple):
    """What the backward pass of a tile's scores reads again."""

    terms: list[object]  # what each term saved
    slope: Tensor | None  # of the cap, where there is one
    states: list[Tensor]  # of the queries, where reflections change them


def scored(
    call: TiledCall, heads: HeadSlice, tile: Tile, mask: Tensor | None, *, backward: bool = False
) -> tuple[Tensor, Tensor, Saved]:
    """Scores of a tile with all terms, the scaled queries, and what `descend` wants back if there is a ``backward``."""
    q = call.q[tile.batch, tile.heads, tile.start : tile.stop].to(call.dtype) * call.scale
    reflections, states = call.reflections, list[Tensor]()
    if reflections is None:
        scores = by_key_head(q, heads.k_t[..., tile.near : tile.far])
    else:
        scores, states = reflections.scores(q, heads.k_t, tile, call.scale)
    slope = capped_(scores, call.softcap, backward=backward)
    # Terms see hidden keys as −inf, as gates that are summed over keys must leave them out. A network across heads
    # would make NaN of −inf: it comes, with all that is added before it, to finite scores.
    early = len(call.terms) if call.mixes_heads else 0
    saved = [term.add(scores, q, tile, mask) for term in call.terms[:early]]
    hide(scores, call, tile, mask)
    saved += [term.add(scores, q, tile, mask) for term in call.terms[early:]]
    return scores, q, Saved(saved, slope, states)


def hide(scores: Tensor, call: TiledCall, tile: Tile, mask: Tensor | None) -> None:
    """−inf at hidden keys, in place."""
    if mask is not None:
        scores.add_(mask)
    elif call.visibility.causal and tile.offset < 0:
        # Only the first columns, the newest keys, hold any after a query; they are alike in nearly all tiles.
        shape = (tile.offset, tile.rows, min(tile.columns, -tile.offset))
        if shape not in call.futures:
            call.futures[shape] = hidden_future(*shape, like=scores)
        scores[..., : shape[2]].add_(call.futures[shape])


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
        weights = with_zero_tail(weights).copy_(weights)
    for term in readers:
        term.add_output(out, weights, tile)


class BlockOutput(NamedTuple):
    """What the backward pass has of a block of queries."""

    grad: Tensor  # of its results, (batch, heads, rows, value_dim)
    out: Tensor  # its results
    norm: Tensor  # what the forward pass returned with them, (batch, heads, rows, 1)


class Gradients:
    """Where the gradients of q, k and v are gathered."""

    def __init__(self, call: TiledCall) -> None:
        self.q, self.k, self.v = (
            torch.zeros(t.shape, dtype=call.dtype, device=t.device) for t in (call.q, call.k, call.v)
        )

    def start_heads(self, heads: HeadSlice) -> tuple[Tensor, Tensor]:
        """Where those of some heads' reversed keys and values are gathered."""
        return torch.zeros_like(heads.k), torch.zeros_like(heads.v)

    def finish_heads(self, heads: HeadSlice, grad_k: Tensor, grad_v: Tensor) -> None:
        """These heads are done: back in the order of the sequence."""
        for total, grad in ((self.k, grad_k), (self.v, grad_v)):
            where = total[heads.batch, heads.kv]
            where.copy_(grad.flip(1).view(where.shape))


def weights_gradient(
    call: TiledCall, heads: HeadSlice, tile: Tile, grad: Tensor, weights: Tensor, grad_v: Tensor
) -> Tensor:
    """The gradient of a tile's weights before their dropout; gradients of the values are gathered.

    Args:
        call, heads, tile: which.
        grad: of the results, ``(batch, heads, rows, value_dim)``.
        weights: ``(batch, heads, rows, columns)``, before their dropout.
        grad_v: gradients of the reversed values, changed in place.
    """
    factors, seen = call.dropout_factors(tile), slice(tile.near, tile.far)
    dropped = weights if factors is None else weights * factors
    add_transposed(grad_v[:, seen], dropped, grad)
    grad_weights = by_key_head(grad, heads.v_t[..., seen])
    readers = [term for term in call.terms if term.reads_values]
    if readers:
        dropped = with_zero_tail(dropped).copy_(dropped)
    for term in readers:
        term.output_gradient(grad_weights, grad, dropped, tile)
    return grad_weights if factors is None else grad_weights.mul_(factors)


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
    call: TiledCall,
    heads: HeadSlice,
    tile: Tile,
    grad: Tensor,
    q: Tensor,
    saved: Saved,
    into: Gradients,
    grad_k: Tensor,
) -> None:
    """From the gradient of a tile's scores (changed in place) to the gradients of the terms, of q and of k."""
    terms = list(zip(call.terms, saved.terms, strict=True))
    # In reverse: a network across heads replaces the gradient by that of what it read. And all of them before any of
    # their contributions is added to ``grad``, which the others still read.
    changes = [term.gradient(grad, q, tile, kept) for term, kept in reversed(terms)]
    if saved.slope is not None:
        grad.mul_(saved.slope)
    for change in changes:
        if change.scores is not None:  # of bare products, and so behind the cap
            grad[..., : change.scores.shape[-1]].add_(change.scores)
    reflections = call.reflections
    if reflections is None:
        grad_q = by_key_head(grad, heads.k[:, tile.near : tile.far])
        add_transposed(grad_k[:, tile.near : tile.far], grad, q)
    else:
        grad_q = reflections.descend(grad, heads.k, tile, saved.states, grad_k, call.scale)
    for change in changes:
        if change.q is not None:
            grad_q.add_(change.q)
    into.q[tile.batch, tile.heads, tile.start : tile.stop].add_(grad_q, alpha=call.scale)
