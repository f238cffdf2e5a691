"""Kernels of softmax attention of few queries over many keys, as in decode steps: parts of the keys, and their join.

One program for each part and key head, so that a step fills the device; the heads of a group and their queries are the
rows of its tile, and each key is loaded once. Logits as in `softmax_kernels`, but for

    GATES   a part sums its gates from its newest key back, and leaves its total: s_ij has the gates of its own part
            alone, and `joined` adds those of all newer parts. So no sum over all keys is made first. Queries that are
            not the newest take off the gates of keys after them.
    STICKS  instead of softmax: a part uses its sticks as if it had the newest keys, and leaves how much it used;
            `joined` takes what newer parts used off its result
    COUNTS  positions that count gates are no sum of parts: a launch of its own (COUNTS = 1) sums the gates of each part
            first, and makes z meanwhile, some positions a part; the next (COUNTS = 2) begins at what newer parts count
    SEEN    keys that are hidden from all queries, one byte each; they forget nothing
    SLOTS   of a cache of fixed size: one query, which is the newest key; how many there are says the device, and under
            a window key j lies in slot j mod capacity. PLACES: distances are those of the keys' positions

Source: Dao, Haziza, Massa, Sizov: Flash-Decoding for long-context inference, 2023, for the split of the keys.
"""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: N803
# Triton has no types, and is not there on most machines; its constants are arguments in capitals.

from __future__ import annotations

import triton
import triton.language as tl

from posenc.backends.triton.count_kernels import gate_of, positions
from posenc.backends.triton.softmax_kernels import capped, normaliser
from posenc.backends.triton.stick_kernels import shares
from posenc.backends.triton.term_kernels import HEADER, log_of
from posenc.backends.triton.tile import LOG2_E, product, sees

LENGTHS = ["queries", "keys", "window", "low", "number_of_positions"]


@triton.jit(do_not_specialize=LENGTHS)
def parts(
    q, k, v, row, index, tables, slopes, gates, gate_q, gate_k, table_of_z, q_ids, k_ids, counts, places, seen_keys,
    results, norms, totals, z, scale, cap, factor,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, row_head, row_entry,
    gate_batch, gate_head, gate_key, gq_batch, gq_head, gq_row, gk_batch, gk_head, gk_row, z_channel, z_position,
    ids_q, ids_k, seen_batch, heads, group, queries, keys, window, low, number_of_positions,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, IDS: tl.constexpr, SEEN: tl.constexpr, ROW: tl.constexpr,
    INDEX: tl.constexpr, SLOPES: tl.constexpr, GATES: tl.constexpr, SEGMENTS: tl.constexpr, CAP: tl.constexpr,
    SINK: tl.constexpr, STICKS: tl.constexpr, CURRENT: tl.constexpr, COUNTS: tl.constexpr, SEPARATE: tl.constexpr,
    SLOTS: tl.constexpr, PLACES: tl.constexpr, EXACT: tl.constexpr, MOST: tl.constexpr, ROWS: tl.constexpr,
    BN: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, DV: tl.constexpr, VALUES: tl.constexpr,
    GD: tl.constexpr, GATE_WIDTH: tl.constexpr, PARTS: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """Of one part: results still to be divided, the largest logit and the norm of each query, and what adds up.

    ``results`` (batch, heads, queries, parts, DV), ``norms`` (…, parts, 2), ``totals`` (…, parts), of gates, sticks or
    counts, and ``z`` (batch, heads, queries, positions), all float32.
    """
    which, number, count = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    kv_heads = heads // group
    b, kv = which // kv_heads, which % kv_heads
    rows = tl.arange(0, ROWS)
    member, i = rows // queries, rows % queries
    exists = member < group
    h = kv * group + member
    capacity = keys
    if SLOTS:
        keys = (tl.load(counts) + 1).to(tl.int32)
        low = keys * 0
        if WINDOW:
            low = tl.maximum(keys - window, 0)
    own = i + (keys - queries)
    place = own  # of the query, from which distances are
    if PLACES:
        place = own * 0 + tl.load(places + b * capacity + (keys - 1) % capacity).to(tl.int32)
    d, dv = tl.arange(0, WIDTH), tl.arange(0, VALUES)
    inside = exists[:, None] & (d < D)[None, :]
    q_at = b * q_batch + h * q_head + i * q_row
    q_tile = tl.load(q + q_at[:, None] + d[None, :], mask=inside, other=0.0)
    k_start, v_start = k + b * k_batch + kv * k_head, v + b * v_batch + kv * v_head
    # Blocks are counted from the newest key back, which lies at the end of block 0.
    blocks = tl.cdiv(tl.maximum(keys - low, 0), BN)
    first, stop = number * blocks // count, (number + 1) * blocks // count
    total = tl.zeros((ROWS, VALUES), tl.float32)
    norm, best = tl.zeros((ROWS,), tl.float32), tl.full((ROWS,), float("-inf"), tl.float32)
    passed = tl.zeros((ROWS,), tl.float32)  # gates, sticks or counts of newer keys of this part
    to = ((b * heads + h) * queries + i) * count + number
    slope, centre, after = passed, passed, passed
    if SLOPES:
        slope = tl.load(slopes + h, mask=exists, other=0.0)
    if ROW and not SINK:
        at_own = tl.load(index + queries - 1) if INDEX else queries - 1
        centre = tl.load(row + h * row_head + at_own * row_entry, mask=exists, other=0.0).to(tl.float32)
    if GATES:
        newer = keys - 1 - tl.arange(0, MOST)
        of_newer = b * gate_batch + h[:, None] * gate_head + newer[None, :] * gate_key
        is_later = exists[:, None] & (newer[None, :] > own[:, None])
        if SEEN:
            is_later &= (tl.load(seen_keys + b * seen_batch + newer, mask=newer >= 0, other=0) != 0)[None, :]
        after = tl.sum(tl.load(gates + of_newer, mask=is_later, other=0.0).to(tl.float32), 1)
    if SEGMENTS > 0:
        table = tables + tl.where(exists, h, 0) * (HEADER + 3 * SEGMENTS)
        r, c = normaliser(tables, place)  # the same in the tables of all heads
        knots = tables + HEADER + 2 * SEGMENTS
        all_knots = tl.load(knots + tl.arange(0, SEGMENTS))
        r_least, r_most = tl.min(r, 0), tl.max(r, 0)
    if COUNTS > 0:
        gd, gate_tile = tl.arange(0, GATE_WIDTH), q_tile
        z_rows, last = (z + ((b * heads + h) * queries + i) * number_of_positions)[:, None], number_of_positions - 1
        if SEPARATE:
            gq_at = (b * gq_batch + h * gq_head + i * gq_row)[:, None] + gd[None, :]
            gate_tile = tl.load(gate_q + gq_at, mask=exists[:, None] & (gd < GD)[None, :], other=0.0)
    if COUNTS == 1:
        for start in range(number * POSITIONS, number_of_positions, count * POSITIONS):
            position = start + tl.arange(0, POSITIONS)
            in_table = (gd < GD)[:, None] & (position < number_of_positions)[None, :]
            z_at = gd[:, None] * z_channel + position[None, :] * z_position
            of_table = tl.load(table_of_z + z_at, mask=in_table, other=0.0).to(tl.float32)
            in_z = exists[:, None] & (position < number_of_positions)[None, :]
            tl.store(z_rows + position[None, :], product(gate_tile.to(tl.float32), of_table, True) * factor, mask=in_z)
    if COUNTS == 2:
        newer_part = tl.arange(0, PARTS)
        is_newer = exists[:, None] & (newer_part < number)[None, :]
        passed = tl.sum(tl.load(totals + (to - number)[:, None] + newer_part[None, :], mask=is_newer, other=0.0), 1)
    doc_i = rows
    if IDS:
        doc_i = tl.load(q_ids + b * ids_q + i, mask=exists, other=0)
    for block in range(first, stop):
        j = keys - (block + 1) * BN + tl.arange(0, BN)
        there = j >= low
        slot = j
        if SLOTS and WINDOW:
            slot = j % capacity
        k_tile = tl.load(
            k_start + slot.to(tl.int64)[:, None] * k_row + d[None, :], mask=there[:, None] & (d < D)[None, :], other=0.0
        )
        s = product(q_tile, tl.trans(k_tile), EXACT) * scale
        if CAP:
            s, _ = capped(s, cap)
        n, doc_j = own[:, None] - j[None, :], j
        if PLACES:
            n = place[:, None] - tl.load(places + b * capacity + slot, mask=there, other=0).to(tl.int32)[None, :]
        if IDS:
            doc_j = tl.load(k_ids + b * ids_k + j, mask=there, other=0)
        seen = (
            exists[:, None]
            & there[None, :]
            & sees(i[:, None], j[None, :], doc_i[:, None], doc_j[None, :], queries, keys, window, CAUSAL, WINDOW, IDS)
        )
        open_keys = there
        if SEEN:
            open_keys = there & (tl.load(seen_keys + b * seen_batch + slot, mask=there, other=0) != 0)
            seen &= open_keys[None, :]
        if not CURRENT:
            seen &= own[:, None] != j[None, :]
        if COUNTS > 0:
            raw = s
            if SEPARATE:
                gk_at = gate_k + b * gk_batch + kv * gk_head + slot.to(tl.int64)[:, None] * gk_row + gd[None, :]
                gk_tile = tl.load(gk_at, mask=there[:, None] & (gd < GD)[None, :], other=0.0)
                raw = product(gate_tile, tl.trans(gk_tile), EXACT) * scale
        if COUNTS == 1:
            passed += tl.sum(gate_of(raw, seen), 1)
        if COUNTS == 2:
            gate, _, share, _, here, slope_of_z = positions(raw, passed, seen, z_rows, seen, last)
            s += here + share * slope_of_z
            passed += tl.sum(gate, 1)
        if ROW:
            entry, inside_row = n + (queries - 1), exists[:, None] & there[None, :]
            if SLOTS:  # padding has any position
                inside_row &= (n >= 0) & (n < capacity)
            if INDEX:
                entry = tl.load(index + entry, mask=inside_row, other=0)
            of_row = tl.load(row + h[:, None] * row_head + entry * row_entry, mask=inside_row, other=0.0)
            s += of_row.to(tl.float32) - centre[:, None]
        if SEGMENTS > 0:
            # Segments from that of the smallest input to that of the largest, as in `softmax_kernels.bent`.
            psi = log_of(c * tl.abs(n).to(tl.float32))
            x = psi * r[:, None]
            seen_psi = tl.where(exists[:, None] & there[None, :], psi, 0.0)
            most = tl.max(tl.max(seen_psi, 1), 0)
            least = tl.min(tl.min(tl.where(exists[:, None] & there[None, :], psi, float("inf")), 1), 0)
            first_segment = tl.sum((all_knots < least * r_least).to(tl.int32), 0)
            last_segment = tl.sum((all_knots < most * r_most).to(tl.int32), 0)
            bend = tl.load(table + HEADER + first_segment)
            s += x * bend[:, None] + tl.load(table + HEADER + SEGMENTS + first_segment)[:, None]
            for u in range(first_segment, last_segment):
                next_bend = tl.load(table + HEADER + u + 1)
                s += (next_bend - bend)[:, None] * tl.maximum(x - tl.load(knots + u), 0.0)
                bend = next_bend
        if SLOPES:
            s -= slope[:, None] * tl.abs(n).to(tl.float32)
        if GATES:
            at = b * gate_batch + h[:, None] * gate_head + slot[None, :] * gate_key
            gate = tl.load(gates + at, mask=exists[:, None] & open_keys[None, :], other=0.0).to(tl.float32)
            # of the keys after each: a sum that begins at the newest, less the key's own
            s += tl.cumsum(gate, 1, reverse=True) - gate + passed[:, None]
            passed += tl.sum(gate, 1)
        if COUNTS != 1:
            if STICKS:
                p, _, uses = shares(s * LOG2_E, passed, seen)
                passed += uses
            else:
                s = tl.where(seen, s * LOG2_E, float("-inf"))
                new = tl.maximum(best, tl.max(s, 1))
                middle = tl.where(new == float("-inf"), 0.0, new)
                p, shrink = tl.exp2(s - middle[:, None]), tl.exp2(best - middle)
                total *= shrink[:, None]
                norm, best = norm * shrink + tl.sum(p, 1), new
            v_tile = tl.load(
                v_start + slot.to(tl.int64)[:, None] * v_row + dv[None, :],
                mask=there[:, None] & (dv < DV)[None, :],
                other=0.0,
            )
            total += product(p.to(v_tile.dtype), v_tile, EXACT)
    if COUNTS != 1:
        tl.store(results + to[:, None] * DV + dv[None, :], total, mask=exists[:, None] & (dv < DV)[None, :])
        tl.store(norms + 2 * to, best - after * LOG2_E, mask=exists)
        tl.store(norms + 2 * to + 1, norm, mask=exists)
    if GATES or STICKS or COUNTS == 1:
        tl.store(totals + to, passed, mask=exists)


@triton.jit(do_not_specialize=["queries", "count"])
def joined(
    results, norms, totals, sink, out, used, heads, queries, count, GATES: tl.constexpr, SINK: tl.constexpr,
    STICKS: tl.constexpr, PARTS: tl.constexpr, DV: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """The result of one query of one head; of STICKS also ``used`` (batch, heads, queries), what all parts used."""
    which = tl.program_id(0).to(tl.int64)
    number, dv = tl.arange(0, PARTS), tl.arange(0, VALUES)
    there = number < count
    before = number * 0.0
    if GATES or STICKS:  # part 0 has the newest keys
        of_part = tl.load(totals + which * count + number, mask=there, other=0.0)
        before = tl.cumsum(of_part, 0) - of_part
    if STICKS:
        factor = tl.where(there, tl.exp2(-before), 0.0)
        every = tl.full((), 1.0, tl.float32)
        tl.store(used + which, tl.sum(of_part, 0))
    else:
        best = tl.load(norms + 2 * (which * count + number), mask=there, other=float("-inf")) + before * LOG2_E
        norm = tl.load(norms + 2 * (which * count + number) + 1, mask=there, other=0.0)
        best = tl.where(norm > 0, best, float("-inf"))
        largest = tl.max(best, 0)
        if SINK:
            logit = tl.load(sink + which // queries % heads).to(tl.float32) * LOG2_E
            largest = tl.maximum(largest, logit)
        middle = tl.where(largest == float("-inf"), 0.0, largest)
        factor = tl.exp2(best - middle)
        every = tl.sum(norm * factor, 0)
        if SINK:
            every += tl.exp2(logit - middle)
    inside = there[:, None] & (dv < DV)[None, :]
    of_parts = tl.load(results + (which * count + number)[:, None] * DV + dv[None, :], mask=inside, other=0.0)
    total = tl.sum(of_parts * factor[:, None], 0) / tl.where(every > 0, every, 1.0)
    tl.store(out + which * DV + dv, total.to(out.dtype.element_ty), mask=dv < DV)
