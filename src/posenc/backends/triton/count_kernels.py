"""Kernels of attention whose positions count gates: the walk from the newest key back, and two of the backward pass.

    p_ij = min( Σ_{j ≤ l} gate_il, last )          here, slope: z_i[⌊p⌋], z_i[⌊p⌋ + 1] − z_i[⌊p⌋]
    s_ij ← s_ij + here + (p − ⌊p⌋) · slope
    d_gate_il = Σ_{j ≤ l} d_s_ij · slope_ij        over keys j that are not yet at the last position

z is read where it lies, one row a query: at most a few cache lines. Once all queries of a tile have counted to the last
position, the rest of their keys share one number a query. As in `stick_kernels`, sums from the newest key are kept at
the newer edge of each tile and sums from the oldest key at the older edge: none is found by subtraction.
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


@triton.jit
def gate_of(raw, visible):
    """Gates of a tile."""
    return tl.where(visible, 1.0 / (1.0 + tl.exp2(-raw * LOG2_E)), 0.0)


@triton.jit
def positions(raw, carry, visible, z_rows, inside, last):
    """Gates of a tile, where the position below each count lies, how far on to the next, z there, and its slope."""
    gates = gate_of(raw, visible)
    counts = carry[:, None] + tl.cumsum(gates, 1, reverse=True)
    free = counts < last
    counts = tl.minimum(counts, last)
    below = counts.to(tl.int32)
    here = tl.load(z_rows + below, mask=inside, other=0.0)
    after = tl.load(z_rows + tl.minimum(below + 1, last), mask=inside, other=0.0)
    return gates, below, counts - below, free, here, after - here


@triton.jit
def walk(
    q, k, v, gate_q, gate_k, z, q_ids, k_ids, out, norms, carries, scale, last,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    gq_batch, gq_head, gq_row, gk_batch, gk_head, gk_row, ids_q, ids_k,
    heads, group, start, stop, queries, keys, window, blocks,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, EXACT: tl.constexpr, SEPARATE: tl.constexpr,
    KEEP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    DV: tl.constexpr, VALUES: tl.constexpr, GD: tl.constexpr, GATES: tl.constexpr,
):  # fmt: skip
    """Queries start … stop − 1: results and log2 of their norms; with KEEP the counts before each tile alone."""
    which = tl.program_id(1).to(tl.int64)
    b, h = which // heads, which % heads
    at_ids = q_ids + b * ids_q, k_ids + b * ids_k
    first = start + tl.program_id(0) * ROWS
    rows = first + tl.arange(0, ROWS)
    q_tile = load_tile(q + b * q_batch + h * q_head, first, stop, q_row, ROWS, D, WIDTH)
    k_start, v_start = k + b * k_batch + h // group * k_head, v + b * v_batch + h // group * v_head
    gk_start = gate_k + b * gk_batch + h // group * gk_head
    if SEPARATE:
        gq_tile = load_tile(gate_q + b * gq_batch + h * gq_head, first, stop, gq_row, ROWS, GD, GATES)
    z_rows = (z + which * queries * (last + 1) + rows.to(tl.int64) * (last + 1))[:, None]
    z_last = tl.load(z + (which * queries + rows) * (last + 1) + last, mask=rows < stop, other=0.0)
    carry = tl.where(rows < stop, 0.0, float("inf"))
    best = tl.full((ROWS,), float("-inf"), tl.float32)
    norm = tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, VALUES), tl.float32)
    low, _low, _high, high = key_ranges(first, queries, keys, window, CAUSAL, WINDOW, IDS, ROWS, COLUMNS)
    for step in range(high - low):
        block = high - 1 - step
        columns = block * COLUMNS + tl.arange(0, COLUMNS)
        visible = is_visible(rows[:, None], columns[None, :], *at_ids, queries, keys, window, CAUSAL, WINDOW, IDS)
        s = product(q_tile, tl.trans(load_tile(k_start, block * COLUMNS, keys, k_row, COLUMNS, D, WIDTH)), EXACT)
        s = s * scale
        if KEEP:
            at = (which * (stop - start) + rows - start) * blocks + block
            tl.store(carries + at, carry, mask=rows < stop)
        if tl.min(carry, 0) >= last:
            s += z_last[:, None]
        else:
            raw = s
            if SEPARATE:
                gk_tile = load_tile(gk_start, block * COLUMNS, keys, gk_row, COLUMNS, GD, GATES)
                raw = product(gq_tile, tl.trans(gk_tile), EXACT) * scale
            gates, _, share, _, here, slope = positions(
                raw, carry, visible, z_rows, (rows < stop)[:, None] & visible, last
            )
            s += here + share * slope
            carry += tl.sum(gates, 1)
        if not KEEP:
            s = tl.where(visible, s * LOG2_E, float("-inf"))
            new = tl.maximum(best, tl.max(s, 1))
            middle = tl.where(new == float("-inf"), 0.0, new)
            weights, shrink = tl.exp2(s - middle[:, None]), tl.exp2(best - middle)
            v_tile = load_tile(v_start, block * COLUMNS, keys, v_row, COLUMNS, DV, VALUES)
            total = total * shrink[:, None] + product(weights.to(v_tile.dtype), v_tile, EXACT)
            norm, best = norm * shrink + tl.sum(weights, 1), new
    if not KEEP:
        some = norm > 0
        total = total / tl.where(some, norm, 1.0)[:, None]
        store_rows(out + which * queries * DV, total, first, stop, DV, DV, ROWS, VALUES)
        norms_of = tl.where(some, best + tl.log2(tl.where(some, norm, 1.0)), float("inf"))
        tl.store(norms + which * queries + rows, norms_of, mask=rows < stop)


@triton.jit
def queries_backward(
    q, k, v, gate_q, gate_k, z, q_ids, k_ids, grad, delta, norms, carries, behind, d_q, d_gate_q, d_z, scale, last,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    gq_batch, gq_head, gq_row, gk_batch, gk_head, gk_row, ids_q, ids_k,
    heads, group, start, stop, queries, keys, window, blocks,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, EXACT: tl.constexpr, SEPARATE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, DV: tl.constexpr,
    VALUES: tl.constexpr, GD: tl.constexpr, GATES: tl.constexpr,
):  # fmt: skip
    """From the oldest key on: gradients of queries start … stop − 1 and of their z; ``behind``, sums of older tiles."""
    which = tl.program_id(1).to(tl.int64)
    b, h, first_row = which // heads, which % heads, which * queries
    at_ids = q_ids + b * ids_q, k_ids + b * ids_k
    first = start + tl.program_id(0) * ROWS
    rows = first + tl.arange(0, ROWS)
    inside = rows < stop
    q_tile = load_tile(q + b * q_batch + h * q_head, first, stop, q_row, ROWS, D, WIDTH)
    grad_tile = load_tile(grad + first_row * DV, first, stop, DV, ROWS, DV, VALUES)
    k_start, v_start = k + b * k_batch + h // group * k_head, v + b * v_batch + h // group * v_head
    gk_start = gate_k + b * gk_batch + h // group * gk_head
    if SEPARATE:
        gq_tile = load_tile(gate_q + b * gq_batch + h * gq_head, first, stop, gq_row, ROWS, GD, GATES)
        grad_gate_q = tl.zeros((ROWS, GATES), tl.float32)
    at_z = (first_row + rows) * (last + 1)
    z_last = tl.load(z + at_z + last, mask=inside, other=0.0)
    norm = tl.load(norms + first_row + rows, mask=inside, other=float("inf"))
    mean = tl.load(delta + first_row + rows, mask=inside, other=0.0)
    sums, grad_last = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    low, _low, _high, high = key_ranges(first, queries, keys, window, CAUSAL, WINDOW, IDS, ROWS, COLUMNS)
    for block in range(low, high):
        columns = block * COLUMNS + tl.arange(0, COLUMNS)
        visible = is_visible(rows[:, None], columns[None, :], *at_ids, queries, keys, window, CAUSAL, WINDOW, IDS)
        k_tile = load_tile(k_start, block * COLUMNS, keys, k_row, COLUMNS, D, WIDTH)
        v_tile = load_tile(v_start, block * COLUMNS, keys, v_row, COLUMNS, DV, VALUES)
        at = (which * (stop - start) + rows - start) * blocks + block
        carry = tl.load(carries + at, mask=inside, other=float("inf"))
        s = product(q_tile, tl.trans(k_tile), EXACT) * scale
        grad_weights = product(grad_tile, tl.trans(v_tile), EXACT) - mean[:, None]
        if tl.min(carry, 0) >= last:
            grad_s = tl.where(visible, tl.exp2((s + z_last[:, None]) * LOG2_E - norm[:, None]), 0.0) * grad_weights
            grad_last += tl.sum(grad_s, 1)
        else:
            raw = s
            if SEPARATE:
                gk_tile = load_tile(gk_start, block * COLUMNS, keys, gk_row, COLUMNS, GD, GATES)
                raw = product(gq_tile, tl.trans(gk_tile), EXACT) * scale
            gates, below, share, free, here, slope = positions(
                raw, carry, visible, z + at_z[:, None], inside[:, None] & visible, last
            )
            grad_s = tl.where(visible, tl.exp2((s + here + share * slope) * LOG2_E - norm[:, None]), 0.0) * grad_weights
            grad_last += tl.sum(tl.where(free, 0.0, grad_s), 1)
            into, free = d_z + at_z[:, None] + below, free & visible & inside[:, None]
            tl.atomic_add(into, grad_s * (1.0 - share), mask=free)
            tl.atomic_add(into + 1, grad_s * share, mask=free)
            grad_counts = tl.where(free, grad_s * slope, 0.0)
            grad_raw = (sums[:, None] + tl.cumsum(grad_counts, 1)) * gates * (1.0 - gates)
            tl.store(behind + at, sums, mask=inside)
            sums += tl.sum(grad_counts, 1)
            if SEPARATE:
                grad_gate_q += product(grad_raw.to(gk_tile.dtype), gk_tile, EXACT)
            else:
                grad_s += grad_raw
        total += product(grad_s.to(k_tile.dtype), k_tile, EXACT)
    tl.atomic_add(d_z + at_z + last, grad_last, mask=inside)
    store_rows(d_q + first_row * D, total * scale, first, stop, D, D, ROWS, WIDTH)
    if SEPARATE:
        into_gates = d_gate_q + first_row * GD
        store_rows(into_gates, grad_gate_q * scale, first, stop, GD, GD, ROWS, GATES)


@triton.jit
def keys_backward(
    q, k, v, gate_q, gate_k, z, q_ids, k_ids, grad, delta, norms, carries, behind, d_k, d_v, d_gate_k, scale, last,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    gq_batch, gq_head, gq_row, gk_batch, gk_head, gk_row, ids_q, ids_k,
    heads, group, start, stop, queries, keys, window, blocks,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, EXACT: tl.constexpr, SEPARATE: tl.constexpr,
    MORE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    DV: tl.constexpr, VALUES: tl.constexpr, GD: tl.constexpr, GATES: tl.constexpr,
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
    grad_k, grad_v = tl.zeros((COLUMNS, WIDTH), tl.float32), tl.zeros((COLUMNS, VALUES), tl.float32)
    if SEPARATE:
        gk_tile = load_tile(gate_k + b * gk_batch + kv * gk_head, first_key, keys, gk_row, COLUMNS, GD, GATES)
        grad_gate_k = tl.zeros((COLUMNS, GATES), tl.float32)
    low, _low, _high, high = query_ranges(first_key, queries, keys, window, CAUSAL, WINDOW, IDS, ROWS, COLUMNS)
    low, high = tl.maximum(low * ROWS, start), tl.minimum(high * ROWS, stop)
    blocks_of_rows = tl.maximum(high - low + ROWS - 1, 0) // ROWS
    for step in range(group * blocks_of_rows):
        h, first = kv * group + step // blocks_of_rows, low + step % blocks_of_rows * ROWS
        rows, head = first + tl.arange(0, ROWS), b * heads + h
        inside = rows < stop
        visible = is_visible(rows[:, None], columns[None, :], *at_ids, queries, keys, window, CAUSAL, WINDOW, IDS)
        q_tile = load_tile(q + b * q_batch + h * q_head, first, stop, q_row, ROWS, D, WIDTH)
        grad_start = grad + head * queries * DV
        grad_tile = load_tile(grad_start, first, stop, DV, ROWS, DV, VALUES)
        at_z = (head * queries + rows) * (last + 1)
        norm = tl.load(norms + head * queries + rows, mask=inside, other=float("inf"))
        mean = tl.load(delta + head * queries + rows, mask=inside, other=0.0)
        at = (head * (stop - start) + rows - start) * blocks + block
        carry = tl.load(carries + at, mask=inside, other=float("inf"))
        s = product(q_tile, tl.trans(k_tile), EXACT) * scale
        grad_weights = product(grad_tile, tl.trans(v_tile), EXACT) - mean[:, None]
        if tl.min(carry, 0) >= last:
            z_last = tl.load(z + at_z + last, mask=inside, other=0.0)
            weights = tl.where(visible, tl.exp2((s + z_last[:, None]) * LOG2_E - norm[:, None]), 0.0)
            grad_s = weights * grad_weights
        else:
            raw = s
            if SEPARATE:
                gq_start = gate_q + b * gq_batch + h * gq_head
                gq_tile = load_tile(gq_start, first, stop, gq_row, ROWS, GD, GATES)
                raw = product(gq_tile, tl.trans(gk_tile), EXACT) * scale
            gates, _, share, free, here, slope = positions(
                raw, carry, visible, z + at_z[:, None], inside[:, None] & visible, last
            )
            weights = tl.where(visible, tl.exp2((s + here + share * slope) * LOG2_E - norm[:, None]), 0.0)
            grad_s = weights * grad_weights
            sums = tl.load(behind + at, mask=inside, other=0.0)
            grad_counts = tl.where(free & visible, grad_s * slope, 0.0)
            grad_raw = (sums[:, None] + tl.cumsum(grad_counts, 1)) * gates * (1.0 - gates)
            if SEPARATE:
                grad_gate_k += product(tl.trans(grad_raw).to(gq_tile.dtype), gq_tile, EXACT)
            else:
                grad_s += grad_raw
        grad_k += product(tl.trans(grad_s).to(q_tile.dtype), q_tile, EXACT)
        grad_v += product(tl.trans(weights).to(grad_tile.dtype), grad_tile, EXACT)
    add_rows(d_k + which * keys * D, grad_k * scale, first_key, keys, D, D, MORE, COLUMNS, WIDTH)
    add_rows(d_v + which * keys * DV, grad_v, first_key, keys, DV, DV, MORE, COLUMNS, VALUES)
    if SEPARATE:
        into_gates = d_gate_k + which * keys * GD
        add_rows(into_gates, grad_gate_k * scale, first_key, keys, GD, GD, MORE, COLUMNS, GATES)
