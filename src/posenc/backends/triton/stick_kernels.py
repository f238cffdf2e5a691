"""Kernels of stick-breaking: the walk from the newest key back, and the two of the backward pass.

In powers of two: s in units of log2, kept(s) = log2(1 + 2^s), used_j the sum of it over key j and all newer ones,

    a_j = 2^(s_j − used_j)            g_j = a_j · (do · v_j)
    ds_l = g_l − beta_l · ( Σ_{j ≤ l} g_j − d_used / ln 2 )

Neither sum is found by subtraction: sums that run from the newest key are kept by the walk at the newer edge of each
block of keys, then blocks are walked from the oldest on, whose running sum of g is kept at the older edge. A total
minus what has been passed would leave the rounding of the total in all that is small: in the newest weights for
``used``, in all gradients of old keys for g.
"""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: N803
# Triton has no types, and is not there on most machines; its constants are arguments in capitals.

from __future__ import annotations

import triton
import triton.language as tl

from posenc.backends.triton.tile import (
    LOG2_E,
    add_rows,
    is_visible,
    key_ranges,
    load_tile,
    product,
    query_ranges,
    store_rows,
)

AT_ONCE = tl.constexpr(4)
_LEAST = tl.constexpr(1.2e-38)  # what a seen key takes at least, so that used > 0 tells that a key was seen


@triton.jit
def shares(s, carry, visible):
    """A tile's weights, betas and sums of what each row's keys use; ``carry`` is used by newer tiles."""
    s = tl.where(visible, s, float("-inf"))
    y = tl.exp2(-tl.abs(s))
    # log2(1 + y): the series keeps the digits of a small y
    series = y * LOG2_E * (1.0 - y * (0.5 - y * (0.3333333333 - y * 0.25)))
    used = tl.maximum(s, 0.0) + tl.where(y < 0.0078125, series, tl.log2(1.0 + y))
    used = tl.where(visible, tl.maximum(used, _LEAST), 0.0)
    weights = tl.exp2(s - (carry[:, None] + tl.cumsum(used, 1, reverse=True)))
    beta = tl.where(s >= 0, 1.0, y) / (1.0 + y)
    return weights, beta, tl.sum(used, 1)


@triton.jit
def walk(
    q, k, v, q_ids, k_ids, out, used_out, carries, scale, enough,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, ids_q, ids_k,
    heads, group, start, stop, queries, keys, window, blocks,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, CURRENT: tl.constexpr, EXACT: tl.constexpr,
    KEEP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    DV: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Queries start … stop − 1: results and what they used of their sticks; with KEEP carries of tiles alone."""
    which = tl.program_id(1).to(tl.int64)
    b, h = which // heads, which % heads
    at_ids = q_ids + b * ids_q, k_ids + b * ids_k
    first = start + tl.program_id(0) * ROWS
    rows = first + tl.arange(0, ROWS)
    q_tile = load_tile(q + b * q_batch + h * q_head, first, stop, q_row, ROWS, D, WIDTH)
    k_start, v_start = k + b * k_batch + h // group * k_head, v + b * v_batch + h // group * v_head
    used = tl.where(rows < stop, 0.0, float("inf"))
    total = tl.zeros((ROWS, VALUES), tl.float32)
    low, _low, _high, high = key_ranges(first, queries, keys, window, CAUSAL, WINDOW, IDS, ROWS, COLUMNS)
    # Keys are loaded ahead within a few blocks; whether any stick is left is asked between them.
    while (high > low) & (tl.min(used, 0) <= enough):
        next_high = tl.maximum(high - AT_ONCE, low)
        for step in range(high - next_high):
            block = high - 1 - step
            columns = block * COLUMNS + tl.arange(0, COLUMNS)
            visible = is_visible(
                rows[:, None], columns[None, :], *at_ids, queries, keys, window, CAUSAL, WINDOW, IDS, CURRENT
            )
            k_tile = load_tile(k_start, block * COLUMNS, keys, k_row, COLUMNS, D, WIDTH)
            weights, _, uses = shares(product(q_tile, tl.trans(k_tile), EXACT) * (scale * LOG2_E), used, visible)
            if KEEP:
                at = (which * (stop - start) + rows - start) * blocks + block
                tl.store(carries + at, used, mask=rows < stop)
            else:
                v_tile = load_tile(v_start, block * COLUMNS, keys, v_row, COLUMNS, DV, VALUES)
                total += product(weights.to(v_tile.dtype), v_tile, EXACT)
            used += uses
        high = next_high
    if not KEEP:
        tl.store(used_out + which * queries + rows, used, mask=rows < stop)
        to = out + which * queries * DV
        store_rows(to, total, first, stop, DV, DV, ROWS, VALUES)


@triton.jit
def queries_backward(
    q, k, v, q_ids, k_ids, grad, grad_used, carries, behind, d_q, scale, enough,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, ids_q, ids_k,
    heads, group, start, stop, queries, keys, window, blocks,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, CURRENT: tl.constexpr, EXACT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, DV: tl.constexpr,
    VALUES: tl.constexpr,
):  # fmt: skip
    """From the oldest key on: gradients of queries start … stop − 1, and ``behind``, sums of g over older tiles."""
    which = tl.program_id(1).to(tl.int64)
    b, h = which // heads, which % heads
    at_ids = q_ids + b * ids_q, k_ids + b * ids_k
    first = start + tl.program_id(0) * ROWS
    rows = first + tl.arange(0, ROWS)
    q_tile = load_tile(q + b * q_batch + h * q_head, first, stop, q_row, ROWS, D, WIDTH)
    first_row = which * queries
    grad_tile = load_tile(grad + first_row * DV, first, stop, DV, ROWS, DV, VALUES)
    k_start, v_start = k + b * k_batch + h // group * k_head, v + b * v_batch + h // group * v_head
    sums = -LOG2_E * tl.load(grad_used + first_row + rows, mask=rows < stop, other=0.0)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    low, _low, _high, high = key_ranges(first, queries, keys, window, CAUSAL, WINDOW, IDS, ROWS, COLUMNS)
    for block in range(low, high):
        at = (which * (stop - start) + rows - start) * blocks + block
        carry = tl.load(carries + at, mask=rows < stop, other=float("inf"))
        if tl.min(carry, 0) <= enough:
            columns = block * COLUMNS + tl.arange(0, COLUMNS)
            visible = is_visible(
                rows[:, None], columns[None, :], *at_ids, queries, keys, window, CAUSAL, WINDOW, IDS, CURRENT
            )
            k_tile = load_tile(k_start, block * COLUMNS, keys, k_row, COLUMNS, D, WIDTH)
            v_tile = load_tile(v_start, block * COLUMNS, keys, v_row, COLUMNS, DV, VALUES)
            s = product(q_tile, tl.trans(k_tile), EXACT) * (scale * LOG2_E)
            weights, beta, _ = shares(s, carry, visible)
            g = weights * product(grad_tile, tl.trans(v_tile), EXACT)
            grad_scores = g - beta * (sums[:, None] + tl.cumsum(g, 1))
            total += product(grad_scores.to(k_tile.dtype), k_tile, EXACT)
            tl.store(behind + at, sums, mask=rows < stop)
            sums += tl.sum(g, 1)
    store_rows(d_q + first_row * D, total * scale, first, stop, D, D, ROWS, WIDTH)


@triton.jit
def keys_backward(
    q, k, v, q_ids, k_ids, grad, carries, behind, d_k, d_v, scale, enough,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, ids_q, ids_k,
    heads, group, start, stop, queries, keys, window, blocks,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, CURRENT: tl.constexpr, EXACT: tl.constexpr,
    MORE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    DV: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """What queries start … stop − 1 add to the gradients of one block of keys and values, for all heads of a group."""
    which = tl.program_id(1).to(tl.int64)  # key heads of all rows of the batch
    b, kv = which // (heads // group), which % (heads // group)
    at_ids = q_ids + b * ids_q, k_ids + b * ids_k
    block = tl.program_id(0)
    first_key = block * COLUMNS
    columns = first_key + tl.arange(0, COLUMNS)
    k_tile = load_tile(k + b * k_batch + kv * k_head, first_key, keys, k_row, COLUMNS, D, WIDTH)
    v_tile = load_tile(v + b * v_batch + kv * v_head, first_key, keys, v_row, COLUMNS, DV, VALUES)
    grad_k = tl.zeros((COLUMNS, WIDTH), tl.float32)
    grad_v = tl.zeros((COLUMNS, VALUES), tl.float32)
    low, _low, _high, high = query_ranges(first_key, queries, keys, window, CAUSAL, WINDOW, IDS, ROWS, COLUMNS)
    low, high = tl.maximum(low * ROWS, start), tl.minimum(high * ROWS, stop)
    for member in range(group):
        h = kv * group + member
        head = b * heads + h
        for first in range(low, high, ROWS):
            rows = first + tl.arange(0, ROWS)
            at = (head * (stop - start) + rows - start) * blocks + block
            carry = tl.load(carries + at, mask=rows < stop, other=float("inf"))
            if tl.min(carry, 0) <= enough:
                visible = is_visible(
                    rows[:, None], columns[None, :], *at_ids, queries, keys, window, CAUSAL, WINDOW, IDS, CURRENT
                )
                q_tile = load_tile(q + b * q_batch + h * q_head, first, stop, q_row, ROWS, D, WIDTH)
                grad_start = grad + head * queries * DV
                grad_tile = load_tile(grad_start, first, stop, DV, ROWS, DV, VALUES)
                s = product(q_tile, tl.trans(k_tile), EXACT) * (scale * LOG2_E)
                weights, beta, _ = shares(s, carry, visible)
                g = weights * product(grad_tile, tl.trans(v_tile), EXACT)
                sums = tl.load(behind + at, mask=rows < stop, other=0.0)
                grad_scores = g - beta * (sums[:, None] + tl.cumsum(g, 1))
                grad_k += product(tl.trans(grad_scores).to(q_tile.dtype), q_tile, EXACT)
                grad_v += product(tl.trans(weights).to(grad_tile.dtype), grad_tile, EXACT)
    add_rows(d_k + which * keys * D, grad_k * scale, first_key, keys, D, D, MORE, COLUMNS, WIDTH)
    add_rows(d_v + which * keys * DV, grad_v, first_key, keys, DV, DV, MORE, COLUMNS, VALUES)
