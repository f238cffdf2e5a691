"""Random options of PoPE and of encodings that read the tokens between a key and its query."""

from __future__ import annotations

from tests.fuzz.draw import Draw
from tests.fuzz.spec import Sizes


def pope(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    width, step = sizes.head_dim, 1 if sizes.head_dim % 2 else 2 * axes  # what stands behind it needs whole pairs
    options: dict[str, object] = {
        "head_dim": width, "num_heads": sizes.heads, "kv_heads": sizes.kv_heads,
        "initial": draw.weighted({"uniform": 8, "zero": 1}),
    }  # fmt: skip
    rotary = width
    if draw.chance(0.4):
        options["rotary_dim"] = rotary = step * draw.whole(1, width // step)
    if axes > 1:
        ends = sorted(draw.some(range(1, rotary), axes - 1))
        options["sections"] = [b - a for a, b in zip([0, *ends], [*ends, rotary], strict=True)]
    if draw.chance(0.4):
        options["base"] = draw.one([100.0, 500_000.0, draw.number(2, 1e5)])
    return options


def selective_rope(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {
        "dim": sizes.dim, "head_dim": sizes.head_dim, "kv_heads": sizes.kv_heads, "rank": draw.one([None, 1, 4, 16]),
        "taps": draw.one([None, 1, 2, 4]), "activation": draw.chance(0.4), "bias": draw.chance(0.4),
        "gate": draw.one([None, "head", "pair"]), "gate_rank": draw.one([1, 4, 16]), "learned": draw.chance(0.4),
    }  # fmt: skip
    if draw.chance(0.5):  # of one pair alone the tangents are all 0
        tangents = draw.number(0.1, 0.9) if sizes.head_dim > 2 else 2.0
        options["base"] = draw.one([10_000.0, draw.number(2, 1e5), tangents])
    return options | ({"temperature": draw.number(0.1, 3)} if draw.chance(0.4) else {})


def grape_context(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {
        "dim": sizes.dim, "head_dim": sizes.head_dim, "kv_heads": sizes.kv_heads, "per_head": draw.chance(0.5),
        "per_head_phase": draw.chance(0.5), "omega_scale": draw.one([0.2, 1.0, 16.0]),
        "init_std": draw.one([0.02, 1.0]),
    }  # fmt: skip
    if draw.chance(0.4):
        options["base"] = draw.one([100.0, 500_000.0, draw.number(2, 1e5)])
    return options | ({"start": draw.one([1e-3, 1.0, 5.0])} if draw.chance(0.4) else {})


def grape_ap(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    tie = "none" if sizes.head_dim % 2 else draw.one(["none", "key"])
    return {
        "dim": sizes.dim, "num_heads": sizes.heads, "tie": tie, "init_std": draw.one([0.02, 1.0]),
        "path_dim": sizes.head_dim if tie == "key" else 2 * draw.whole(1, 6),
    }  # fmt: skip
