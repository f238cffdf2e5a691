"""Attention of few queries, as in decode steps, on a GPU: two launches whatever is added to the logits.

Positions that count gates take a third: see `decode_kernels`. No gradients. Memory for the results of each part of the
keys. How many parts there are follows from shapes alone, so that a captured step is every step of a cache of fixed
size.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from posenc.backends.triton import decode_kernels, launch
from posenc.backends.triton.launch import Slots, Terms
from posenc.backends.triton.terms import network_tables, segments
from posenc.structure import Counts, Sticks

QUERIES = 16  # at most
BLOCK = 64  # keys of a tile
MOST_PARTS = 64
POSITIONS = 32  # of counts that a program makes at a time


def attend_few(
    q: Tensor, k: Tensor, v: Tensor, terms: Terms, scale: float, causal: bool, window: int,
    softcap: float | None = None, seen: Tensor | None = None, q_ids: Tensor | None = None, k_ids: Tensor | None = None,
    slots: Slots | None = None, sticks: Sticks | None = None, counts: Counts | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention of at most `QUERIES` queries, ``(batch, heads, queries, value_dim)``, without gradients.

    Of sticks also what each query used of them, −log2 of what is left, ``(batch, heads, queries)``; where that goes
    anywhere, results are without it, and float32.

    Args:
        q, k, v: as in `attention`, of one dtype, float32 or less.
        terms: what is added to the logits.
        scale: of the products of q and k.
        causal: whether queries attend to keys up to their own, as the last of them.
        window: tokens that a query attends to; 0: all.
        softcap: what scale · q·k is capped to.
        seen: bool ``(batch | 1, keys)``, keys that are not hidden.
        q_ids, k_ids: int64 ``(batch | 1, queries)`` and ``(batch | 1, keys)``, documents.
        slots: where keys lie and how many there are, of one query; k, v, seen, terms and counts have all slots.
        sticks: in place of softmax, without terms.
        counts: a term, alone.
    """
    q, k, v = (launch.row_contiguous(x) for x in (q, k, v))
    gates = None if terms.gates is None else terms.gates.expand(q.shape[0], q.shape[1], -1)
    seen = None if seen is None else launch.row_contiguous(seen)
    tables = None if terms.network is None else network_tables(terms.network)
    of_counts: list[Tensor | None] = [None, None, None]
    if counts is not None:
        of_counts[0] = counts.table
        if counts.queries is not None or counts.keys is not None:
            own = q if counts.queries is None else counts.queries, k if counts.keys is None else counts.keys
            of_counts[1:] = [launch.row_contiguous(x.to(q.dtype)) for x in own]
    current, wide = sticks is None or sticks.attend_current, sticks is not None and sticks.remainder != "drop"
    results: tuple[Tensor, Tensor] = _attend_few(
        q, k, v, terms.row, terms.entries, tables, terms.slopes, gates, terms.sink, *of_counts, seen, q_ids, k_ids,
        None if slots is None else slots.counts, None if slots is None else slots.places, scale, causal, window,
        softcap or 0.0, 0.0 if counts is None else counts.factor, sticks is not None, current, wide,
    )  # fmt: skip
    return results


def number_of_parts(programs: int, blocks: int, multiprocessors: int) -> int:
    """Parts of the keys so that a step has two programs a multiprocessor, and each part at least one block."""
    return max(1, min(MOST_PARTS, blocks, -(-2 * multiprocessors // programs)))


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 8
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


@torch.library.custom_op("posenc::attend_few", mutates_args=())
def _attend_few(
    q: Tensor, k: Tensor, v: Tensor, row: Tensor | None, index: Tensor | None, tables: Tensor | None,
    slopes: Tensor | None, gates: Tensor | None, sink: Tensor | None, table: Tensor | None, gate_q: Tensor | None,
    gate_k: Tensor | None, seen: Tensor | None, q_ids: Tensor | None, k_ids: Tensor | None, counts: Tensor | None,
    places: Tensor | None, scale: float, causal: bool, window: int, softcap: float, factor: float, sticks: bool,
    current: bool, wide: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    (batch, heads, queries, width), num_kv_heads, keys, values = q.shape, k.shape[1], k.shape[2], v.shape[3]
    low = max(0, keys - queries - window + 1) if window else 0
    blocks = max(1, -(-(keys - low) // BLOCK))  # of slots, the most that there can be
    count = number_of_parts(batch * num_kv_heads, blocks, _multiprocessors(q.device))
    results = q.new_empty(batch, heads, queries, count, values, dtype=torch.float32)
    norms = q.new_empty(batch, heads, queries, count, 2, dtype=torch.float32)
    adds_up = gates is not None or sticks or table is not None
    totals = q.new_empty(norms.shape[:-1] if adds_up else 1, dtype=torch.float32)
    positions = 0 if table is None else table.shape[1]
    z = q.new_empty(batch, heads, queries, positions, dtype=torch.float32)
    out = q.new_empty(batch, heads, queries, values, dtype=torch.float32 if wide else q.dtype)
    used = q.new_empty((batch, heads, queries) if sticks else 0, dtype=torch.float32)
    group = heads // num_kv_heads
    of_row = (0, 0) if row is None else (0 if row.shape[0] == 1 else row.stride(0), row.stride(1))
    of_gates = (0, 0, 0) if gates is None else gates.stride()
    of_counts: tuple[int, ...] = (0,) * 8
    if table is not None:
        separate = [x for x in (gate_q, gate_k) if x is not None] or [q, k]
        of_counts = (*launch.strides(separate), *table.stride())
    *of_tensors, ids_q, ids_k, of_seen = launch.strides((q, k, v), q_ids, k_ids, seen)
    optional = row, index, tables, slopes, gates, gate_q, gate_k, table, q_ids, k_ids, counts, places
    by_distance = row is not None or slopes is not None or tables is not None
    values_padded, exact = launch.padded(values), launch.exact(q)
    gate_width = width if gate_q is None else gate_q.shape[3]

    for launched in (0,) if table is None else (1, 2):
        decode_kernels.parts[(batch * num_kv_heads, count)](
            q, k, v, *(q if x is None else x for x in optional), q if seen is None else seen.view(torch.uint8), results,
            norms, totals, z, scale, softcap, factor, *of_tensors, *of_row, *of_gates, *of_counts, ids_q, ids_k,
            of_seen, heads, group, queries, keys, window, low, positions,
            CAUSAL=causal, WINDOW=window > 0, IDS=q_ids is not None, SEEN=seen is not None, ROW=row is not None,
            INDEX=index is not None, SEGMENTS=segments(tables), SLOPES=slopes is not None, GATES=gates is not None,
            CAP=softcap > 0, SINK=sink is not None, STICKS=sticks, CURRENT=current, COUNTS=launched,
            SEPARATE=gate_q is not None, SLOTS=counts is not None, PLACES=counts is not None and by_distance,
            EXACT=exact, MOST=QUERIES, ROWS=launch.padded(group * queries), BN=BLOCK, D=width,
            WIDTH=launch.padded(width), DV=values, VALUES=values_padded, GD=gate_width,
            GATE_WIDTH=launch.padded(gate_width), PARTS=MOST_PARTS, POSITIONS=POSITIONS, num_warps=4,
            num_stages=2 if exact else 3,
        )  # fmt: skip
    decode_kernels.joined[(batch * heads * queries,)](
        results, norms, totals, q if sink is None else sink, out, used, heads, queries, count, GATES=gates is not None,
        SINK=sink is not None, STICKS=sticks, PARTS=1 << (count - 1).bit_length(), DV=values, VALUES=values_padded,
        num_warps=4,
    )  # fmt: skip
    return out, used


@_attend_few.register_fake
def _fake(q, k, v, *rest):  # type: ignore[no-untyped-def]
    *_, sticks, _, wide = rest
    out = q.new_empty(*q.shape[:3], v.shape[3], dtype=torch.float32 if wide else q.dtype)
    return out, q.new_empty(q.shape[:3] if sticks else 0, dtype=torch.float32)
