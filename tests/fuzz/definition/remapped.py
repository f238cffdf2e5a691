"""Distances moved: each pair of tokens has the score that RoPE gives to two positions which the method says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from tests.fuzz.definition.rotary import rope
from tests.fuzz.definition.terms import Call, Encoded, products

# Ranges of a method: positions of queries and of keys, and which pairs lie in it, (batch, queries, keys).
Range = tuple[Tensor, Tensor, Tensor]
Ranges = Callable[[Encoded, Tensor, Tensor, Tensor], list[Range]]


def moved(encoded: Encoded, call: Call) -> tuple[Tensor, Tensor]:
    """The products that stand in the place of q·k, times the scale and capped; and which pairs are in some range."""
    inner: Encoded = encoded.option("rotation")  # type: ignore[assignment]
    q_pos, k_pos = call.q_pos, call.k_pos
    if q_pos.is_floating_point() or k_pos.is_floating_point():
        q_pos, k_pos = q_pos.double(), k_pos.double()
    apart = q_pos[:, :, None] - k_pos[:, None, :]
    total, held = torch.zeros(()), torch.zeros(apart.shape, dtype=torch.bool)
    for of_queries, of_keys, here in MOVED[encoded.kind](encoded, q_pos, k_pos, apart):
        turned = rope(inner, replace(call, q_pos=of_queries, k_pos=of_keys))
        gain = encoded.number("gain", 1.0)
        turned = replace(turned, q=turned.q * gain, k=turned.k * gain)
        found = products(turned.q, call.for_queries(turned.k), call.rounding) * call.scale
        total = torch.where(here[:, None], turned.capped(found), total)
        held = held | here
    return total, held[:, None]


def rerope(encoded: Encoded, q_pos: Tensor, k_pos: Tensor, apart: Tensor) -> list[Range]:
    window = encoded.count("window")
    far = (torch.full_like(q_pos, window), torch.zeros_like(k_pos), apart >= window)
    return [(q_pos, k_pos, apart < window), far]


def leaky(encoded: Encoded, q_pos: Tensor, k_pos: Tensor, apart: Tensor) -> list[Range]:
    window, factor = encoded.count("window"), encoded.number("factor", 16.0)
    far = (q_pos.double() / factor + (window - window / factor), k_pos.double() / factor, apart >= window)
    return [(q_pos, k_pos, apart < window), far]


def self_extend(encoded: Encoded, q_pos: Tensor, k_pos: Tensor, apart: Tensor) -> list[Range]:
    window, group = encoded.count("window"), encoded.count("group")
    whole = q_pos.div(group, rounding_mode="floor") + (window - window // group)
    return [(q_pos, k_pos, apart < window), (whole, k_pos.div(group, rounding_mode="floor"), apart >= window)]


def dual_chunk(encoded: Encoded, q_pos: Tensor, k_pos: Tensor, apart: Tensor) -> list[Range]:
    size = encoded.count("size")
    chunk = size - encoded.count("local")
    number = q_pos.div(chunk, rounding_mode="floor")[:, :, None] - k_pos.div(chunk, rounding_mode="floor")[:, None]
    own, keys = q_pos.remainder(chunk), k_pos.remainder(chunk)
    last = torch.full_like(q_pos, min(2 * chunk - 1, size))
    return [(own, keys, number < 1), ((own + chunk).clamp(max=size), keys, number == 1), (last, keys, number > 1)]


def string(encoded: Encoded, q_pos: Tensor, k_pos: Tensor, apart: Tensor) -> list[Range]:
    shift, local = encoded.count("shift"), encoded.count("local")
    return [(q_pos, k_pos, apart < shift), (q_pos - (shift - local), k_pos, apart >= shift)]


def lm_infinite(encoded: Encoded, q_pos: Tensor, k_pos: Tensor, apart: Tensor) -> list[Range]:
    window = encoded.count("window")
    limit = window if encoded.option("limit") is None else encoded.count("limit")
    far = apart >= window
    if encoded.option("sinks") is not None:
        far = far & (k_pos < encoded.count("sinks"))[:, None]
    return [(q_pos, k_pos, apart < window), (torch.full_like(q_pos, limit), torch.zeros_like(k_pos), far)]


def streaming(encoded: Encoded, q_pos: Tensor, k_pos: Tensor, apart: Tensor) -> list[Range]:
    window, sinks = encoded.count("window"), encoded.count("sinks")
    far = (apart >= window) & (k_pos < sinks)[:, None]
    return [(q_pos, k_pos, apart < window), (q_pos.clamp(max=sinks + window - 1), k_pos, far)]


MOVED: dict[str, Ranges] = {
    "ReRoPE": rerope, "LeakyReRoPE": leaky, "SelfExtend": self_extend, "DualChunk": dual_chunk, "STRING": string,
    "LMInfinite": lm_infinite, "StreamingLLM": streaming,
}  # fmt: skip
