"""Few queries against many keys, as in decoding: no key is copied, and query heads of one key head share its product.

Everything that is added to the scores is a small matrix here, ``heads · queries`` by keys, made whole and turned into
the order of the keys, not the other way round. In half precision it goes to the fused kernel as a mask, if nothing
looks at the scores.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.backends import fused_cpu
from posenc.backends.tiled import portions
from posenc.backends.tiled.softmax import powers
from posenc.backends.tiled.sticks import Sticks
from posenc.backends.tiled.tile import Tile, by_key_head, hidden_future
from posenc.backends.tiled.tiled_call import LOG2_E, TiledCall, capped_, mask_of, read_beside

MOST = 16  # queries; more of them are worth a copy of the keys
CHUNK = 256  # keys in half precision that are widened at a time


def serves(work: TiledCall) -> bool:
    """Whether there are few enough queries."""
    return work.q.shape[2] <= MOST and work.q.shape[2] < work.k.shape[2] and work.chain is None


def forward(work: TiledCall) -> tuple[Tensor, Tensor]:
    """Results, and what the backward pass reads: see `Softmax.forward` and `Sticks.forward`."""
    (batch, heads, queries), keys = work.q.shape[:3], work.k.shape[2]
    tile = Tile(slice(0, batch), slice(0, heads), slice(0, work.k.shape[1]), 0, queries, 0, keys, queries, keys)
    mask = mask_of(work, tile)
    looks = isinstance(work.weights, Sticks) or any(term.looks or term.reads for term in work.terms)
    if not looks and work.q.dtype != work.wide and portions.available(work) and work.v.shape[3] == work.q.shape[3]:
        return _by_kernel(work, tile, mask)
    scores = _with_keys(work.q.to(work.wide) * work.scale, work.k).flip(-1)
    capped_(scores, work.softcap)
    scores = _added(work, tile, mask, scores)
    if isinstance(work.weights, Sticks):
        weights, norm = work.weights.whole(scores, tile)
        total: Tensor | None = None
    else:
        weights, norm, total = _softmax(work, scores, tile)
    kept = work.kept(tile)
    weights = weights if kept is None else weights.mul_(kept)
    out = _with_values(weights.flip(-1), work.v)
    read_beside(work, out, weights, tile)
    if total is not None:
        out.div_(total)
    elif isinstance(work.weights, Sticks):
        out = work.weights.with_remainder(work, tile, out, norm, lambda: work.v.flip(2).flatten(0, 1))
    return out.to(work.q.dtype), norm


def _softmax(work: TiledCall, scores: Tensor, tile: Tile) -> tuple[Tensor, Tensor, Tensor]:
    """Weights in place of the scores up to a factor a row, log2 of what they are divided by, and their sums."""
    largest = scores.amax(-1, keepdim=True).clamp_(min=torch.finfo(scores.dtype).min / 4).mul_(LOG2_E)
    weights = powers(scores, largest)
    total = weights.sum(-1, keepdim=True)
    unseen = total == 0
    total.masked_fill_(unseen, 1.0)
    return weights, (largest + total.log2() - work.shift(tile)).masked_fill_(unseen, math.inf), total


def _added(work: TiledCall, tile: Tile, mask: Tensor | None, scores: Tensor) -> Tensor:
    """The scores, keys reversed, with what hides keys and all terms."""
    if mask is not None:
        scores = scores.add_(mask)
    elif work.visibility.causal and tile.offset < 0:
        future = hidden_future(tile.offset, tile.rows, min(tile.columns, -tile.offset), like=scores)
        scores[..., : future.shape[-1]].add_(future)
    q = work.q.to(work.wide) * work.scale
    for term in work.terms:
        term.add(scores, q, tile, mask)
    return scores


def _by_kernel(work: TiledCall, tile: Tile, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The fused kernel over key heads, with all that is added as its mask."""
    batch, heads, queries, width = work.q.shape
    kv, keys = work.k.shape[1:3]
    added = _added(work, tile, mask, torch.zeros(batch, heads, queries, keys, dtype=work.wide))
    unseen = added.amax(-1, keepdim=True) == -math.inf
    added = added.masked_fill_(unseen, 0.0).flip(-1).view(batch, kv, -1, keys)
    q = work.q.reshape(batch, kv, -1, width)
    out, logs = fused_cpu.forward(q, work.k, work.v, added, work.scale)
    out, logs = out.reshape(batch, heads, queries, -1), logs.reshape(batch, heads, queries, 1)
    norm = (logs * LOG2_E - work.shift(tile)).masked_fill_(unseen, math.inf)
    return out.masked_fill_(unseen, 0.0), norm


def _with_keys(q: Tensor, k: Tensor) -> Tensor:
    """q · k in the precision of q, ``(batch, heads, queries, keys)``; keys in half precision are widened bit by bit."""
    if k.dtype == q.dtype:
        return by_key_head(q, k.flatten(0, 1).mT)
    k = k.flatten(0, 1)
    starts = range(0, k.shape[1], CHUNK)
    return torch.cat([by_key_head(q, k[:, start : start + CHUNK].to(q.dtype).mT) for start in starts], -1)


def _with_values(weights: Tensor, v: Tensor) -> Tensor:
    """weights · v in the precision of the weights, ``(batch, heads, queries, value_dim)``."""
    if v.dtype == weights.dtype:
        return by_key_head(weights, v.flatten(0, 1))
    out: Tensor | None = None
    for start in range(0, v.shape[2], CHUNK):
        piece = v.flatten(0, 1)[:, start : start + CHUNK].to(weights.dtype)
        part = by_key_head(weights[..., start : start + CHUNK], piece)
        out = part if out is None else out.add_(part)
    assert out is not None
    return out
