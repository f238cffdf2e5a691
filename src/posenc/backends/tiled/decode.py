"""Decode steps: up to 16 queries against many keys, without a copy of any key.

A decode step reads the key/value cache and computes little, so its cost is how often keys are read. The query
heads that share a key head become rows of one product, which reads each key once a group: measured with 32 query and 8
key heads over 4,096 keys, that takes 0.44 of the time of PyTorch's own grouped attention in float32, 0.07 in bfloat16.

The invariant: keys keep their order in memory. Everything that is added to the logits is a small matrix, ``heads ·
queries`` by keys; it is computed in the reversed order of the terms and then flipped, instead of the keys. In half
precision it goes to the fused kernel as a mask, unless a term reads the logits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.backends import fused_cpu
from posenc.backends.tiled import portions
from posenc.backends.tiled.softmax import powers
from posenc.backends.tiled.sticks import Sticks
from posenc.backends.tiled.tile import Tile, hidden_future
from posenc.backends.tiled.tiled_call import LOG2_E, TiledCall, add_extra_values, capped_, mask_of
from posenc.heads import by_key_head

MOST = 16  # queries; more of them are worth a copy of the keys
CHUNK = 256  # keys in half precision that are widened at a time


def serves(call: TiledCall) -> bool:
    """Whether there are few enough queries."""
    return call.q.shape[2] <= MOST and call.q.shape[2] < call.k.shape[2] and call.chain is None


def forward(call: TiledCall) -> tuple[Tensor, Tensor]:
    """Results, and what the backward pass reads: see `Softmax.forward` and `Sticks.forward`."""
    (batch, heads, queries), keys = call.q.shape[:3], call.k.shape[2]
    tile = Tile(slice(0, batch), slice(0, heads), slice(0, call.k.shape[1]), 0, queries, 0, keys, queries, keys)
    mask = mask_of(call, tile)
    masks_only = not any(term.reads_logits or term.reads_values for term in call.terms)
    half = call.q.dtype != call.wide and call.v.shape[3] == call.q.shape[3]
    if half and masks_only and not isinstance(call.weights, Sticks) and portions.available(call):
        return _by_kernel(call, tile, mask)
    scores = _with_keys(call.q.to(call.wide) * call.scale, call.k).flip(-1)
    capped_(scores, call.softcap)
    scores = _added(call, tile, mask, scores)
    if isinstance(call.weights, Sticks):
        weights, norm = call.weights.weights_of_row(scores, tile)
        total: Tensor | None = None
    else:
        weights, norm, total = _softmax(call, scores, tile)
    factors = call.dropout_factors(tile)
    weights = weights if factors is None else weights.mul_(factors)
    out = _with_values(weights.flip(-1), call.v)
    add_extra_values(call, out, weights, tile)
    if total is not None:
        out.div_(total)
    elif isinstance(call.weights, Sticks):
        out = call.weights.with_remainder(call, tile, out, norm, lambda: call.v.flip(2).flatten(0, 1))
    return out.to(call.q.dtype), norm


def _softmax(call: TiledCall, scores: Tensor, tile: Tile) -> tuple[Tensor, Tensor, Tensor]:
    """Weights in place of the scores up to a factor a row, log2 of what they are divided by, and their sums."""
    largest = scores.amax(-1, keepdim=True).clamp_(min=torch.finfo(scores.dtype).min / 4).mul_(LOG2_E)
    weights = powers(scores, largest)
    total = weights.sum(-1, keepdim=True)
    unseen = total == 0
    total.masked_fill_(unseen, 1.0)
    return weights, (largest + total.log2() - call.shift(tile)).masked_fill_(unseen, math.inf), total


def _added(call: TiledCall, tile: Tile, mask: Tensor | None, scores: Tensor) -> Tensor:
    """The scores, keys reversed, with what hides keys and all terms."""
    if mask is not None:
        scores = scores.add_(mask)
    elif call.visibility.causal and tile.offset < 0:
        future = hidden_future(tile.offset, tile.rows, min(tile.columns, -tile.offset), like=scores)
        scores[..., : future.shape[-1]].add_(future)
    q = call.q.to(call.wide) * call.scale
    for term in call.terms:
        term.add(scores, q, tile, mask)
    return scores


def _by_kernel(call: TiledCall, tile: Tile, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The fused kernel over key heads, with all that is added as its mask."""
    batch, heads, queries, width = call.q.shape
    kv, keys = call.k.shape[1:3]
    added = _added(call, tile, mask, call.q.new_zeros((batch, heads, queries, keys), dtype=call.wide))
    unseen = added.amax(-1, keepdim=True) == -math.inf
    added = added.masked_fill_(unseen, 0.0).flip(-1).view(batch, kv, -1, keys)
    q = call.q.reshape(batch, kv, -1, width)
    out, logs = fused_cpu.forward(q, call.k, call.v, added, call.scale)
    out, logs = out.reshape(batch, heads, queries, -1), logs.reshape(batch, heads, queries, 1)
    norm = (logs * LOG2_E - call.shift(tile)).masked_fill_(unseen, math.inf)
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
