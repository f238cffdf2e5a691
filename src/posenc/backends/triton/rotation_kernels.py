"""Kernels that rotate queries and keys, and make a table of whole positions: see `rotation`."""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator"
# ruff: noqa: N803
# Triton has no types, and is not there on most machines; its constants are arguments in capitals.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rotate(
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
def table(
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
