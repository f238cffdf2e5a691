"""The kernel of a step over a cache of fixed size: one token of each row written into its slot, rotated on the way.

One program for each head of the queries, keys and values of a row, and one for what the row keeps beside them. How many
tokens came before is on the device, so that all steps are the same launch.
"""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: N803
# Triton has no types, and is not there on most machines; its constants are arguments in capitals.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(debug=True, do_not_specialize=["at"])  # its assertion is what tells of a token too many
def append(
    q, k, v, state, cos, sin, positions, is_real, counts, new_q, k_slots, v_slots, state_slots, real, places, written,
    q_batch, q_head, k_batch, k_head, v_batch, v_head, k_slots_batch, k_slots_head, k_slot, v_slots_batch, v_slots_head,
    v_slot, state_slots_batch, state_slots_head, state_slot, table_batch, position_batch,
    turning_heads, kv_heads, width, value_width, pairs, states, state_width, capacity, at,
    COUNTED: tl.constexpr, HALF: tl.constexpr, ROTATES: tl.constexpr, STATES: tl.constexpr, PLACES: tl.constexpr,
    PADDED: tl.constexpr, RING: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Queries are rotated into ``new_q`` (batch, turning_heads, width), keys into their slots; tables are float32.

    COUNTED: the first of ``counts`` says how many tokens came before; else ``at``, and nothing is marked or placed.
    RING: slots are used again, and ``written`` says for how many tokens they were. PADDED: ``is_real`` (batch,) says
    which tokens are; else all are. STATES: what an encoding keeps of a token, ``states`` times ``state_width`` numbers.
    """
    b, unit = tl.program_id(0).to(tl.int64), tl.program_id(1)
    seen = at.to(tl.int64)
    if COUNTED:
        seen = tl.load(counts)
    slot = seen
    if RING:
        slot = seen % capacity
    tl.device_assert(slot < capacity, "more tokens than the capacity of a static cache")
    channel = tl.arange(0, WIDTH)
    if unit < turning_heads + kv_heads:
        if unit < turning_heads:
            old, new = q + b * q_batch + unit * q_head, new_q + (b * turning_heads + unit) * width
        else:
            h = unit - turning_heads
            old, new = k + b * k_batch + h * k_head, k_slots + b * k_slots_batch + h * k_slots_head + slot * k_slot
        inside = channel < width
        if ROTATES:
            inside &= channel >= 2 * pairs
            pair = tl.arange(0, PAIRS)
            turns = pair < pairs
            first, second = 2 * pair, 2 * pair + 1
            if HALF:
                first, second = pair, pair + pairs
            x = tl.load(old + first, mask=turns, other=0.0).to(tl.float32)
            y = tl.load(old + second, mask=turns, other=0.0).to(tl.float32)
            c = tl.load(cos + b * table_batch + pair, mask=turns, other=0.0)
            s = tl.load(sin + b * table_batch + pair, mask=turns, other=0.0)
            tl.store(new + first, (x * c - y * s).to(new_q.dtype.element_ty), mask=turns)
            tl.store(new + second, (y * c + x * s).to(new_q.dtype.element_ty), mask=turns)
        tl.store(new + channel, tl.load(old + channel, mask=inside, other=0.0), mask=inside)
    elif unit < turning_heads + 2 * kv_heads:
        h = unit - turning_heads - kv_heads
        of_value = tl.arange(0, VALUES)
        value = tl.load(v + b * v_batch + h * v_head + of_value, mask=of_value < value_width, other=0.0)
        value_to = v_slots + b * v_slots_batch + h * v_slots_head + slot * v_slot
        tl.store(value_to + of_value, value, mask=of_value < value_width)
    else:
        if COUNTED:
            mark = tl.full((), 1, tl.uint8)
            if PADDED:
                mark = tl.load(is_real + b)
            tl.store(real + b * capacity + slot, mark)
        if PLACES:
            tl.store(places + b * capacity + slot, tl.load(positions + b * position_batch))
        if RING:
            tl.store(written, tl.maximum(tl.load(written), seen + 1), mask=b == 0)
        if STATES > 0:
            of_state = tl.arange(0, STATES)
            in_state = of_state < states * state_width
            number = tl.load(state + b * states * state_width + of_state, mask=in_state, other=0.0)
            state_to = state_slots + b * state_slots_batch + of_state // state_width * state_slots_head
            tl.store(state_to + slot * state_slot + of_state % state_width, number, mask=in_state)
