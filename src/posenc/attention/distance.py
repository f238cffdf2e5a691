"""Attention under a bias that is a function of the distance, from one row of numbers a head and no matrix.

With key order reversed, r = keys − 1 − j, the bias of query i and key r is row[i + r]: a Hankel matrix, which is
a strided view of the row (``row.unfold``) and costs nothing. Softmax does not mind the order of keys. Blocks of
queries keep causal work at half; a block sees a suffix of the reversed keys.

Keys so far away that their bias puts their weight below float rounding are left out (`reach`): ALiBi's steep heads
look at a few hundred tokens, whatever the length. That is exact to rounding, by a bound on the scores, and it keeps
weights out of the range of denormal numbers, where many processors are slow.

A row without gradient lets PyTorch's own backward pass run. A learned row would push the kernel onto its slow path
with a full matrix, so it gets a backward pass of its own, which recomputes the weights block by block; the row's
gradient is the sums of dS along its diagonals, read off through a skewed view. The same operator serves compilers,
which see it as one node and need no new graph for a new length. It has first derivatives only: for second ones and
for torch.func's transforms take path="dense".
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 256  # queries that run as one kernel call; larger blocks waste more of the causal half
BACKWARD_BLOCK = 64  # queries whose weights exist at a time in the backward pass


class Strip(NamedTuple):
    """Neighbouring key heads whose biases reach equally far; everything below works strip by strip."""

    first: int  # key heads first … last − 1
    last: int
    low: int  # indices low … high − 1 of the row; outside, no weight survives rounding
    high: int


def attend(q: Tensor, k: Tensor, v: Tensor, row: Tensor, scale: float, causal: bool) -> Tensor:
    """softmax(scale · q·k + b(j − i)) v, ``(batch, heads, queries, head_dim)``.

    Args:
        q, k, v: as in `attention`, all of one width.
        row: ``(heads | 1, queries + keys − 1)``: the bias at distances queries − 1, queries − 2, …, −(keys − 1),
            where queries are the last tokens of the keys.
        causal: whether positive distances are hidden. A query before the first key gets zeros.
    """
    if torch.compiler.is_compiling() or wants_own_backward(q, k, v, row):
        out: Tensor = _operator(q, k, v, row, scale, causal)
        return out
    return _forward(q, k, v, row, scale, causal)


def wants_own_backward(q: Tensor, k: Tensor, v: Tensor, row: Tensor) -> bool:
    """Whether the backward pass here is better than the kernel's: for a learned row, and in half precision.

    On CPU the kernel's own backward is slower in bfloat16 than in float32, most of all at short lengths.
    """
    half = q.dtype in (torch.bfloat16, torch.float16)
    return torch.is_grad_enabled() and (row.requires_grad or (half and any(t.requires_grad for t in (q, k, v))))


def reach(q: Tensor, k: Tensor, row: Tensor, scale: float) -> tuple[list[Strip], Tensor]:
    """Where the row matters, by key head, and the row with −inf where it does not.

    A score exceeds the one at distance 0 by at most |q_i| · max|k| · scale − q_i·k_i · scale. A key whose bias lies
    lower than the bias at distance 0 by that, by log(keys) and by a margin, has together with all keys like it less
    than e^−margin of the row's weight: 2e-9 in float32, 4e-18 in float64.
    """
    queries, keys, kv_heads = q.shape[2], k.shape[2], k.shape[1]
    everything = [Strip(0, kv_heads, 0, row.shape[-1])]
    if queries > keys or row.shape[0] == 1 or max(queries, keys) <= 2 * BLOCK:
        return everything, row  # no key at distance 0, no bias, or nothing to gain
    with torch.no_grad():
        wide = torch.promote_types(q.dtype, torch.float32)
        of_group = k.to(wide).repeat_interleave(q.shape[1] // kv_heads, 1)
        largest, own = of_group.norm(dim=-1).amax(2, keepdim=True), of_group[:, :, keys - queries :]
        excess = q.norm(dim=-1, dtype=wide) * largest * abs(scale) - (q.to(wide) * own).sum(-1) * scale
        margin = 40.0 if wide == torch.float64 else 20.0
        floor = row[:, queries - 1] - (excess.amax((0, 2)) + math.log(keys) + margin)
        matters = ~(row < floor.unsqueeze(-1))  # also where a score is NaN or infinite
        row = row.masked_fill(~matters, -math.inf)
        matters = matters.view(kv_heads, -1, row.shape[-1]).any(1)
        index = torch.arange(row.shape[-1], device=row.device)
        low = index.where(matters, row.shape[-1]).amin(-1) // BLOCK * BLOCK
        high = (index.where(matters, 0).amax(-1) // BLOCK + 1) * BLOCK
    strips: list[Strip] = []
    for head, (start, stop) in enumerate(zip(low.tolist(), high.clamp(max=row.shape[-1]).tolist(), strict=True)):
        if strips and strips[-1][2:] == (start, stop):
            strips[-1] = strips[-1]._replace(last=head + 1)
        else:
            strips.append(Strip(head, head + 1, start, stop))
    return strips, row


def _hidden_future(row: Tensor, queries: int, causal: bool) -> Tensor:
    """The row with −inf at positive distances where causal: its first queries − 1 entries."""
    if not causal:
        return row
    future = torch.arange(row.shape[-1], device=row.device) < queries - 1
    return row.masked_fill(future, -math.inf)


def _blocks(queries: int, keys: int, causal: bool, strip: Strip, size: int) -> list[tuple[int, int, int, int]]:
    """(start, stop) of each block of queries that sees a key, and (from, to) of the reversed keys that it sees."""
    first = max(0, queries - keys) if causal else 0  # queries before the first key see nothing
    blocks = []
    for start in range(first, queries, size):
        stop = min(start + size, queries)
        nearest = max(queries - stop if causal else 0, strip.low - stop + 1)
        blocks.append((start, stop, nearest, min(keys, strip.high - start)))
    return blocks


def _view(row: Tensor, start: int, stop: int, nearest: int, farthest: int) -> Tensor:
    """The bias of one block, ``(1, heads | 1, rows, keys)``: overlapping windows of the row, no copy."""
    return row[:, start + nearest : stop + farthest - 1].unfold(-1, farthest - nearest, 1)[None]


def _forward(q: Tensor, k: Tensor, v: Tensor, row: Tensor, scale: float, causal: bool) -> Tensor:
    queries, keys, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    strips, row = reach(q, k, row, scale)
    row, k, v = _hidden_future(row, queries, causal), k.flip(2), v.flip(2)
    outs = []
    for strip in strips:
        q_heads, kv_heads = slice(strip.first * group, strip.last * group), slice(strip.first, strip.last)
        q_strip, k_strip, v_strip = q[:, q_heads], k[:, kv_heads], v[:, kv_heads]
        row_strip = row if row.shape[0] == 1 else row[q_heads]
        parts = []
        if causal and queries > keys:
            parts.append(q_strip.new_zeros(*q_strip.shape[:2], queries - keys, q.shape[3]))
        for start, stop, nearest, farthest in _blocks(queries, keys, causal, strip, BLOCK):
            parts.append(
                F.scaled_dot_product_attention(
                    q_strip[:, :, start:stop],
                    k_strip[:, :, nearest:farthest],
                    v_strip[:, :, nearest:farthest],
                    attn_mask=_view(row_strip, start, stop, nearest, farthest),
                    scale=scale,
                    enable_gqa=group > 1,
                )
            )
        outs.append(parts[0] if len(parts) == 1 else torch.cat(parts, 2))
    return outs[0] if len(outs) == 1 else torch.cat(outs, 1)


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
    queries, keys, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    strips, near = reach(q, k, row, scale)
    hidden = _hidden_future(near, queries, causal)
    k_rev, v_rev = k.flip(2).to(wide), v.flip(2).to(wide)
    d_q, d_k, d_v, d_row = (torch.zeros(t.shape, dtype=wide, device=t.device) for t in (q, k, v, row))
    for strip in strips:
        q_heads, kv_heads = slice(strip.first * group, strip.last * group), slice(strip.first, strip.last)
        row_heads = slice(0, 1) if row.shape[0] == 1 else q_heads
        for start, stop, nearest, farthest in _blocks(queries, keys, causal, strip, BACKWARD_BLOCK):
            rows, seen = (slice(None), q_heads, slice(start, stop)), (slice(None), kv_heads, slice(nearest, farthest))
            along = slice(start + nearest, stop + farthest - 1)
            bias = _view(hidden[row_heads], start, stop, nearest, farthest)
            of_q, of_k, of_v, of_row = _block_gradients(
                grad[rows].to(wide), q[rows].to(wide), out[rows].to(wide), k_rev[seen], v_rev[seen], bias, scale
            )
            d_q[rows], d_row[row_heads, along] = of_q, d_row[row_heads, along] + of_row
            d_k[seen] += of_k
            d_v[seen] += of_v
    return d_q.to(q.dtype), d_k.flip(2).to(k.dtype), d_v.flip(2).to(v.dtype), d_row.to(row.dtype)


def _block_gradients(
    grad: Tensor, q: Tensor, out: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One block: gradients of its q, k, v and, along its diagonals, of the row's entries ``(heads | 1, entries)``."""
    batch, heads, rows, width = q.shape
    fold = (batch, k.shape[1], -1, width)  # the query heads of one key head, as rows: no copies of k and v
    q, grad, out = q.reshape(fold), grad.reshape(fold), out.reshape(fold)
    scores = (q @ k.mT).mul_(scale).view(batch, heads, rows, -1).add_(bias)
    weights = scores.softmax(-1).view(batch, k.shape[1], -1, k.shape[2])
    d_v = weights.mT @ grad
    delta = (grad * out).sum(-1, keepdim=True)
    d_scores = (grad @ v.mT).sub_(delta).mul_(weights)
    d_q, d_k = (d_scores @ k).mul_(scale).view(batch, heads, rows, width), (d_scores.mT @ q).mul_(scale)
    per_head = d_scores.view(batch, heads, rows, -1).sum(0)
    return d_q, d_k, d_v, _diagonal_sums(per_head.sum(0, keepdim=True) if bias.shape[1] == 1 else per_head)


def _diagonal_sums(matrix: Tensor) -> Tensor:
    """Sums of ``matrix`` (heads, rows, columns) over equal i + r, ``(heads, rows + columns − 1)``.

    Row i is written i places to the right in a wider matrix of zeros, whose columns are then summed.
    """
    heads, rows, columns = matrix.shape
    length = rows + columns - 1
    skewed = matrix.new_zeros(heads, rows, length)
    skewed.as_strided((heads, rows, columns), (rows * length, length + 1, 1)).copy_(matrix)
    return skewed.sum(1)
