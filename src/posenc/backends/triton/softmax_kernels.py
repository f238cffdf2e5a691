"""Kernels of softmax attention whose logits have terms of their own: forward, and the three of the backward pass.

    s_ij = scale · q_i·k_j, capped if CAP                     n = i + keys − queries − j, in the order of the indices
         + row_h[n + queries − 1]                             ROW: any function of the distance
         − slope_h · |n|                                      SLOPES: ALiBi, without a table
         + C_i − C_j                                          GATES: running sums, each a pair of floats
         + f_h(psi(|n|) · r_i)                                SEGMENTS: a network, as a piecewise linear function; FIRE
    a_ij = exp(s_ij) / (Σ_l exp(s_il) + exp(sink_h))          SINK; DROP: then dropped, by the hash of `posenc.dropout`
    hidden: j after i (CAUSAL), |n| ≥ window (WINDOW), another document (IDS); all in powers of two

Gradients of q, k and v are FlashAttention-2's: with δ_i = do_i · o_i,  dS_ij = a_ij (do_i·v_j − δ_i). No program adds
to what another one writes, so that results are the same in every run:

    C      d_C_i = Σ_j dS_ij − Σ_l dS_li: sums over rows, which the queries' kernel has, minus sums over columns, which
           the keys' kernel has. Without rounding rows sum to zero (but for a sink); the rounding of δ in 16 bits would
           go into all gates before a query, and cancels in the difference.
    f      dS and dS · x summed over each segment, in registers; and sums over rows of dS · f'(x) times what c and the
           limit do to psi and r. A tile has few segments, as psi grows like a logarithm: see `bent`.
    row    dS summed along diagonals. Tiles of one diagonal of tiles have the same distances at the same places: a
           program sums the tiles of a part of its diagonal in registers, and then along the diagonals of that one tile.

A tile of the row would be read at addresses that move by one from query to query, four bytes at a time. So there are
four copies of it, each beginning one entry later: query i reads copy (queries − 1 − i) & 3, in which its entries begin
at a multiple of 16 bytes. Kernels that go by keys read copies of the row in the other order.

Source: Dao, FlashAttention-2, arXiv 2307.08691, algorithms 1 and 2.
"""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: N803
# Triton has no types, and is not there on most machines; its constants are arguments in capitals.

from __future__ import annotations

import triton
import triton.language as tl

from posenc.backends.triton.term_kernels import HEADER, log_of
from posenc.backends.triton.tile import LOG2_E, is_visible, key_ranges, load_tile, product, query_ranges, store_rows

# Lengths change from call to call: a kernel of its own for each multiple of 16 would be compiled for nothing.
LENGTHS = ["queries", "keys", "window", "first_query", "plane", "chunk", "first_diagonal"]


@triton.jit
def row_tile(row, length, of, to, last):
    """Entries (last − of) + to, of the copy in which those of each ``of`` begin at a multiple of four."""
    back = tl.maximum(last - of, 0)
    copy = back & 3
    at = (copy * length + (back - copy))[:, None] + to[None, :]
    return tl.load(row + tl.max_contiguous(tl.multiple_of(at, (1, 4)), (1, 4)))


@triton.jit
def gate_pair(sums, plane, at, inside):
    """Running sums as pairs of floats, see `term_kernels.gate_sums`."""
    return tl.load(sums + at, mask=inside, other=0.0), tl.load(sums + plane + at, mask=inside, other=0.0)


@triton.jit
def normaliser(table, own):
    """r = 1 / (psi(max(position, limit)) + epsilon) of queries at positions ``own``, and psi's c."""
    c = tl.load(table)
    farthest = tl.maximum(own.to(tl.float32), tl.load(table + 1))
    return 1.0 / (log_of(c * farthest) + tl.load(table + 2)), c


@triton.jit
def segment_range(first_own, last_own, first_key, last_key, c, r_least, r_most, knots):
    """The segments of the least and of the largest input of a network in a tile: how many knots lie below each."""
    nearest = tl.maximum(tl.maximum(first_own - last_key, first_key - last_own), 0)
    farthest = tl.maximum(tl.maximum(last_own - first_key, last_key - first_own), 0)
    low = tl.sum((knots < log_of(c * nearest.to(tl.float32)) * r_least).to(tl.int32), 0)
    return low, tl.sum((knots < log_of(c * farthest.to(tl.float32)) * r_most).to(tl.int32), 0)


@triton.jit
def bent(x, low, high, table, SEGMENTS: tl.constexpr):
    """A piecewise linear function, exactly: the line of the first segment, and a bend at each knot of the range."""
    slopes, offsets, knots = table + HEADER, table + HEADER + SEGMENTS, table + HEADER + 2 * SEGMENTS
    value = x * tl.load(slopes + low) + tl.load(offsets + low)
    for u in range(low, high):
        value += (tl.load(slopes + u + 1) - tl.load(slopes + u)) * tl.maximum(x - tl.load(knots + u), 0.0)
    return value


@triton.jit
def with_terms(
    s, own, j, near_i, rest_i, near_j, rest_j, slope, row_start, length, of, to, last, r, c, r_least, r_most, knots,
    table, first_own, first_key, ROW: tl.constexpr, SLOPES: tl.constexpr, GATES: tl.constexpr,
    SEGMENTS: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Logits of a tile with all that is added to them; of a network also psi of its distances and its segments."""
    psi, low, high = s, 0, 0
    if ROW:
        s += row_tile(row_start, length, of, to, last)
    if SLOPES:
        s -= slope * tl.abs(own - j).to(tl.float32)
    if GATES:
        s += ((near_i - near_j) + (rest_i - rest_j)) * LOG2_E
    if SEGMENTS > 0:
        psi = row_tile(row_start, length, of, to, last)
        last_own, last_key = first_own + (QUERIES - 1), first_key + (KEYS - 1)
        low, high = segment_range(first_own, last_own, first_key, last_key, c, r_least, r_most, knots)
        s += LOG2_E * bent(psi * r, low, high, table, SEGMENTS)
    return s, psi, low, high


@triton.jit
def capped(s, cap):
    """cap · tanh(s / cap), and its derivative."""
    shrunk = tl.exp2(tl.abs(s) * LOG2_E * -2.0 / cap)
    tanh = (1.0 - shrunk) / (1.0 + shrunk)
    return tl.where(s < 0, -tanh, tanh) * cap, 1.0 - tanh * tanh


@triton.jit
def mixed(x):
    """The mixer of `posenc.dropout`, but for its last step."""
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    return x * 0x846CA68B


@triton.jit
def mixed_index(index, with_bits, ADDED: tl.constexpr):
    """An index, far from its neighbours, mixed with other bits: xor, or a sum."""
    x = index.to(tl.uint32) * 0x9E3779B9
    x = mixed(x + with_bits if ADDED else x ^ with_bits)
    return x ^ (x >> 16)


@triton.jit
def kept(of_queries, of_keys, dropped, factor):
    """0 or the factor for each weight, from the bits of its query and its key."""
    bits = mixed(of_queries ^ of_keys).to(tl.int32, bitcast=True)
    return tl.where(bits >= dropped, factor, 0.0)


@triton.jit
def head_bits(seed, b, h):
    """Bits of a head of a row of the batch."""
    of_seed = tl.load(seed).to(tl.uint32, bitcast=True)
    return mixed_index(h, mixed_index(b, of_seed, True), False)


@triton.jit
def query_terms(
    slopes, sums_start, plane, table, seed, b, h, i, first_query, queries, keys,
    SLOPES: tl.constexpr, GATES: tl.constexpr, SEGMENTS: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """What a head's queries i bring to logits and dropout; anything in place of what is not there."""
    own = i + (keys - queries)
    slope, near, rest, r, c, r_least, r_most, knots, bits, of_seed = 0.0, own, own, own, 0.0, 0.0, 0.0, own, own, own
    if SLOPES:
        slope = tl.load(slopes + h) * LOG2_E
    if GATES:
        near, rest = gate_pair(sums_start, plane, own, (i < queries) & (own >= 0) & (own < keys))
    if SEGMENTS > 0:
        r, c = normaliser(table, own)
        r_least, r_most = tl.min(r, 0), tl.max(r, 0)
        knots = tl.load(table + HEADER + 2 * SEGMENTS + tl.arange(0, SEGMENTS))
    if DROP:
        bits = mixed_index(i + first_query, head_bits(seed, b, h), False)
        of_seed = tl.load(seed + 1).to(tl.uint32, bitcast=True)
    return slope, near, rest, r, c, r_least, r_most, knots, bits, of_seed


@triton.jit(do_not_specialize=LENGTHS)
def forward(
    q, k, v, row, slopes, sums, tables, sink, q_ids, k_ids, seed, out, norms,
    scale, cap, dropped, factor, first_query,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    row_head, length, plane, ids_q, ids_k,
    heads, group, queries, keys, window,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, ROW: tl.constexpr, SLOPES: tl.constexpr,
    GATES: tl.constexpr, SEGMENTS: tl.constexpr, CAP: tl.constexpr, DROP: tl.constexpr, SINK: tl.constexpr,
    EXACT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, DV: tl.constexpr,
    VALUES: tl.constexpr,
):  # fmt: skip
    """``out`` (batch, heads, queries, DV), and log2 of the norms (∞ where nothing is visible)."""
    blocks = tl.cdiv(queries, BM)
    first = (blocks - 1 - tl.program_id(0)) * BM if CAUSAL else tl.program_id(0) * BM  # the longest rows first
    which = tl.program_id(1).to(tl.int64)
    b, h = which // heads, which % heads
    i = first + tl.arange(0, BM)
    inside = i < queries
    own = i + (keys - queries)
    q_tile = load_tile(q + b * q_batch + h * q_head, first, queries, q_row, BM, D, WIDTH)
    k_start, v_start = k + b * k_batch + h // group * k_head, v + b * v_batch + h // group * v_head
    row_start, sums_start, table = row + h * row_head, sums + which * keys, tables + h * (HEADER + 3 * SEGMENTS)
    scaled = scale * LOG2_E
    total = tl.zeros((BM, VALUES), tl.float32)
    norm = tl.zeros((BM,), tl.float32)
    best = tl.full((BM,), float("-inf"), tl.float32)
    slope, near_i, rest_i, r, c, r_least, r_most, knots, bits_i, of_seed = query_terms(
        slopes, sums_start, plane, table, seed, b, h, i, first_query, queries, keys, SLOPES, GATES, SEGMENTS, DROP
    )
    low, full_low, full_high, high = key_ranges(first, queries, keys, window, CAUSAL, WINDOW, IDS, BM, BN)
    for phase in tl.static_range(3):  # masked, plain, masked
        if phase > 0 or WINDOW or IDS:
            start = low if phase == 0 else (full_low if phase == 1 else full_high)
            stop = full_low if phase == 0 else (full_high if phase == 1 else high)
            for block in range(start, stop):
                j = block * BN + tl.arange(0, BN)
                k_tile = load_tile(k_start, block * BN, keys, k_row, BN, D, WIDTH)
                s = product(q_tile, tl.trans(k_tile), EXACT) * scaled
                if CAP:
                    s, _ = capped(s, cap)
                near_j, rest_j = j, j
                if GATES:
                    near_j, rest_j = gate_pair(sums_start, plane, j, j < keys)
                s, _, _, _ = with_terms(
                    s, own[:, None], j[None, :], near_i[:, None], rest_i[:, None], near_j[None, :], rest_j[None, :],
                    slope, row_start, length, i, j, queries - 1, r[:, None], c, r_least, r_most, knots, table,
                    first + (keys - queries), block * BN, ROW, SLOPES, GATES, SEGMENTS, BM, BN,
                )  # fmt: skip
                if phase != 1:
                    at = q_ids + b * ids_q, k_ids + b * ids_k
                    seen = is_visible(i[:, None], j[None, :], *at, queries, keys, window, CAUSAL, WINDOW, IDS)
                    s = tl.where(seen, s, float("-inf"))
                new = tl.maximum(best, tl.max(s, 1))
                middle = tl.where(new == float("-inf"), 0.0, new)
                p = tl.exp2(s - middle[:, None])
                shrink = tl.exp2(best - middle)
                norm = norm * shrink + tl.sum(p, 1)
                if DROP:
                    p *= kept(bits_i[:, None], mixed_index(j, of_seed, True)[None, :], dropped, factor)
                v_tile = load_tile(v_start, block * BN, keys, v_row, BN, DV, VALUES)
                total = total * shrink[:, None] + product(p.to(v_tile.dtype), v_tile, EXACT)
                best = new
    some = norm > 0
    if SINK:
        logit = tl.load(sink + h).to(tl.float32) * LOG2_E
        new = tl.maximum(best, logit)
        middle = tl.where(new == float("-inf"), 0.0, new)
        shrink = tl.exp2(best - middle)
        norm = norm * shrink + tl.exp2(logit - middle)
        total *= shrink[:, None]
        best, some = new, norm > 0
    norm = tl.where(some, norm, 1.0)
    store_rows(out + which * queries * DV, total / norm[:, None], first, queries, DV, DV, BM, VALUES)
    tl.store(norms + which * queries + i, tl.where(some, best + tl.log2(norm), float("inf")), mask=inside)


@triton.jit(do_not_specialize=LENGTHS)
def queries_backward(
    q, k, v, row, slopes, sums, tables, sink, q_ids, k_ids, seed, grad, norms, delta, out, d_q, d_sums, d_tables,
    scale, cap, dropped, factor, first_query,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    row_head, length, plane, ids_q, ids_k,
    grad_batch, grad_head, grad_row, heads, group, queries, keys, window,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, ROW: tl.constexpr, SLOPES: tl.constexpr,
    GATES: tl.constexpr, SEGMENTS: tl.constexpr, CAP: tl.constexpr, DROP: tl.constexpr, SINK: tl.constexpr,
    EXACT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, DV: tl.constexpr,
    VALUES: tl.constexpr,
):  # fmt: skip
    """Gradients of queries, and δ_i = do_i · o_i, ``delta`` (batch, heads, queries), which the other kernels read.

    With GATES also the sums of dS over keys, ``d_sums[0]`` (batch, heads, keys), at the queries' own keys. Of a network
    the gradients of its tables, ``d_tables`` (batch, heads, blocks, HEADER + 3 · SEGMENTS).
    """
    blocks = tl.cdiv(queries, BM)
    first = (blocks - 1 - tl.program_id(0)) * BM if CAUSAL else tl.program_id(0) * BM
    which = tl.program_id(1).to(tl.int64)
    b, h = which // heads, which % heads
    i = first + tl.arange(0, BM)
    inside = i < queries
    own = i + (keys - queries)
    q_tile = load_tile(q + b * q_batch + h * q_head, first, queries, q_row, BM, D, WIDTH)
    grad_tile = load_tile(grad + b * grad_batch + h * grad_head, first, queries, grad_row, BM, DV, VALUES)
    norm = tl.load(norms + which * queries + i, mask=inside, other=float("inf"))
    # A network's gradients are sums of dS over everything, most of which cancels. What rounding the result did to δ
    # would be left of them, so that in 16 bits a walk of its own sums δ up first.
    TWICE: tl.constexpr = SEGMENTS > 0 and not EXACT
    mean = tl.zeros((BM,), tl.float32)
    if not TWICE:
        o_tile = load_tile(out + which * queries * DV, first, queries, DV, BM, DV, VALUES)
        mean = tl.sum(o_tile.to(tl.float32) * grad_tile.to(tl.float32), 1)
    k_start, v_start = k + b * k_batch + h // group * k_head, v + b * v_batch + h // group * v_head
    row_start, sums_start, table = row + h * row_head, sums + which * keys, tables + h * (HEADER + 3 * SEGMENTS)
    scaled = scale * LOG2_E
    total = tl.zeros((BM, WIDTH), tl.float32)
    of_rows = tl.zeros((BM,), tl.float32)
    if SEGMENTS > 0:
        of_r, of_c = of_rows, of_rows
        segment = tl.arange(0, SEGMENTS)
        of_slopes, of_offsets = tl.zeros((SEGMENTS,), tl.float32), tl.zeros((SEGMENTS,), tl.float32)
        table_knots = table + HEADER + 2 * SEGMENTS
    slope, near_i, rest_i, r, c, r_least, r_most, knots, bits_i, of_seed = query_terms(
        slopes, sums_start, plane, table, seed, b, h, i, first_query, queries, keys, SLOPES, GATES, SEGMENTS, DROP
    )
    low, full_low, full_high, high = key_ranges(first, queries, keys, window, CAUSAL, WINDOW, IDS, BM, BN)
    for turn in tl.static_range(6):  # three ranges of keys, twice
        if (turn >= 3 or TWICE) and (turn % 3 > 0 or WINDOW or IDS):
            start = low if turn % 3 == 0 else (full_low if turn % 3 == 1 else full_high)
            stop = full_low if turn % 3 == 0 else (full_high if turn % 3 == 1 else high)
            for block in range(start, stop):
                j = block * BN + tl.arange(0, BN)
                k_tile = load_tile(k_start, block * BN, keys, k_row, BN, D, WIDTH)
                v_tile = load_tile(v_start, block * BN, keys, v_row, BN, DV, VALUES)
                s = product(q_tile, tl.trans(k_tile), EXACT) * scaled
                if CAP:
                    s, steepness = capped(s, cap)
                near_j, rest_j = j, j
                if GATES:
                    near_j, rest_j = gate_pair(sums_start, plane, j, j < keys)
                s, psi, low_segment, high_segment = with_terms(
                    s, own[:, None], j[None, :], near_i[:, None], rest_i[:, None], near_j[None, :], rest_j[None, :],
                    slope, row_start, length, i, j, queries - 1, r[:, None], c, r_least, r_most, knots, table,
                    first + (keys - queries), block * BN, ROW, SLOPES, GATES, SEGMENTS, BM, BN,
                )  # fmt: skip
                p = tl.exp2(s - norm[:, None])
                if turn % 3 != 1:
                    at = q_ids + b * ids_q, k_ids + b * ids_k
                    seen = is_visible(i[:, None], j[None, :], *at, queries, keys, window, CAUSAL, WINDOW, IDS)
                    p = tl.where(seen, p, 0.0)
                of_p = product(grad_tile, tl.trans(v_tile), EXACT)
                if DROP:
                    of_p *= kept(bits_i[:, None], mixed_index(j, of_seed, True)[None, :], dropped, factor)
                if turn < 3:
                    mean += tl.sum(p * of_p, 1)
                else:
                    of_s = p * (of_p - mean[:, None])
                    if GATES:
                        of_rows += tl.sum(of_s, 1)
                    if SEGMENTS > 0:
                        x = psi * r[:, None]
                        of_x = of_s * 0.0
                        for u in range(low_segment, high_segment + 1):
                            below = tl.load(table_knots + u - 1, mask=u > low_segment, other=float("-inf"))
                            above = tl.load(table_knots + u, mask=u < high_segment, other=float("inf"))
                            here = tl.where((x > below) & (x <= above), of_s, 0.0)
                            of_x += here * tl.load(table + HEADER + u)
                            of_slopes += tl.where(segment == u, tl.sum(tl.sum(here * x, 1), 0), 0.0)
                            of_offsets += tl.where(segment == u, tl.sum(tl.sum(here, 1), 0), 0.0)
                        n = tl.abs(own[:, None] - j[None, :]).to(tl.float32)
                        of_r += tl.sum(of_x * psi, 1)
                        of_c += tl.sum(of_x * (n / (1.0 + c * n)), 1)
                    if CAP:
                        of_s *= steepness
                    total += product(of_s.to(k_tile.dtype), k_tile, EXACT)
    tl.store(delta + which * queries + i, mean, mask=inside)
    store_rows(d_q + which * queries * D, total * scale, first, queries, D, D, BM, WIDTH)
    if GATES:
        tl.store(d_sums + which * keys + own, of_rows, mask=inside & (own >= 0))
    if SEGMENTS > 0:
        limit, position = tl.load(table + 1), own.to(tl.float32)
        farthest = tl.maximum(position, limit)
        of_farthest = -of_r * r * r / (1.0 + c * farthest)
        to = d_tables + (which * blocks + tl.program_id(0)) * (HEADER + 3 * SEGMENTS)
        tl.store(to, tl.sum(r * of_c + of_farthest * farthest, 0))
        share = tl.where(limit > position, 1.0, tl.where(limit == position, 0.5, 0.0))  # as torch.maximum has it
        tl.store(to + 1, tl.sum(of_farthest * c * share, 0))
        tl.store(to + HEADER + segment, of_slopes)
        tl.store(to + HEADER + SEGMENTS + segment, of_offsets)


@triton.jit(do_not_specialize=LENGTHS)
def keys_backward(
    q, k, v, row, slopes, sums, tables, sink, q_ids, k_ids, seed, grad, norms, delta, d_k, d_v, d_sums,
    scale, cap, dropped, factor, first_query,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    row_head, length, plane, ids_q, ids_k,
    grad_batch, grad_head, grad_row, heads, group, queries, keys, window,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, ROW: tl.constexpr, SLOPES: tl.constexpr,
    GATES: tl.constexpr, SEGMENTS: tl.constexpr, CAP: tl.constexpr, DROP: tl.constexpr, SINK: tl.constexpr,
    EXACT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, DV: tl.constexpr,
    VALUES: tl.constexpr,
):  # fmt: skip
    """Gradients of one block of keys and values, for all heads of a group.

    With GATES also the sums of dS over queries, ``d_sums[1]``. Tiles are keys by queries: their products with do and q
    need no transpose of the weights.
    """
    which = tl.program_id(1).to(tl.int64)  # key heads of all rows of the batch
    kv_heads = heads // group
    b, kv = which // kv_heads, which % kv_heads
    first_key = tl.program_id(0) * BN
    j = first_key + tl.arange(0, BN)
    there = j < keys
    k_tile = load_tile(k + b * k_batch + kv * k_head, first_key, keys, k_row, BN, D, WIDTH)
    v_tile = load_tile(v + b * v_batch + kv * v_head, first_key, keys, v_row, BN, DV, VALUES)
    of_k, of_v = tl.zeros((BN, WIDTH), tl.float32), tl.zeros((BN, VALUES), tl.float32)
    scaled = scale * LOG2_E
    if DROP:
        bits_j = mixed_index(j, tl.load(seed + 1).to(tl.uint32, bitcast=True), True)
    low, full_low, full_high, high = query_ranges(first_key, queries, keys, window, CAUSAL, WINDOW, IDS, BM, BN)
    for member in range(group):
        h = kv * group + member
        of_head = (b * heads + h) * queries
        row_start, sums_start = row + h * row_head + 4 * length, sums + (b * heads + h) * keys
        table = tables + h * (HEADER + 3 * SEGMENTS)
        q_start, grad_start = q + b * q_batch + h * q_head, grad + b * grad_batch + h * grad_head
        of_columns = tl.zeros((BN,), tl.float32)
        slope, knots, near_j, rest_j = 0.0, j, j, j
        if SLOPES:
            slope = tl.load(slopes + h) * LOG2_E
        if GATES:
            near_j, rest_j = gate_pair(sums_start, plane, j, there)
        if SEGMENTS > 0:
            knots = tl.load(table + HEADER + 2 * SEGMENTS + tl.arange(0, SEGMENTS))
        if DROP:
            of_bits = head_bits(seed, b, h)
        for phase in tl.static_range(3):
            start = low if phase == 0 else (full_low if phase == 1 else full_high)
            stop = full_low if phase == 0 else (full_high if phase == 1 else high)
            for block in range(start, stop):
                first = block * BM
                i = first + tl.arange(0, BM)
                inside = i < queries
                own = i + (keys - queries)
                q_tile = load_tile(q_start, first, queries, q_row, BM, D, WIDTH)
                norm = tl.load(norms + of_head + i, mask=inside, other=float("inf"))
                s = product(k_tile, tl.trans(q_tile), EXACT) * scaled
                if CAP:
                    s, steepness = capped(s, cap)
                near_i, rest_i, r, c, r_least, r_most = own, own, own, 0.0, 0.0, 0.0
                if GATES:
                    near_i, rest_i = gate_pair(sums_start, plane, own, inside & (own >= 0) & (own < keys))
                if SEGMENTS > 0:
                    r, c = normaliser(table, own)
                    r_least, r_most = tl.min(r, 0), tl.max(r, 0)
                s, _, _, _ = with_terms(
                    s, own[None, :], j[:, None], near_i[None, :], rest_i[None, :], near_j[:, None], rest_j[:, None],
                    slope, row_start, length, j, i, keys - 1, r[None, :], c, r_least, r_most, knots, table,
                    first + (keys - queries), first_key, ROW, SLOPES, GATES, SEGMENTS, BM, BN,
                )  # fmt: skip
                p = tl.exp2(s - norm[None, :])
                if phase != 1:
                    at = q_ids + b * ids_q, k_ids + b * ids_k
                    seen = is_visible(i[None, :], j[:, None], *at, queries, keys, window, CAUSAL, WINDOW, IDS)
                    p = tl.where(seen, p, 0.0)
                grad_tile = load_tile(grad_start, first, queries, grad_row, BM, DV, VALUES)
                of_p = product(v_tile, tl.trans(grad_tile), EXACT)
                mean = tl.load(delta + of_head + i, mask=inside, other=0.0)
                if DROP:
                    keep = kept(mixed_index(i + first_query, of_bits, False)[None, :], bits_j[:, None], dropped, factor)
                    of_v += product((p * keep).to(grad_tile.dtype), grad_tile, EXACT)
                    of_s = p * (of_p * keep - mean[None, :])
                else:
                    of_v += product(p.to(grad_tile.dtype), grad_tile, EXACT)
                    of_s = p * (of_p - mean[None, :])
                if GATES:
                    of_columns += tl.sum(of_s, 1)
                if CAP:
                    of_s *= steepness
                of_k += product(of_s.to(q_tile.dtype), q_tile, EXACT)
        if GATES:
            tl.store(d_sums + plane + (b * heads + h) * keys + j, of_columns, mask=there)
    store_rows(d_k + which * keys * D, of_k * scale, first_key, keys, D, D, BN, WIDTH)
    store_rows(d_v + which * keys * DV, of_v, first_key, keys, DV, DV, BN, VALUES)


@triton.jit(do_not_specialize=LENGTHS)
def row_backward(
    q, k, v, row, slopes, sums, tables, sink, q_ids, k_ids, seed, grad, norms, delta, parts,
    scale, cap, dropped, factor, first_query,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    row_head, length, plane, ids_q, ids_k,
    grad_batch, grad_head, grad_row, heads, group, queries, keys, window, batch, chunk, first_diagonal,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, ROW: tl.constexpr, SLOPES: tl.constexpr,
    GATES: tl.constexpr, SEGMENTS: tl.constexpr, CAP: tl.constexpr, DROP: tl.constexpr, SINK: tl.constexpr,
    EXACT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, DV: tl.constexpr,
    VALUES: tl.constexpr,
):  # fmt: skip
    """``parts`` (heads, chunks, diagonals, 2, BM): dS of a diagonal of tiles, summed over its own diagonals.

    Tile (a, d) has the queries from a · BM on, and keys so that distance n = d · BM + x − y belongs to its row x and
    column y. Sums with x ≥ y come first, at (x − y); the others, at (x − y) mod BM, belong to diagonal d − 1.
    """
    diagonal = tl.program_id(0) + first_diagonal
    h = tl.program_id(2).to(tl.int64)
    x, y = tl.arange(0, BM), tl.arange(0, BM)
    n = diagonal * BM + x[:, None] - y[None, :]
    index = n + (queries - 1)
    exists = (index >= 0) & (index < queries + keys - 1)
    added = tl.load(row + h * row_head + 4 * length + index, mask=exists, other=0.0)
    if SLOPES:
        added -= tl.load(slopes + h) * LOG2_E * tl.abs(n).to(tl.float32)
    total = tl.zeros((BM, BM), tl.float32)
    start = tl.program_id(1) * chunk
    stop = tl.minimum(start + chunk, tl.cdiv(queries, BM))
    # Only tiles that have keys: first_key from −BM + 1 to keys − 1.
    shift = (keys - queries) - diagonal * BM
    start = tl.maximum(start, tl.cdiv(tl.maximum(1 - BM - shift, 0), BM))
    stop = tl.minimum(stop, tl.cdiv(tl.maximum(keys - shift, 0), BM))
    for row_of_batch in range(batch):
        b = h * 0 + row_of_batch
        of_head = (b * heads + h) * queries
        q_start, grad_start = q + b * q_batch + h * q_head, grad + b * grad_batch + h * grad_head
        k_start, v_start = k + b * k_batch + h // group * k_head, v + b * v_batch + h // group * v_head
        sums_start = sums + (b * heads + h) * keys
        for block in range(start, stop):
            first = block * BM
            first_key = first + shift
            i, j = first + x, first_key + y
            inside, there = i < queries, (j >= 0) & (j < keys)
            own = i + (keys - queries)
            q_tile = load_tile(q_start, first, queries, q_row, BM, D, WIDTH)
            k_tile = load_tile(k_start, first_key, keys, k_row, BM, D, WIDTH)
            s = product(q_tile, tl.trans(k_tile), EXACT) * (scale * LOG2_E)
            if CAP:
                s, _ = capped(s, cap)
            s += added
            if GATES:
                near_i, rest_i = gate_pair(sums_start, plane, own, inside & (own >= 0) & (own < keys))
                near_j, rest_j = gate_pair(sums_start, plane, j, there)
                s += ((near_i[:, None] - near_j[None, :]) + (rest_i[:, None] - rest_j[None, :])) * LOG2_E
            norm = tl.load(norms + of_head + i, mask=inside, other=float("inf"))
            at = q_ids + b * ids_q, k_ids + b * ids_k
            seen = is_visible(i[:, None], j[None, :], *at, queries, keys, window, CAUSAL, WINDOW, IDS)
            p = tl.where(seen, tl.exp2(s - norm[:, None]), 0.0)
            grad_tile = load_tile(grad_start, first, queries, grad_row, BM, DV, VALUES)
            v_tile = load_tile(v_start, first_key, keys, v_row, BM, DV, VALUES)
            of_p = product(grad_tile, tl.trans(v_tile), EXACT)
            if DROP:
                bits_i = mixed_index(i + first_query, head_bits(seed, b, h), False)
                bits_j = mixed_index(j, tl.load(seed + 1).to(tl.uint32, bitcast=True), True)
                of_p *= kept(bits_i[:, None], bits_j[None, :], dropped, factor)
            mean = tl.load(delta + of_head + i, mask=inside, other=0.0)
            total += p * (of_p - mean[:, None])
    turned = tl.gather(
        total, (x[:, None] - y[None, :]) & (BM - 1), 1
    )  # column o holds the entries with (x − y) mod BM = o
    place = (h * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    to = parts + place * 2 * BM
    tl.store(to + y, tl.sum(tl.where(x[:, None] >= y[None, :], turned, 0.0), 0))
    tl.store(to + BM + y, tl.sum(tl.where(x[:, None] < y[None, :], turned, 0.0), 0))
