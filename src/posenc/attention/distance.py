"""Attention under a bias that is a function of the distance, from one row of numbers a head and no matrix.

With key order reversed, r = keys − 1 − j, the bias of query i and key r is row[i + r]: a Hankel matrix, which is
a strided view of the row (``row.unfold``) and costs nothing. Softmax does not mind the order of keys. Blocks of
queries keep causal work at half; a block sees a suffix of the reversed keys.

A row without gradient lets PyTorch's own backward pass run. A learned row would push the kernel onto its slow path
with a full matrix, so it gets a backward pass of its own, which recomputes the weights block by block; the row's
gradient is the sums of dS along its diagonals, read off through a skewed view. The same operator serves compilers,
which see it as one node and need no new graph for a new length.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 256  # queries that run as one kernel call: measured with benchmarks/attention.py
BACKWARD_BLOCK = 64  # queries whose weights exist at a time in the backward pass


def attend(q: Tensor, k: Tensor, v: Tensor, row: Tensor, scale: float, causal: bool) -> Tensor:
    """softmax(scale · q·k + b(j − i)) v, ``(batch, heads, queries, head_dim)``.

    Args:
        q, k, v: as in `attention`, all of one width.
        row: ``(heads | 1, queries + keys − 1)``: the bias at distances queries − 1, queries − 2, …, −(keys − 1),
            where queries are the last tokens of the keys.
        causal: whether positive distances are hidden. A query before the first key gets zeros.
    """
    differentiable = torch.is_grad_enabled() and row.requires_grad
    if differentiable or torch.compiler.is_compiling():
        out: Tensor = _operator(q, k, v, row, scale, causal)
        return out
    return _forward(q, k, v, row, scale, causal)


def _hidden_future(row: Tensor, queries: int, keys: int, causal: bool) -> Tensor:
    """The row with −inf at positive distances where causal; its first queries − 1 entries up to the alignment."""
    if not causal:
        return row
    future = torch.arange(row.shape[-1], device=row.device) < queries - 1
    return row.masked_fill(future, -math.inf)


def _blocks(queries: int, keys: int, causal: bool, size: int) -> list[tuple[int, int, int]]:
    """(start, stop, first reversed key) of each block of queries that sees a key."""
    first = max(0, queries - keys) if causal else 0  # queries before the first key see nothing
    blocks = []
    for start in range(first, queries, size):
        stop = min(start + size, queries)
        blocks.append((start, stop, queries - stop if causal else 0))
    return blocks


def _view(row: Tensor, start: int, stop: int, skip: int, keys: int) -> Tensor:
    """The bias of one block, ``(1, heads | 1, rows, keys − skip)``: overlapping windows of the row, no copy."""
    return row[:, start + skip : stop + keys - 1].unfold(-1, keys - skip, 1)[None]


def _forward(q: Tensor, k: Tensor, v: Tensor, row: Tensor, scale: float, causal: bool) -> Tensor:
    queries, keys = q.shape[2], k.shape[2]
    row = _hidden_future(row, queries, keys, causal)
    k, v = k.flip(2), v.flip(2)
    grouped = q.shape[1] != k.shape[1]
    outs = [q.new_zeros(*q.shape[:2], max(0, queries - keys), q.shape[3])] if causal and queries > keys else []
    for start, stop, skip in _blocks(queries, keys, causal, BLOCK):
        outs.append(
            F.scaled_dot_product_attention(
                q[:, :, start:stop],
                k[:, :, skip:],
                v[:, :, skip:],
                attn_mask=_view(row, start, stop, skip, keys),
                scale=scale,
                enable_gqa=grouped,
            )
        )
    return outs[0] if len(outs) == 1 else torch.cat(outs, 2)


@torch.library.custom_op("posenc::attend_by_distance", mutates_args=())
def _operator(q: Tensor, k: Tensor, v: Tensor, row: Tensor, scale: float, causal: bool) -> Tensor:
    return _forward(q, k, v, row, scale, causal).contiguous()


@_operator.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, row: Tensor, scale: float, causal: bool) -> Tensor:
    return q.new_empty(q.shape)


@torch.library.custom_op("posenc::attend_by_distance_backward", mutates_args=())
def _backward_operator(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, row: Tensor, out: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _backward(grad, q, k, v, row, out, scale, causal)


@_backward_operator.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, row: Tensor, out: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), row.new_empty(row.shape)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    q, k, v, row, ctx.scale, ctx.causal = inputs
    ctx.save_for_backward(q, k, v, row, output)


def _differentiate(ctx, grad: Tensor):  # type: ignore[no-untyped-def]
    q, k, v, row, out = ctx.saved_tensors
    return *_backward_operator(grad, q, k, v, row, out, ctx.scale, ctx.causal), None, None


_operator.register_autograd(_differentiate, setup_context=_setup)


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, row: Tensor, out: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v and row: the weights of one block of queries at a time, in float32 or better."""
    wide = torch.promote_types(q.dtype, torch.float32)
    batch, heads, queries, width = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    masked = _hidden_future(row, queries, keys, causal)
    k_rev, v_rev = k.flip(2).to(wide), v.flip(2).to(wide)
    d_q = torch.zeros_like(q, dtype=wide)
    d_k, d_v = torch.zeros_like(k_rev), torch.zeros_like(v_rev)
    d_row = torch.zeros(row.shape[0], row.shape[1], dtype=wide, device=q.device)
    for start, stop, skip in _blocks(queries, keys, causal, BACKWARD_BLOCK):
        rows = stop - start
        fold = (batch, kv_heads, -1, width)  # the query heads of one key head, as rows
        q_block, grad_block, out_block = (t[:, :, start:stop].to(wide).reshape(fold) for t in (q, grad, out))
        k_block, v_block = k_rev[:, :, skip:], v_rev[:, :, skip:]
        scores = (q_block @ k_block.mT).mul_(scale).view(batch, heads, rows, -1)
        weights = scores.add_(_view(masked, start, stop, skip, keys)).softmax(-1).view(batch, kv_heads, -1, keys - skip)
        d_v[:, :, skip:] += weights.mT @ grad_block
        delta = (grad_block * out_block).sum(-1, keepdim=True)
        d_scores = (grad_block @ v_block.mT).sub_(delta).mul_(weights)
        d_q[:, :, start:stop] = (d_scores @ k_block).mul_(scale).view(batch, heads, rows, width)
        d_k[:, :, skip:] += (d_scores.mT @ q_block).mul_(scale)
        per_head = d_scores.view(batch, heads, rows, -1).sum(0)
        per_head = per_head.sum(0, keepdim=True) if row.shape[0] == 1 else per_head
        d_row[:, start + skip : stop + keys - 1] += _diagonal_sums(per_head)
    return d_q.to(q.dtype), d_k.flip(2).to(k.dtype), d_v.flip(2).to(v.dtype), d_row.to(row.dtype)


def _diagonal_sums(matrix: Tensor) -> Tensor:
    """Sums of ``matrix`` (heads, rows, columns) over equal i + r, ``(heads, rows + columns − 1)``.

    Row i is written i places to the right in a wider matrix of zeros, whose columns are then summed.
    """
    heads, rows, columns = matrix.shape
    length = rows + columns - 1
    skewed = matrix.new_zeros(heads, rows, length)
    skewed.as_strided((heads, rows, columns), (rows * length, length + 1, 1)).copy_(matrix)
    return skewed.sum(1)
