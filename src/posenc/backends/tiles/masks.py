"""PyTorch's fused kernel for blocks of queries under functions of the distance alone: its mask is a view of one row.

With the order of keys reversed, a function of the distance is constant along anti-diagonals, so that a block's mask is
a strided view of one row of numbers and nothing is written. The kernel also returns the log-sum-exp of each row, which
the backward pass of the tiles reads; where the row needs no gradient, the kernel's own backward pass runs block by
block. Measured at 4,096 tokens (benchmarks/attention.py): ALiBi 0.65 and T5 0.68 of the time of the tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.backends import fused_cpu
from posenc.backends.tiles.block import ELEMENTS, LOG2_E, TiledCall
from posenc.structure import Row, Sticks
from posenc.structure.tile import Tile, toeplitz_view

BLOCK = 256  # queries of one kernel call


def serves(call: TiledCall) -> bool:
    """Whether the kernel can take this call, and it is long enough for blocks to be worth their while."""
    unknown = call.softcap is not None or call.dropout is not None or isinstance(call.weights, Sticks)
    if unknown or not fused_cpu.exists(call.q):
        return False
    small = call.q.shape[2] * call.k.shape[2] < BLOCK * BLOCK // 4 or call.q.shape[2] < 16
    order_only = call.visibility.order_only and call.visibility.window is None
    return order_only and not small and all(isinstance(term, Row) for term in call.terms)


def serves_backward(call: TiledCall) -> bool:
    """Whether the kernel's backward pass can, which gives no gradient of a mask, and is slow in half precision."""
    return not any(term.learned for term in call.terms) and call.q.dtype == call.dtype and serves(call)


class PaddedHeads(NamedTuple):
    """Some heads as the kernel takes them: q, k and v of one width, keys and values reversed."""

    kv: slice
    heads: slice
    q: Tensor
    k: Tensor
    v: Tensor

    def padded(self, x: Tensor) -> Tensor:
        """These heads of a tensor ``(batch, heads, queries, any)``, as wide as the others."""
        return _padded(x[:, self.heads], self.q.shape[3])


def _head_groups(call: TiledCall) -> Iterator[PaddedHeads]:
    """All key heads, no more at a time than `ELEMENTS` numbers of keys; where far keys are pruned, by equal reach."""
    num_kv_heads, group = call.k.shape[1], call.q.shape[1] // call.k.shape[1]
    width = max(call.v.shape[3], call.q.shape[3])
    most = max(1, ELEMENTS // (call.k.shape[0] * call.k.shape[2] * width))
    for first, last in [(0, num_kv_heads)] if call.bounds is None else call.bounds.head_groups(num_kv_heads, group):
        for low in range(first, last, most):
            kv = slice(low, min(low + most, last))
            heads = slice(kv.start * group, kv.stop * group)
            k, v = (_padded(t[:, kv].flip(2), width) for t in (call.k, call.v))
            yield PaddedHeads(kv, heads, _padded(call.q[:, heads], width), k, v)


def _padded(x: Tensor, width: int) -> Tensor:
    """``x`` with zeros to this width."""
    return x if x.shape[3] == width else F.pad(x, (0, width - x.shape[3]))


def _tiles(call: TiledCall, group: PaddedHeads) -> Iterator[Tile]:
    """Blocks of queries."""
    queries, keys, causal = call.q.shape[2], call.k.shape[2], call.visibility.causal is True
    for start in range(max(0, queries - keys) if causal else 0, queries, BLOCK):
        stop = min(start + BLOCK, queries)
        near, every = queries - stop if causal else 0, slice(0, call.k.shape[0])
        tile = Tile(every, group.heads, group.kv, start, stop, near, keys, queries, keys)
        yield tile if call.bounds is None else call.bounds.within(tile)


def _row(call: TiledCall) -> Tensor:
    """All functions of the distance as one row, with −inf after the query and where no weight is."""
    queries, keys = call.q.shape[2], call.k.shape[2]
    total = call.q.new_zeros(1, queries + keys - 1, dtype=call.dtype)
    if call.bounds is not None and call.bounds.row is not None:
        total = call.bounds.row
    elif call.terms:
        first, *more = (term.values for term in call.terms if isinstance(term, Row))
        total = sum(more, first)
    if call.visibility.causal:
        total = total.masked_fill(torch.arange(total.shape[-1], device=total.device) < queries - 1, -math.inf)
    return total


def _mask(row: Tensor, tile: Tile) -> Tensor:
    """The bias of a block, ``(1, heads | 1, rows, columns)``, as the kernel takes it: a view."""
    return toeplitz_view(row if row.shape[0] == 1 else row[tile.heads], tile)[None]


def forward(call: TiledCall) -> tuple[Tensor, Tensor]:
    """Results, and log2 of what the weights of each row were divided by."""
    out = call.q.new_zeros(*call.q.shape[:3], call.v.shape[3])
    norm = call.q.new_full((*call.q.shape[:3], 1), math.inf, dtype=call.dtype)
    row = _row(call)
    for group in _head_groups(call):
        for tile in _tiles(call, group):
            rows, seen = slice(tile.start, tile.stop), slice(tile.near, tile.far)
            block_out, block_norm = fused_cpu.forward(
                group.q[:, :, rows], group.k[:, :, seen], group.v[:, :, seen], _mask(row, tile), call.scale
            )
            out[:, tile.heads, rows] = block_out[..., : out.shape[3]]
            norm[:, tile.heads, rows] = block_norm.unsqueeze(-1) * LOG2_E
    return out, norm


def backward(call: TiledCall, grad: Tensor, out: Tensor, norm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v, where no term has one."""
    grad_q, grad_k, grad_v = (t.new_zeros(t.shape) for t in (call.q, call.k, call.v))
    row = _row(call)
    for group in _head_groups(call):
        sum_k, sum_v = map(torch.zeros_like, (group.k, group.v))
        grad_out, outs = map(group.padded, (grad, out))
        for tile in _tiles(call, group):
            rows, seen = slice(tile.start, tile.stop), slice(tile.near, tile.far)
            block = group.q[:, :, rows], group.k[:, :, seen], group.v[:, :, seen], outs[:, :, rows]
            block_norm = (norm[:, tile.heads, rows] / LOG2_E).squeeze(-1)
            block_q, block_k, block_v = fused_cpu.backward(
                grad_out[:, :, rows], *block, block_norm, _mask(row, tile), call.scale
            )
            grad_q[:, tile.heads, rows] = block_q[..., : call.q.shape[3]]
            sum_k[:, :, seen] += block_k
            sum_v[:, :, seen] += block_v
        for total, sums in ((grad_k, sum_k), (grad_v, sum_v)):
            total[:, group.kv] = sums.flip(2)[..., : total.shape[3]]
    return grad_q, grad_k, grad_v
