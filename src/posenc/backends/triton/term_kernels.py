"""Kernels that make what softmax kernels add to the logits, and give its gradients back: one launch each.

row        copies of a bias by distance, or of a table's entries by distance; its gradient from sums along diagonals
kerple     KERPLE's row itself and the gradients of its parameters, in float64 inside
gates      of few tokens, from the layer's input; running sums, in float64 and kept as pairs of floats; sums from the
           end for their gradient
network    tables of a relu network of one number: it is piecewise linear, a slope and an offset from knot to knot
"""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: N803
# Triton has no types, and is not there on most machines; its constants are arguments in capitals.

from __future__ import annotations

import triton
import triton.language as tl

from posenc.backends.triton.tile import LOG2_E

LENGTHS = ["entries", "length", "own", "keys", "queries", "chunks", "diagonals", "first_diagonal"]
HEADER = tl.constexpr(4)  # numbers of a network's table before its slopes: c, limit, epsilon, and one that fills up


@triton.jit
def log_of(y):
    """log(1 + y) of y ≥ 0, small ones with all digits: the quotient takes back what rounding did to 1 + y."""
    more = 1.0 + y
    lost = tl.where(more == 1.0, 1.0, more - 1.0)
    return tl.where(more == 1.0, y, tl.log(more) * (y / lost))


@triton.jit(do_not_specialize=LENGTHS)
def row_copies(
    row, index, table, copies, row_head, row_entry, entries, length, own,
    CENTRED: tl.constexpr, INDEX: tl.constexpr, NETWORK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Eight copies ``(heads, 8, length)`` of a row in powers of two: four from its end, four from its start.

    CENTRED: less its entry at distance 0, ``own``, which softmax takes no notice of: scores near a query's own key,
    which has most of the weight, are then small and keep their digits. INDEX: the row is a table, and which entry each
    distance has is said by ``index``. NETWORK: the row is log(1 + c · distance), in nats.
    """
    h = tl.program_id(1).to(tl.int64)
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    start = row + h * row_head
    centre = 0.0
    if CENTRED:
        at = tl.load(index + own) if INDEX else own
        centre = tl.load(start + at * row_entry).to(tl.float32)
    for c in tl.static_range(8):
        at = entries - 1 - x - c if c < 4 else x + c - 4
        inside = (at >= 0) & (at < entries)
        if NETWORK:
            value = tl.where(inside, log_of(tl.load(table) * tl.abs(at - own).to(tl.float32)), 0.0)
        else:
            if INDEX:
                at = tl.load(index + at, mask=inside, other=0)
            value = (tl.load(start + at * row_entry, mask=inside, other=0.0).to(tl.float32) - centre) * LOG2_E
        tl.store(copies + (8 * h + c) * length + x, value, mask=x < length)


@triton.jit
def of_distances(parts, n, there, h, chunks, diagonals, first_diagonal, SIZE: tl.constexpr):
    """Sums of dS over one head's diagonals ``n``: each has a part of its own tile and one of the next."""
    offset = n & (SIZE - 1)
    diagonal = (n - offset) // SIZE - first_diagonal
    total = n * 0.0
    for chunk in range(chunks):
        of_tiles = parts + (h * chunks + chunk) * diagonals * 2 * SIZE
        own = there & (diagonal >= 0) & (diagonal < diagonals)
        total += tl.load(of_tiles + diagonal * 2 * SIZE + offset, mask=own, other=0.0)
        following = there & (diagonal >= -1) & (diagonal < diagonals - 1)
        total += tl.load(of_tiles + (diagonal + 1) * 2 * SIZE + SIZE + offset, mask=following, other=0.0)
    return total


@triton.jit(do_not_specialize=LENGTHS)
def row_gradient(
    parts, index, d_row, row_head, row_entry, heads, entries, own, chunks, diagonals, first_diagonal,
    SHARED: tl.constexpr, INDEX: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of a row, or with INDEX of one entry of its table, from `row_backward`; SHARED by heads."""
    first_head = tl.program_id(1).to(tl.int64)
    of_heads = heads if SHARED else 1
    if INDEX:
        entry = tl.program_id(0)
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, entries, BLOCK):
            x = start + tl.arange(0, BLOCK)
            there = tl.load(index + x, mask=x < entries, other=-1) == entry
            for member in range(of_heads):
                h = first_head * of_heads + member
                total += of_distances(parts, x - own, there, h, chunks, diagonals, first_diagonal, SIZE)
        tl.store(d_row + first_head * row_head + entry * row_entry, tl.sum(total, 0).to(d_row.dtype.element_ty))
    else:
        x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for member in range(of_heads):
            h = first_head * of_heads + member
            total += of_distances(parts, x - own, x < entries, h, chunks, diagonals, first_diagonal, SIZE)
        to = d_row + first_head * row_head + x * row_entry
        tl.store(to, total.to(d_row.dtype.element_ty), mask=x < entries)


@triton.jit
def kerple_at(n, p, a, mu, KIND: tl.constexpr, LEAST: tl.constexpr, EPS: tl.constexpr):
    """KERPLE at distances, and what p, a and mu do to it, in float64. KIND 0: log, 1: power, 2: BAM, a a logarithm."""
    none = n * 0.0
    if KIND == 2:
        apart = n - (tl.exp(mu) - tl.exp(-mu))
        logs = tl.log(tl.abs(apart) + EPS)
        value = -tl.exp(a + p * logs)
        by_p, by_a = value * logs, value
        turn = tl.where(apart > 0, 1.0, tl.where(apart < 0, -1.0, none))
        by_mu = p * tl.exp(a + (p - 1.0) * logs) * turn * (tl.exp(mu) + tl.exp(-mu))
    else:
        p, a, far, by_mu = tl.maximum(p, LEAST), tl.maximum(a, LEAST), tl.abs(n), none
        if KIND == 1:
            p = tl.minimum(p, 2.0)
            logs = tl.log(tl.maximum(far, 1.0))  # distances are whole
            power = tl.where(far > 0, tl.exp(p * logs), none)
            value, by_p, by_a = -a * power, -a * power * logs, -power
        else:
            logs = tl.log(1.0 + a * far)
            value, by_p, by_a = -p * logs, -logs, -p * far / (1.0 + a * far)
    return value, by_p, by_a, by_mu


@triton.jit
def load_kerple(p, a, mu, h, SHIFT: tl.constexpr):
    """The parameters of a head, float64."""
    of_p, of_a = tl.load(p + h).to(tl.float64), tl.load(a + h).to(tl.float64)
    of_mu = of_p * 0.0
    if SHIFT:
        of_mu = tl.load(mu + h).to(tl.float64)
    return of_p, of_a, of_mu


@triton.jit(do_not_specialize=LENGTHS)
def kerple(
    p, a, mu, distance, row, entries,
    KIND: tl.constexpr, SHIFT: tl.constexpr, LEAST: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``row`` (heads, entries) float32 at distances (entries,)."""
    h, x = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.load(distance + x, mask=x < entries, other=0).to(tl.float64)
    of_p, of_a, of_mu = load_kerple(p, a, mu, h, SHIFT)
    value, _, _, _ = kerple_at(n, of_p, of_a, of_mu, KIND, LEAST, EPS)
    tl.store(row + h * entries + x, value.to(tl.float32), mask=x < entries)


@triton.jit(do_not_specialize=LENGTHS)
def kerple_backward(
    grad, p, a, mu, distance, d_p, d_a, d_mu, grad_head, grad_entry, entries,
    KIND: tl.constexpr, SHIFT: tl.constexpr, LEAST: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of a head's parameters; a bound does not hold them back."""
    h = tl.program_id(0).to(tl.int64)
    of_p, of_a, of_mu = load_kerple(p, a, mu, h, SHIFT)
    sum_p = tl.zeros((BLOCK,), tl.float64)
    sum_a, sum_mu = sum_p, sum_p
    for start in range(0, entries, BLOCK):
        x = start + tl.arange(0, BLOCK)
        n = tl.load(distance + x, mask=x < entries, other=0).to(tl.float64)
        g = tl.load(grad + h * grad_head + x * grad_entry, mask=x < entries, other=0.0).to(tl.float64)
        _, by_p, by_a, by_mu = kerple_at(n, of_p, of_a, of_mu, KIND, LEAST, EPS)
        sum_p += g * by_p
        sum_a += g * by_a
        sum_mu += g * by_mu
    tl.store(d_p + h, tl.sum(sum_p, 0).to(d_p.dtype.element_ty))
    tl.store(d_a + h, tl.sum(sum_a, 0).to(d_a.dtype.element_ty))
    if SHIFT:
        tl.store(d_mu + h, tl.sum(sum_mu, 0).to(d_mu.dtype.element_ty))


@triton.jit
def log_gates(
    x, weight, bias, gates, x_batch, x_row, weight_row, tokens, heads, dim, BIAS: tl.constexpr, BLOCK: tl.constexpr
):
    """``gates`` (batch, heads, tokens) float32: logsigmoid of a linear layer, one program for each."""
    which, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    b, token = which // tokens, which % tokens
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, dim, BLOCK):
        c = start + tl.arange(0, BLOCK)
        number = tl.load(x + b * x_batch + token * x_row + c, mask=c < dim, other=0.0).to(tl.float32)
        total += number * tl.load(weight + h * weight_row + c, mask=c < dim, other=0.0).to(tl.float32)
    y = tl.sum(total, 0)
    if BIAS:
        y += tl.load(bias + h).to(tl.float32)
    gate = tl.minimum(y, 0.0) - log_of(tl.exp(-tl.abs(y)))
    tl.store(gates + (b * heads + h) * tokens + token, gate)


@triton.jit(do_not_specialize=LENGTHS)
def gate_sums(
    gates, seen, order, sums, gate_batch, gate_head, gate_key, seen_batch, order_batch, heads, keys, plane,
    SEEN: tl.constexpr, ORDER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``sums`` (2, batch, heads, keys): running sums over the keys, or over them in an ``order``; hidden ones are 0.

    Each sum is a pair of floats: near ones subtract exactly, and their rests bring the digits that were lost.
    """
    which = tl.program_id(0).to(tl.int64)
    b, h = which // heads, which % heads
    before = tl.sum(tl.zeros((BLOCK,), tl.float64), 0)
    for start in range(0, keys, BLOCK):
        x = start + tl.arange(0, BLOCK)
        at = x.to(tl.int64)
        if ORDER:
            at = tl.load(order + b * order_batch + x, mask=x < keys, other=0)
        counts = x < keys
        if SEEN:
            counts &= tl.load(seen + b * seen_batch + at, mask=counts, other=0) != 0
        gate = tl.load(gates + b * gate_batch + h * gate_head + at * gate_key, mask=counts, other=0.0).to(tl.float64)
        total = before + tl.cumsum(gate, 0)
        near = total.to(tl.float32)
        tl.store(sums + which * keys + at, near, mask=x < keys)
        tl.store(sums + plane + which * keys + at, (total - near.to(tl.float64)).to(tl.float32), mask=x < keys)
        before += tl.sum(gate, 0)


@triton.jit(do_not_specialize=LENGTHS)
def gate_sums_backward(
    grad, seen, order, d_gates, seen_batch, order_batch, heads, keys, plane,
    SEEN: tl.constexpr, ORDER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``d_gates`` (batch, heads, keys): a gate is part of all later sums; ``grad``: see `softmax`."""
    which = tl.program_id(0).to(tl.int64)
    b = which // heads
    later = tl.sum(tl.zeros((BLOCK,), tl.float64), 0)
    for start in range(0, keys, BLOCK):
        x = keys - 1 - start - tl.arange(0, BLOCK)
        at = x.to(tl.int64)
        if ORDER:
            at = tl.load(order + b * order_batch + x, mask=x >= 0, other=0)
        of_rows = tl.load(grad + which * keys + at, mask=x >= 0, other=0.0).to(tl.float64)
        of_sum = of_rows - tl.load(grad + plane + which * keys + at, mask=x >= 0, other=0.0).to(tl.float64)
        total = later + tl.cumsum(of_sum, 0)
        if SEEN:
            total = tl.where(tl.load(seen + b * seen_batch + at, mask=x >= 0, other=0) != 0, total, 0.0)
        tl.store(d_gates + which * keys + at, total.to(tl.float32), mask=x >= 0)
        later += tl.sum(of_sum, 0)


@triton.jit
def unit_factors(w, b, is_unit, leak, UNITS: tl.constexpr, SEGMENTS: tl.constexpr):
    """Each unit's knot and its rank among all; and ``(UNITS, SEGMENTS)``, what it is multiplied by on each segment."""
    u, s = tl.arange(0, UNITS), tl.arange(0, SEGMENTS)
    bends = w != 0.0
    knot = tl.where(bends, -b / tl.where(bends, w, 1.0), float("inf"))
    # Ranks by counting need no sort: so many knots lie before it, equal ones in the order of the units.
    row = tl.reshape(knot, (1, UNITS))
    earlier = (row < knot[:, None]) | ((row == knot[:, None]) & (u[None, :] < u[:, None]))
    rank = tl.sum(earlier.to(tl.int32), 1)
    after = s[None, :] > rank[:, None]
    active = tl.where((w > 0.0)[:, None], after, ~after)
    active = tl.where(bends[:, None], active, (b > 0.0)[:, None])
    return knot, rank, tl.where(is_unit[:, None], tl.where(active, 1.0, leak), 0.0)


@triton.jit
def network_tables(
    c, multiplier, inner, inner_bias, outer, outer_bias, tables, threshold, epsilon, leak, units, inner_step, outer_row,
    UNITS: tl.constexpr, SEGMENTS: tl.constexpr,
):  # fmt: skip
    """``tables`` (heads, 4 + 3 · SEGMENTS): c, limit, epsilon, a gap; slopes, offsets, and knots, ∞ behind the last."""
    h = tl.program_id(0).to(tl.int64)
    u, s = tl.arange(0, UNITS), tl.arange(0, SEGMENTS)
    is_unit = u < units
    w = tl.load(inner + u * inner_step, mask=is_unit, other=0.0).to(tl.float32)
    b = tl.load(inner_bias + u, mask=is_unit, other=0.0).to(tl.float32)
    out = tl.load(outer + h * outer_row + u, mask=is_unit, other=0.0).to(tl.float32)
    knot, rank, factor = unit_factors(w, b, is_unit, leak, UNITS, SEGMENTS)
    to = tables + h * (HEADER + 3 * SEGMENTS)
    tl.store(to, tl.abs(tl.load(c).to(tl.float32)))
    tl.store(to + 1, tl.abs(tl.load(multiplier).to(tl.float32) * threshold))
    tl.store(to + 2, epsilon)
    tl.store(to + HEADER + s, tl.sum(factor * (out * w)[:, None], 0))
    offset = tl.sum(factor * (out * b)[:, None], 0) + tl.load(outer_bias + h).to(tl.float32)
    tl.store(to + HEADER + SEGMENTS + s, offset)
    knots = tl.min(tl.where(rank[:, None] == s[None, :], knot[:, None], float("inf")), 0)
    tl.store(to + HEADER + 2 * SEGMENTS + s, knots)


@triton.jit
def network_tables_backward(
    grad, c, multiplier, inner, inner_bias, outer, outer_bias, d_c, d_multiplier, d_inner, d_inner_bias, d_outer,
    d_outer_bias, threshold, leak, heads, units, inner_step, outer_row, UNITS: tl.constexpr, SEGMENTS: tl.constexpr,
):  # fmt: skip
    """Gradients of the network from those of its tables: one program, which adds up the heads."""
    u, s = tl.arange(0, UNITS), tl.arange(0, SEGMENTS)
    is_unit = u < units
    w = tl.load(inner + u * inner_step, mask=is_unit, other=0.0).to(tl.float32)
    b = tl.load(inner_bias + u, mask=is_unit, other=0.0).to(tl.float32)
    _, _, factor = unit_factors(w, b, is_unit, leak, UNITS, SEGMENTS)
    of_w, of_b = tl.zeros((UNITS,), tl.float32), tl.zeros((UNITS,), tl.float32)
    of_c, of_limit = tl.sum(of_w, 0), tl.sum(of_b, 0)
    for h in range(heads):
        start = grad + h * (HEADER + 3 * SEGMENTS)
        of_slopes, of_offsets = tl.load(start + HEADER + s), tl.load(start + HEADER + SEGMENTS + s)
        slopes = tl.sum(factor * of_slopes[None, :], 1)
        offsets = tl.sum(factor * of_offsets[None, :], 1)
        out = tl.load(outer + h * outer_row + u, mask=is_unit, other=0.0).to(tl.float32)
        to = d_outer + h * units + u
        tl.store(to, (w * slopes + b * offsets).to(d_outer.dtype.element_ty), mask=is_unit)
        tl.store(d_outer_bias + h, tl.sum(of_offsets, 0).to(d_outer_bias.dtype.element_ty))
        of_w += out * slopes
        of_b += out * offsets
        of_c += tl.load(start)
        of_limit += tl.load(start + 1)
    tl.store(d_inner + u, of_w.to(d_inner.dtype.element_ty), mask=is_unit)
    tl.store(d_inner_bias + u, of_b.to(d_inner_bias.dtype.element_ty), mask=is_unit)
    scale, times = tl.load(c).to(tl.float32), tl.load(multiplier).to(tl.float32) * threshold
    sign = tl.where(scale > 0, 1.0, tl.where(scale < 0, -1.0, 0.0))
    tl.store(d_c, (of_c * sign).to(d_c.dtype.element_ty))
    sign = tl.where(times > 0, threshold, tl.where(times < 0, -threshold, 0.0))
    tl.store(d_multiplier, (of_limit * sign).to(d_multiplier.dtype.element_ty))
