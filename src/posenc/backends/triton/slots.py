"""Steps over a cache of fixed size on a GPU: the newest token written and rotated in one launch, and the check of both.

The cache's own count says how many tokens came. It stays on the device, so that every step is the same launches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.backends.triton import guard, launch
from posenc.backends.triton.guard import Kind, Results, Run, Size
from posenc.backends.triton.launch import Slots
from posenc.frequencies.rotation import Layout
from posenc.rotary._rotate import rotate_pairs
from posenc.structure import Counts, Decay, Lookup, Row, Structure

WARPS = 1
WIDEST = 256  # of a head
MOST_STATE = 8192  # numbers


class Newest(NamedTuple):
    """One token of each row, and what a cache of fixed size keeps of it."""

    k: Tensor  # (batch, num_kv_heads, 1, head_dim), not rotated where there is a table
    v: Tensor  # (batch, num_kv_heads, 1, value_dim)
    positions: Tensor | None  # int64 (batch | 1, 1); None: no encoding reads any
    is_real: Tensor | None  # bool (batch, 1); None: all are
    state: Tensor | None  # of one encoding, (batch, heads, 1, ...)
    table: tuple[Tensor, Tensor] | None  # cos and sin, float32 ([batch | 1,] 1, pairs)
    layout: Layout


def append(q: Tensor, newest: Newest, slots: Slots, k: Tensor, v: Tensor, state: Tensor | None) -> Tensor:
    """Write the newest token into its slot of ``k``, ``v`` and ``state``; the queries, rotated where there is a table.

    Args:
        q: ``(batch, heads, 1, head_dim)``.
        newest: the token.
        slots: of the cache, which knows the token's slot; marked there, and placed.
        k, v, state: tensors of all slots, ``(batch, heads, slots, ...)``, and any number more of them.
    """
    positions, is_real, table = newest.positions, newest.is_real, newest.table
    cos, sin = (None, None) if table is None else (t.reshape(-1, t.shape[-1]).contiguous() for t in table)
    rotated: Tensor = _append(
        *(launch.row_contiguous(x) for x in (q, newest.k, newest.v)),
        None if newest.state is None else newest.state.contiguous(), cos, sin,
        None if positions is None else positions.reshape(-1), None if is_real is None else is_real.contiguous(),
        slots.counts, k, v, state, slots.real, slots.places, slots.written, newest.layout == "half", slots.window > 0,
        0,
    )  # fmt: skip
    return q if table is None else rotated


def write(at: int, k: Tensor, v: Tensor, state: Tensor | None, *held: Tensor | None) -> None:
    """Put one token of each row, as in `Newest`, at an index of the tensors that hold keys, values and states."""
    k, v = launch.row_contiguous(k), launch.row_contiguous(v)
    state = None if state is None else state.contiguous()
    nothing = (None, None, None, None, None)
    _append(k, k, v, state, *nothing[:4], None, *held, None, None, None, False, False, at)


@torch.library.custom_op(
    "posenc::append", mutates_args=("k_slots", "v_slots", "state_slots", "real", "places", "written")
)
def _append(
    q: Tensor, k: Tensor, v: Tensor, state: Tensor | None, cos: Tensor | None, sin: Tensor | None,
    positions: Tensor | None, is_real: Tensor | None, counts: Tensor | None, k_slots: Tensor, v_slots: Tensor,
    state_slots: Tensor | None, real: Tensor | None, places: Tensor | None, written: Tensor | None, half: bool,
    ring: bool, at: int,
) -> Tensor:  # fmt: skip
    from posenc.backends.triton import slot_kernels

    (batch, heads), kv_heads, rotates, pairs = q.shape[:2], k.shape[1], cos is not None, 0
    new_q, turning, between_tables = q.new_empty(0), 0, 0
    if cos is not None:
        new_q, turning, pairs = q.new_empty(q.shape), heads, cos.shape[-1]
        between_tables = 0 if cos.shape[0] == 1 else pairs
    between_positions = 0 if positions is None or positions.shape[0] == 1 else positions.stride(0)
    of_state: tuple[int, ...] = (0, 0, 0)
    states, state_width = 0, 1
    if state is not None and state_slots is not None:
        of_state, states, state_width = state_slots.stride()[:3], state.shape[1], state[0, 0].numel()
    is_real, real = (None if x is None else x.view(torch.uint8) for x in (is_real, real))
    inputs = (q if x is None else x for x in (state, cos, sin, positions, is_real, counts))
    outputs = (q if x is None else x for x in (k_slots, v_slots, state_slots, real, places, written))
    steps = [step for x in (q, k, v) for step in x.stride()[:2]]
    steps += [step for x in (k_slots, v_slots) for step in x.stride()[:3]]
    capacity = k_slots.shape[2] if real is None else real.shape[1]
    slot_kernels.append[(batch, turning + 2 * kv_heads + 1)](
        q, k, v, *inputs, new_q, *outputs, *steps, *of_state, between_tables, between_positions,
        turning, kv_heads, q.shape[3], v.shape[3], pairs, states, state_width, capacity, at,
        COUNTED=counts is not None, HALF=half, ROTATES=rotates, PLACES=positions is not None,
        STATES=launch.padded(states * state_width) if states else 0, PADDED=is_real is not None, RING=ring,
        WIDTH=launch.padded(q.shape[3]), VALUES=launch.padded(v.shape[3]), PAIRS=launch.padded(pairs),
        num_warps=WARPS, sanitize_overflow=False,
    )  # fmt: skip
    return new_q


@_append.register_fake
def _fake(q, k, v, state, cos, *rest):  # type: ignore[no-untyped-def]
    return q.new_empty(q.shape if cos is not None else 0)


def refuses_append(q: Tensor, newest: Newest, slots: Slots, state: Tensor | None) -> str | None:
    """Why the kernel should not write this token, or None; ``state``: of all slots."""
    unknown = _unknown((q, newest.k, newest.v), newest.state, state)
    if unknown is not None:
        return unknown
    if newest.positions is not None and (newest.positions.dtype != torch.int64 or slots.places.ndim > 2):
        return "the kernel knows positions of one coordinate, int64"
    flags = ["ring"] if slots.window else []
    if newest.table is not None:
        flags += [newest.layout, f"{newest.table[0].shape[-1]} pairs"]
    kind = Kind("append", tuple(flags), q.dtype, q.shape[3], newest.v.shape[3], False)
    return guard.refusal(kind, q.device, append, appended)


def _unknown(tensors: tuple[Tensor, ...], state: Tensor | None, held: Tensor | None) -> str | None:
    """What the kernel does not know of a token, or None; ``held``: what is to hold its state."""
    dtype = tensors[0].dtype
    if dtype not in guard.TOLERANCES or any(x.dtype != dtype or x.shape[3] > WIDEST for x in tensors):
        return f"the kernel takes tokens of one dtype, float32 or less, and heads of at most {WIDEST} channels"
    if state is not None and (held is None or held.dtype != state.dtype or state[0].numel() > MOST_STATE):
        return f"the kernel writes at most {MOST_STATE} numbers of a token's state, in the dtype of what holds them"
    return None


def appended(kind: Kind, size: Size, device: torch.device, run: Run) -> tuple[Results, Results]:
    """What a token leaves in a cache and in the queries: by the definition in float64 on the CPU, and by the kernel."""
    (batch, heads, kv_heads, _, capacity), ring = size, "ring" in kind.flags
    came, pairs = (capacity + 7 if ring else capacity - 3), next((f for f in kind.flags if "pairs" in f), "0 pairs")
    layout: Layout = "interleaved" if "interleaved" in kind.flags else "half"
    q = guard.drawn((batch, heads, 1, kind.width), seed=1).to(kind.dtype)
    k = guard.drawn((batch, kv_heads, 1, kind.width), seed=2).to(kind.dtype)
    v = guard.drawn((batch, kv_heads, 1, kind.value_width), seed=3).to(kind.dtype)
    state, held_state = guard.drawn((batch, heads, 1), seed=4), guard.drawn((batch, heads, capacity), seed=5)
    held = [guard.drawn((batch, kv_heads, capacity + 1, x.shape[3]), seed=6).to(kind.dtype) for x in (k, v)]
    angles = guard.drawn((batch, 1, int(pairs.split()[0])), seed=7)
    positions, real = torch.arange(batch)[:, None] + 1000, torch.arange(batch)[:, None] % 2 == 0
    places, marks = torch.arange(batch * capacity).view(batch, capacity), torch.zeros(batch, capacity, dtype=torch.bool)
    table = (angles.cos(), angles.sin()) if angles.numel() else None

    turned = [x.double() for x in (q, k)]
    if table is not None:
        cos, sin = (t.double().unsqueeze(1) for t in table)
        turned = [rotate_pairs(x, cos, sin, layout) for x in turned]
    right: Results = {"result": turned[0]}
    slot = torch.tensor([came % capacity])
    after = {"keys": (held[0], turned[1]), "values": (held[1], v), "state": (held_state, state)}
    right |= {name: old.double().index_copy(2, slot, new.double()) for name, (old, new) in after.items()}
    right["places"] = places.index_copy(1, slot, positions).double()
    right["real"] = marks.index_copy(1, slot, real).double()
    right["written"] = torch.tensor(float(came + 1 if ring else 0))

    counts, written = torch.tensor([came, *range(batch)], device=device), torch.zeros((), dtype=torch.int64)
    slots = Slots(counts, marks.to(device), places.to(device), written.to(device), capacity if ring else 0)
    on_device = None if table is None else (table[0].to(device), table[1].to(device))
    k, v, positions, is_real, state = (x.to(device) for x in (k, v, positions, real, state))
    token = Newest(k, v, positions, is_real, state, on_device, layout)
    kept = [x.to(device) for x in (*held, held_state)]
    got: Results = {"result": run(q.to(device), token, slots, *kept)}
    got |= dict(zip(("keys", "values", "state"), kept, strict=True))
    got |= {"places": slots.places, "real": slots.real, "written": slots.written}
    return right, {name: x.cpu().double() for name, x in got.items()}


def refuses_write(k: Tensor, v: Tensor, state: Tensor | None, held: Tensor | None) -> str | None:
    """Why the kernel should not put this token into a growing cache, or None; ``held``: the state's tensor."""
    unknown = _unknown((k, v), state, held)
    if unknown is not None:
        return unknown
    kind = Kind("append", ("at",), k.dtype, k.shape[3], v.shape[3], False)
    return guard.refusal(kind, k.device, write, _written)


def _written(kind: Kind, size: Size, device: torch.device, run: Run) -> tuple[Results, Results]:
    """A token among others, by the definition on the CPU and by the kernel."""
    batch, heads, kv_heads, _, room = size
    shapes = {"keys": (kv_heads, kind.width), "values": (kv_heads, kind.value_width), "state": (heads, 1)}
    new = {name: guard.drawn((batch, h, 1, width), seed=width).to(kind.dtype) for name, (h, width) in shapes.items()}
    held = {name: guard.drawn((batch, h, room, w), seed=w + 1).to(kind.dtype) for name, (h, w) in shapes.items()}
    at = torch.tensor([room // 3])
    right = {name: held[name].index_copy(2, at, new[name]).double() for name in shapes}
    on_device = [x.to(device) for x in held.values()]
    run(int(at), *(x.to(device) for x in new.values()), *on_device)
    return right, {name: x.cpu().double() for name, x in zip(shapes, on_device, strict=True)}


def results(kind: Kind, size: Size, device: torch.device, run: Run) -> tuple[Results, Results]:
    """What is right, by tiles in float64 on the CPU, and what a kernel makes of a text's last query over its slots."""
    from posenc.backends import tiles

    keys, size = size[4], (*size[:3], 1, size[4])
    right, _ = guard.small_call(kind, size, torch.device("cpu"), torch.float64)
    call, _ = guard.small_call(kind, size, device, kind.dtype)
    window = call.window or 0
    capacity = window + 9 if window else keys + 30
    held = min(keys, capacity)
    slot = torch.arange(keys - held, keys, device=device) % capacity

    def placed(x: Tensor, axis: int) -> Tensor:
        """The newest tokens in their slots, all others far from what they should be."""
        shape = (*x.shape[:axis], capacity, *x.shape[axis + 1 :])
        return x.new_full(shape, 3).index_copy(axis, slot, x.narrow(axis, keys - held, held))

    def longer(row: Tensor) -> Tensor:
        """As many distances as slots."""
        return torch.nn.functional.pad(row[..., :capacity], (0, max(0, capacity - keys)))

    structures: list[Structure] = []
    for part in call.structures[0] or ():
        if isinstance(part, Row):
            part = Row(longer(part.values))
        elif isinstance(part, Decay):
            part = Decay(placed(part.gates, 2))
        elif isinstance(part, Counts) and part.keys is not None:
            part = Counts(part.table, part.factor, part.queries, placed(part.keys, 2))
        structures.append(part)
    bias: list[Any] = list(call.bias)  # stand-ins of the guard
    for at, each in enumerate(bias):
        if each.lookup_ is not None:
            bias[at] = each._replace(lookup_=Lookup(each.lookup_.table, longer(each.lookup_.entries)))
    mask = torch.ones(1, keys, dtype=torch.bool, device=device) if call.mask is None else call.mask[:, 0, 0]
    real = placed(mask.expand(size[0], keys), 1)
    counts = torch.tensor([keys - 1, *[0] * size[0]], device=device)
    places = placed(torch.arange(keys, device=device).expand(size[0], keys), 1)
    slots = Slots(counts, real, places, torch.zeros_like(counts[0]), window)
    call = call.replace(
        k=placed(call.k, 2),
        v=placed(call.v, 2),
        bias=tuple(bias),
        structures=(tuple(structures),),
        mask=real[:, None, None],
    )
    return {"result": tiles.run(right)}, {"result": run(call, slots).cpu().double()}
