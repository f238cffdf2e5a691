"""PyTorch's fused kernel for blocks of queries whose bias can be a mask: a view, a sum of two vectors, a product.

With the order of keys reversed, a function of the distance is a strided view of one row of numbers. Terms per key and
sums of gates are written out for one block of queries at a time, and so are a network of the distance and products of
queries with vectors of the distance, in memory that all blocks share. The kernel also returns the log-sum-exp of each
row, which the backward pass of the tiles reads; where no term needs a gradient, the kernel's own backward pass runs
block by block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from posenc.backends import fused_cpu
from posenc.backends.tiled import portions
from posenc.backends.tiled.softmax import Softmax
from posenc.backends.tiled.terms import Decay, PerKey, Row
from posenc.backends.tiled.tile import Tile, hidden_future
from posenc.backends.tiled.tiled_call import LOG2_E, TiledCall, hide

BLOCK = 256  # queries of one kernel call
WRITTEN = 128  # of one whose mask is the result of a product
MASKS = 1 << 20  # numbers of a mask that is written out; twice as many where heads share what it is computed from


def serves(call: TiledCall) -> bool:
    """Whether the kernel can take this call."""
    if not portions.available(call) or not isinstance(call.weights, Softmax):
        return False
    if any(isinstance(term, Decay) and term.steep(BLOCK // 2) for term in call.terms):
        return False  # few keys keep weight: small tiles leave out more than the kernel gains
    small = call.q.shape[2] * call.k.shape[2] < BLOCK * BLOCK // 4 or call.q.shape[2] < 16
    order_only = call.visibility.order_only and call.visibility.window is None and not small
    return order_only and (_of_keys(call) or (_written(call) and call.q.dtype == call.wide))


def serves_backward(call: TiledCall) -> bool:
    """Whether the kernel's backward pass can, which gives no gradient of a mask, and is slow in half precision."""
    fixed = not call.learned and not any(term.reads_queries for term in call.terms)
    return fixed and call.q.dtype == call.wide and serves(call)


def _of_keys(call: TiledCall) -> bool:
    """Whether all that is added depends on the distance or the key alone, whatever the query is."""
    return all(isinstance(term, Row | PerKey) for term in call.terms)


def _written(call: TiledCall) -> bool:
    """Whether what is added can be written down before the logits are known."""
    return call.chain is None and all(term.adds_a_mask for term in call.terms)


def _strips(call: TiledCall) -> list[tuple[int, int]]:
    """Ranges of key heads that look equally far, and whose masks are small if they must be written."""
    batch, num_kv_heads, keys = call.k.shape[:3]
    group = call.q.shape[1] // num_kv_heads
    strips = [(0, num_kv_heads)] if call.bounds is None else call.bounds.strips(num_kv_heads, group)
    if any(not isinstance(term, Row) for term in call.terms):
        numbers = 2 * MASKS if any(term.shares_features for term in call.terms) else MASKS // 2
        numbers = MASKS // BLOCK if _of_keys(call) else numbers // WRITTEN
        most = max(1, numbers // (batch * keys * group))
        strips = [(h, min(h + most, last)) for first, last in strips for h in range(first, last, most)]
    return strips


def _tiles(call: TiledCall, part: portions.Portion) -> Iterator[Tile]:
    """Blocks of queries."""
    queries, keys, causal = call.q.shape[2], call.k.shape[2], call.visibility.causal is True
    steep = any(isinstance(term, PerKey) and term.steep(BLOCK // 4) for term in call.terms)
    size = (
        BLOCK // 2 if steep else BLOCK if _of_keys(call) else WRITTEN
    )  # sums of strong gates lose digits within a block, and few keys matter
    for start in range(max(0, queries - keys) if causal else 0, queries, size):
        stop = min(start + size, queries)
        near, every = queries - stop if causal else 0, slice(0, call.k.shape[0])
        tile = Tile(every, part.heads, part.kv, start, stop, near, keys, queries, keys)
        yield tile if call.bounds is None else call.bounds.within(tile)


def _row(call: TiledCall) -> Tensor | None:
    """All functions of the distance as one row, with −inf after the query and where no weight is."""
    rows = [term.tensors[0] for term in call.terms if isinstance(term, Row)]
    total = sum(rows[1:], rows[0]) if rows else None
    if call.bounds is not None and call.bounds.row is not None:
        total = call.bounds.row
    queries, keys = call.q.shape[2], call.k.shape[2]
    if total is None and len(call.terms) == 0:
        total = call.q.new_zeros(1, queries + keys - 1, dtype=call.wide)
    if total is not None and call.visibility.causal:
        total = total.masked_fill(torch.arange(total.shape[-1], device=total.device) < queries - 1, -math.inf)
    return total


def _memory(call: TiledCall, part: portions.Portion) -> Tensor | None:
    """Where masks of a portion are written, one after another: fresh memory costs more than the product in it."""
    if _of_keys(call):
        return None
    rows = min(WRITTEN, call.q.shape[2])
    return call.q.new_empty(call.q.shape[0] * part.q.shape[1] * rows * (call.k.shape[2] + rows - 1), dtype=call.wide)


def _mask(call: TiledCall, row: Tensor | None, tile: Tile, memory: Tensor | None) -> Tensor:
    """The bias of a block, ``(batch | 1, heads | 1, rows, columns)``, as the kernel takes it."""
    if memory is not None:
        return _written_mask(call, tile, memory)
    view: Tensor | None = None
    if row is not None:
        first = tile.start + tile.near
        of_heads = row if row.shape[0] == 1 else row[tile.heads]
        view = of_heads[:, first : first + tile.rows + tile.columns - 1].unfold(-1, tile.columns, 1)[None]
    if view is not None and len(call.terms) == sum(isinstance(term, Row) for term in call.terms):
        return view
    shape = (tile.batch.stop - tile.batch.start, tile.heads.stop - tile.heads.start, tile.rows, tile.columns)
    written = torch.empty(shape, dtype=call.wide, device=call.q.device)
    fresh, least = view is None, 0.0
    if view is not None:
        written.copy_(view.expand(shape))
    for term in call.terms:
        if isinstance(term, PerKey):
            added = term.at_keys(tile, call.wide)
            least = min(least, float(added.amin()))
            if isinstance(term, Decay) and term.shift(tile) is None:
                term.add_apart(written.zero_() if fresh else written, tile)
            else:
                written = written.copy_(added.expand(shape)) if fresh else written.add_(added)
            fresh = False
    if view is None and call.visibility.causal and tile.offset < 0:
        future = hidden_future(tile.offset, tile.rows, min(tile.columns, -tile.offset), like=written)
        written[..., : future.shape[-1]].add_(future)
    if call.bounds is not None:
        of_rows = call.bounds.excess[tile.batch, tile.heads, tile.start : tile.stop].unsqueeze(-1)
        excess = float((of_rows - call.shift(tile) / LOG2_E).amax())  # rows that were left where they are lie too low
        if excess < -least:  # keep the kernel's exp out of its slow range
            torch.threshold_(written, -excess, -math.inf)
    return written


def _written_mask(call: TiledCall, tile: Tile, memory: Tensor) -> Tensor:
    """The same where some term computes it from queries, or with a network."""
    q = call.q[tile.batch, tile.heads, tile.start : tile.stop] * call.scale
    first, *later = sorted(call.terms, key=lambda term: isinstance(term, Row | PerKey))
    mask = first.mask(q, tile, memory)
    if later and len(mask) < len(q):
        mask = mask.expand(len(q), -1, -1, -1).contiguous()
    for term in later:
        term.add(mask, q, tile, None)
    hide(mask, call, tile, None)
    return mask


def forward(call: TiledCall) -> tuple[Tensor, Tensor]:
    """Results, and log2 of what the weights of each row were divided by."""
    out = call.q.new_zeros(*call.q.shape[:3], call.v.shape[3])
    norm = call.q.new_full((*call.q.shape[:3], 1), math.inf, dtype=call.wide)
    row = _row(call) if _of_keys(call) else None
    for part in portions.portions(call, _strips(call)):
        memory = _memory(call, part)
        for tile in _tiles(call, part):
            rows, seen = slice(tile.start, tile.stop), slice(tile.near, tile.far)
            mask = _mask(call, row, tile, memory)
            got, of_rows = fused_cpu.forward(
                part.q[:, :, rows], part.k[:, :, seen], part.v[:, :, seen], mask, call.scale
            )
            out[:, tile.heads, rows] = got[..., : out.shape[3]]
            norm[:, tile.heads, rows] = of_rows.unsqueeze(-1) * LOG2_E - call.shift(tile)
    return out, norm


def backward(call: TiledCall, grad: Tensor, out: Tensor, norm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v, where no term has one."""
    of_call = tuple(t.new_zeros(t.shape) for t in (call.q, call.k, call.v))
    row = _row(call) if _of_keys(call) else None
    for part in portions.portions(call, _strips(call)):
        of_k, of_v, of_out, outs = (*map(torch.zeros_like, (part.k, part.v)), *map(part.widened, (grad, out)))
        memory = _memory(call, part)
        for tile in _tiles(call, part):
            rows, seen = slice(tile.start, tile.stop), slice(tile.near, tile.far)
            norms = ((norm[:, tile.heads, rows] + call.shift(tile)) / LOG2_E).squeeze(-1)
            tensors = of_out[:, :, rows], part.q[:, :, rows], part.k[:, :, seen], part.v[:, :, seen], outs[:, :, rows]
            parts = fused_cpu.backward(*tensors, norms, _mask(call, row, tile, memory), call.scale)
            of_call[0][:, tile.heads, rows] = parts[0][..., : call.q.shape[3]]
            of_k[:, :, seen] += parts[1]
            of_v[:, :, seen] += parts[2]
        part.close(of_call, of_k, of_v)
    return of_call[0], of_call[1], of_call[2]
