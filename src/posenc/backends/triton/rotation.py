"""Queries and keys rotated in one launch and one pass over memory: what `posenc.rotary` defines, for both layouts.

    half:          x = [ a0 a1 a2 … | b0 b1 b2 … ]        interleaved:   x = [ a0 b0 a1 b1 a2 b2 … ]
    (a, b) → (a·cos − b·sin, b·cos + a·sin)                backwards: by the opposite angles

In float32, rounded once. The backward pass is the same kernel with −sin; it keeps the table and neither q nor k. The
table itself, cos and sin of exact angles, takes one launch too.
"""

# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"
# ruff: noqa: N803

from __future__ import annotations

import math
from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from posenc.backends.triton import launch
from posenc.operators import operator_with_backward

TOKENS = 32  # of a tile; not measured
WARPS = 4


@triton.jit
def _rotate(  # type: ignore[no-untyped-def]
    q, k, cos, sin, new_q, new_k,
    q_batch, q_head, q_row, k_batch, k_head, k_row, table_batch, table_row,
    heads, num_kv_heads, q_tokens, k_tokens, width, pairs,
    HALF: tl.constexpr, INVERSE: tl.constexpr, ROWS: tl.constexpr, PAIRS: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Some tokens of one head of q or of k."""
    which = tl.program_id(0).to(tl.int64)
    b, h = which // (heads + num_kv_heads), which % (heads + num_kv_heads)
    tokens = tl.where(h < heads, q_tokens, k_tokens)
    if h < heads:
        x, step = q + b * q_batch + h * q_head, q_row
        new = new_q + (b * heads + h) * tokens * width
    else:
        x, step = k + b * k_batch + (h - heads) * k_head, k_row
        new = new_k + (b * num_kv_heads + h - heads) * tokens * width
    rows, pair = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, PAIRS)
    in_rows = (rows < tokens)[:, None]
    inside = in_rows & (pair < pairs)[None, :]
    at = (rows + k_tokens - tokens).to(tl.int64)  # queries are the last of the keys
    at_table = b * table_batch + at[:, None] * table_row + pair[None, :]
    c, s = tl.load(cos + at_table, mask=inside, other=0.0), tl.load(sin + at_table, mask=inside, other=0.0)
    if INVERSE:
        s = -s
    old, new = x + rows.to(tl.int64)[:, None] * step, new + rows.to(tl.int64)[:, None] * width
    if HALF:
        first, second = pair[None, :], (pair + pairs)[None, :]
        a, b = tl.load(old + first, mask=inside, other=0.0), tl.load(old + second, mask=inside, other=0.0)
        a, b = a.to(tl.float32), b.to(tl.float32)
        tl.store(new + first, (a * c - b * s).to(new_q.dtype.element_ty), mask=inside)
        tl.store(new + second, (b * c + a * s).to(new_q.dtype.element_ty), mask=inside)
    else:
        both = tl.arange(0, 2 * PAIRS)
        inside = in_rows & (both < 2 * pairs)[None, :]
        x_tile = tl.load(old + both[None, :], mask=inside, other=0.0).to(tl.float32)
        a, b = tl.split(tl.reshape(x_tile, (ROWS, PAIRS, 2)))
        rotated = tl.reshape(tl.join(a * c - b * s, b * c + a * s), (ROWS, 2 * PAIRS))
        tl.store(new + both[None, :], rotated.to(new_q.dtype.element_ty), mask=inside)
    if REST > 0:
        rest = 2 * pairs + tl.arange(0, REST)
        inside = in_rows & (rest < width)[None, :]
        tl.store(new + rest[None, :], tl.load(old + rest[None, :], mask=inside, other=0.0), mask=inside)


@triton.jit
def _table(  # type: ignore[no-untyped-def]
    positions, turns, cos, sin, tokens, pairs, RADIANS: tl.constexpr, GAIN: tl.constexpr, ROWS: tl.constexpr,
    PAIRS: tl.constexpr,
):  # fmt: skip
    """cos and sin of some tokens, times the gain: `posenc.frequencies.phase`, whose int64 product wraps around."""
    rows, pair = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, PAIRS)
    inside = (rows < tokens)[:, None] & (pair < pairs)[None, :]
    place = tl.load(positions + rows, mask=rows < tokens, other=0)
    turn = tl.load(turns + pair, mask=pair < pairs, other=0)
    angle = (place[:, None] * turn[None, :]).to(tl.float64) * tl.full((), RADIANS, tl.float64)
    gain, at = tl.full((), GAIN, tl.float64), rows.to(tl.int64)[:, None] * pairs + pair[None, :]
    tl.store(cos + at, (tl.cos(angle) * gain).to(tl.float32), mask=inside)
    tl.store(sin + at, (tl.sin(angle) * gain).to(tl.float32), mask=inside)


def rotation_table(positions: Tensor, turns: Tensor, gain: float) -> tuple[Tensor, Tensor]:
    """cos and sin ``(*positions.shape, pairs)``, float32, times the gain, without gradients.

    Args:
        positions: int64, of any shape.
        turns: int64 ``(pairs,)``, frequencies as `Frequencies.fractions` gives them.
        gain: a factor.
    """
    positions, pairs = positions.contiguous(), len(turns)
    cos = torch.empty(*positions.shape, pairs, dtype=torch.float32, device=positions.device)
    sin = torch.empty_like(cos)
    _table[(-(-positions.numel() // TOKENS),)](
        positions, turns, cos, sin, positions.numel(), pairs, RADIANS=2 * math.pi / 2**64, GAIN=gain, ROWS=TOKENS,
        PAIRS=1 << (pairs - 1).bit_length(), num_warps=WARPS,
    )  # fmt: skip
    return cos, sin


def rotate_queries_and_keys(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, layout: Literal["half", "interleaved"]
) -> tuple[Tensor, Tensor]:
    """q and k rotated by one table; channels past 2 · pairs pass through.

    Args:
        q: ``(batch, heads, queries, head_dim)``, the last of the tokens.
        k: ``(batch, num_kv_heads, tokens, head_dim)``, in the dtype of q: float32 or less; num_kv_heads may be 0.
        cos, sin: ``(tokens, pairs)`` or ``(batch | 1, 1, tokens, pairs)``, float32; without gradients.
        layout: which channels are pairs.
    """
    cos, sin = (t.reshape(-1, *t.shape[-2:]).contiguous() for t in (cos, sin))
    rotated: tuple[Tensor, Tensor] = _operator(q, k, cos, sin, layout == "half", False)
    return rotated


def _forward(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, half: bool, inverse: bool) -> tuple[Tensor, Tensor]:
    (batch, heads, queries, width), (num_kv_heads, tokens), pairs = q.shape, k.shape[1:3], cos.shape[-1]
    q, k = launch.row_contiguous(q), launch.row_contiguous(k)
    new_q, new_k = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k))
    rest = width - 2 * pairs
    _rotate[(batch * (heads + num_kv_heads), -(-tokens // TOKENS))](
        q, k, cos, sin, new_q, new_k, *launch.strides((q, k)),
        0 if cos.shape[0] == 1 else cos.stride(0), cos.stride(1), heads, num_kv_heads, queries, tokens, width, pairs,
        HALF=half, INVERSE=inverse, ROWS=TOKENS, PAIRS=1 << (pairs - 1).bit_length(),
        REST=0 if rest == 0 else 1 << (rest - 1).bit_length(), num_warps=WARPS,
    )  # fmt: skip
    return new_q, new_k


def _backward(
    grad_q: Tensor, grad_k: Tensor, cos: Tensor, sin: Tensor, half: bool, inverse: bool
) -> tuple[Tensor, Tensor]:
    rotated: tuple[Tensor, Tensor] = _operator(grad_q, grad_k, cos, sin, half, not inverse)
    return rotated


_operator = operator_with_backward(
    "rotate_queries_and_keys",
    _forward,
    _backward,
    fake=lambda q, k, cos, sin, half, inverse: (q.new_empty(q.shape), k.new_empty(k.shape)),
    fake_backward=None,  # it is the operator itself, of any order
    keep=lambda inputs, outputs: inputs[2:],
)
