"""The loop over tiles: how large they are, which queries meet which keys in them, and both passes over all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.backends.tiles import masks, softmax, sticks
from posenc.backends.tiles.block import ELEMENTS, FEW, LOG2_E, BlockOutput, Gradients, HeadSlice, TiledCall
from posenc.backends.tiles.prune import PruneBounds
from posenc.dropout import Dropout
from posenc.dtypes import float32_or_better
from posenc.structure import Decay, HeadMixing, Row, Sink, Sticks, Structure, TileContext
from posenc.structure.reflections import BLOCK
from posenc.structure.tile import LONG, QUERIES, Tile
from posenc.visibility import VisibilityMask

COPIES = 1 << 22  # numbers of reversed keys and values at a time: 16 MiB; as much again for their gradients


class TileArguments(NamedTuple):
    """One call as the backend states it: what `tiled_call` takes."""

    q: Tensor  # (batch, heads, queries, width)
    k: Tensor  # (batch, num_kv_heads, keys, width)
    v: Tensor  # (batch, num_kv_heads, keys, value_dim)
    terms: tuple[Structure, ...]  # in the order in which they act
    weights: Sticks | Sink | None  # instead of softmax
    visibility: VisibilityMask
    scale: float
    tolerance: float  # weight of a row that may be left out
    softcap: float | None = None
    dropout: Dropout | None = None


def tiled_call(stated: TileArguments) -> TiledCall:
    """The call at work. Its structures are prepared in place: they must be copies of what encodings stated."""
    q, k, visibility = stated.q, stated.k, stated.visibility
    softmax_weights = not isinstance(stated.weights, Sticks)
    cancel = stated.weights is None and not any(isinstance(term, HeadMixing) for term in stated.terms)
    context = TileContext(stated.scale, softmax_weights, cancel, visibility, q.shape[2], float32_or_better(q.dtype))
    for structure in all_structures(stated):
        structure.prepare(context)
    call = TiledCall(
        q, k, stated.v, stated.terms, stated.weights, visibility, stated.scale, stated.tolerance, futures={},
        softcap=stated.softcap, dropout=stated.dropout,
    )  # fmt: skip
    shared = any(term.shares_features for term in call.terms)
    long = k.shape[2] > LONG
    elements = 2 * ELEMENTS if shared and not long else ELEMENTS // 2 if call.skewed and long else ELEMENTS
    bounds = _prune_bounds(call)
    if bounds is not None and bounds.decay is not None and bounds.decay.steep(QUERIES):
        elements *= 2  # most keys of a tile are left out, and what remains is overhead: more heads share it
    least = k.shape[1] if call.mixes_heads else min(k.shape[1], 2) if shared else 1  # key heads of a tile
    rows = elements // (k.shape[2] * (q.shape[1] // k.shape[1]) * least)
    rows = max(16, min(QUERIES if call.reflections is None else BLOCK, rows // 16 * 16))
    return call._replace(bounds=bounds, elements=elements, rows=rows)


def all_structures(call: TileArguments | TiledCall) -> list[Structure]:
    """The terms of a call and what replaces softmax."""
    return [*call.terms, *([] if call.weights is None else [call.weights])]


def _prune_bounds(call: TiledCall) -> PruneBounds | None:
    """Where far keys may be left out: if distance and gates alone decide about them."""
    rows = [term for term in call.terms if isinstance(term, Row)]
    decays = [term for term in call.terms if isinstance(term, Decay)]
    queries, keys = call.q.shape[2], call.k.shape[2]
    if (
        queries <= FEW  # one pass over the keys costs what finding the bounds does
        or isinstance(call.weights, Sticks)
        or max(queries, keys) <= 512
        or queries > keys
        or not call.terms
    ):
        return None
    if len(rows) > 1 or len(decays) > 1 or len(rows) + len(decays) != len(call.terms):
        return None
    if not call.visibility.order_only or (decays and call.visibility.causal is not True):
        return None
    row, decay = rows[0] if rows else None, decays[0] if decays else None
    return PruneBounds(row, decay, call.q, call.k, call.scale, call.tolerance, call.softcap)


def head_slices(call: TiledCall, *, backward: bool = False) -> Iterator[HeadSlice]:
    """Slices of the batch and of the heads whose tiles have no more than `ELEMENTS` numbers."""
    batch, num_kv_heads, keys = call.k.shape[:3]
    group = call.q.shape[1] // num_kv_heads
    tile = max(1, min(call.rows, call.q.shape[2]) * keys * group)
    most = max(1, COPIES // (keys * (call.k.shape[3] + call.v.shape[3])))  # rows and heads whose keys may be copied
    heads = num_kv_heads if call.mixes_heads else max(1, min(num_kv_heads, call.elements // tile, most))
    rows = max(1, min(batch, call.elements // (tile * heads), most // heads)) if heads == num_kv_heads else 1
    for b in range(0, batch, rows):
        for h in range(0, num_kv_heads, heads):
            batch_rows, kv = slice(b, min(b + rows, batch)), slice(h, min(h + heads, num_kv_heads))
            k, v = call.k[batch_rows, kv], call.v[batch_rows, kv]
            few = call.q.shape[2] <= FEW  # products of few queries take less time than turning the keys
            k_t = _reversed(k, 2).to(call.dtype).mT if few else _reversed(k.mT.to(call.dtype), 3)
            # Whichever layout the pass multiplies by: values as rows for weights · v, as columns for gradients · vᵀ.
            v = (_reversed(v.mT.to(call.dtype), 3).mT if backward else _reversed(v, 2)).to(call.dtype)
            k = k_t.mT.contiguous() if backward and keys <= LONG else k_t.mT
            yield HeadSlice(batch_rows, kv, slice(kv.start * group, kv.stop * group), k, k_t, v, v.mT)


def _reversed(x: Tensor, axis: int) -> Tensor:
    """The last axes of ``x`` (batch, num_kv_heads, …) with one reversed, ``(batch · num_kv_heads, …)``, contiguous."""
    return x.flip(axis).contiguous().flatten(0, 1)


def blocks(call: TiledCall, heads: HeadSlice) -> Iterator[Tile]:
    """Blocks of queries that attend to any key, each with all the reversed keys visible to any of them."""
    queries, keys, causal = call.q.shape[2], call.k.shape[2], call.visibility.causal is True
    stop = max(0, queries - keys) if causal else 0
    while stop < queries:
        start, stop = stop, min(stop + call.rows, queries)
        if call.reflections is not None:  # whose tiles end where blocks of tokens do
            stop = min(stop, start + BLOCK - (start + keys - queries) % BLOCK)
        near, far = queries - stop if causal else 0, keys
        if call.visibility.window is not None and call.visibility.causal != "positions":
            near = max(near, queries - stop + 1 - call.visibility.window)
            far = min(far, queries - start - 1 + call.visibility.window)
        if far > near:
            tile = Tile(heads.batch, heads.heads, heads.kv, start, stop, near, far, queries, keys)
            yield tile if call.bounds is None else call.bounds.within(tile)


def _rule(call: TiledCall) -> ModuleType:
    """What makes weights of a block's scores, with ``forward`` and ``backward``."""
    return sticks if isinstance(call.weights, Sticks) else softmax


def forward(call: TiledCall) -> tuple[Tensor, Tensor]:
    """Results ``(batch, heads, queries, value_dim)``, and what the backward pass reads with them.

    That is, ``(batch, heads, queries, 1)``, log2 of what the weights of each row were divided by; under stick-breaking,
    −log2 of what is left of the stick.
    """
    out, norm = masks.forward(call) if masks.serves(call) else _all_blocks(call)
    if not isinstance(call.weights, Sink):
        return out, norm
    joined = torch.logaddexp2(norm, _sink_log2(call.weights)).masked_fill_(norm == math.inf, math.inf)
    return out.mul_(torch.exp2(norm - joined).nan_to_num_(0.0)), joined


def _all_blocks(call: TiledCall) -> tuple[Tensor, Tensor]:
    """The same without a sink, block by block."""
    out = call.q.new_zeros(*call.q.shape[:3], call.v.shape[3])
    norm = call.q.new_full((*call.q.shape[:3], 1), math.inf, dtype=call.dtype)
    for heads in head_slices(call):
        for tile in blocks(call, heads):
            where = (tile.batch, tile.heads, slice(tile.start, tile.stop))
            out[where], norm[where] = _rule(call).forward(call, heads, tile)
    return out, norm


def backward(call: TiledCall, grad: Tensor, out: Tensor, norm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v; those of the structures' tensors are gathered in them (`Structure.gradients`)."""
    for structure in all_structures(call):
        structure.start_backward()
    if isinstance(call.weights, Sink) and call.weights.learned:
        # Its weight of each row, which reads nothing, times the gradient that this loses by it: minus the row's mean.
        weight = torch.exp2(_sink_log2(call.weights) - norm)
        mean = (grad.to(call.dtype) * out.to(call.dtype)).sum(-1, keepdim=True)
        call.weights.gradients["logits"] = -(weight * mean).sum((0, 2, 3))
    if masks.serves_backward(call):
        return masks.backward(call, grad, out, norm)
    gradients = Gradients(call)
    for heads in head_slices(call, backward=True):
        grad_kv = gradients.start_heads(heads)
        for tile in blocks(call, heads):
            where = (tile.batch, tile.heads, slice(tile.start, tile.stop))
            known = BlockOutput(grad[where].to(call.dtype), out[where].to(call.dtype), norm[where])
            _rule(call).backward(call, heads, tile, known, gradients, grad_kv)
        gradients.finish_heads(heads, *grad_kv)
    return gradients.q, gradients.k, gradients.v


def _sink_log2(sink: Sink) -> Tensor:
    return (sink.logits * LOG2_E).view(-1, 1, 1)
