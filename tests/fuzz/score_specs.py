"""Random options of biases, of terms of the scores and of other weights; one function a class, for a call's sizes."""

from __future__ import annotations

from tests.fuzz.draw import Draw
from tests.fuzz.spec import Sizes


def alibi(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {"num_heads": sizes.heads}
    kind = draw.weighted({"default": 4, "name": 2, "numbers": 1, "exponent": 1})
    if kind == "name":
        options["slopes"] = draw.one(["press", "geometric", "kerple"])
    if kind == "numbers":
        options["slopes"] = [draw.number(-0.2, 1) for _ in range(sizes.heads)]
    if kind == "exponent":
        options["max_exponent"] = draw.number(1, 10)
    return options


def t5(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    both = draw.chance(0.5)
    buckets = draw.one([4, 8, 12, 32]) if both else draw.one([2, 3, 5, 8, 32])
    least = max(2, buckets // (2 if both else 1) // 2 + 1)
    options: dict[str, object] = {"num_heads": sizes.heads, "num_buckets": buckets, "bidirectional": both}
    options["max_distance"] = draw.one([least, least + 3, 20 + least, 128])
    if draw.chance(0.2):
        options["bias_scale"] = draw.number(0.5, 3)
    return options


def shaw(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {"head_dim": sizes.head_dim, "max_distance": draw.one([1, 2, 5, 16, 100])}
    if draw.chance(0.3):
        return options | {"values": False}
    return options | {"value_dim": sizes.value_dim}


def transformer_xl(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {
        "dim": 2 * draw.whole(1, 8), "num_heads": sizes.heads, "head_dim": sizes.content_dim
    }  # fmt: skip
    kind = draw.weighted({"waves": 3, "clamp": 2, "table": 2})
    if kind == "clamp":
        options["clamp"] = draw.whole(1, 20)
    if kind == "table":
        options["learned_distances"] = draw.whole(1, 30)
    return options


def cope(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {
        "head_dim": sizes.content_dim, "max_position": draw.one([1, 2, 5, 16, 64]), "scaled": draw.chance(0.3)
    }  # fmt: skip
    gates = draw.weighted({"keys": 5, "separate": 2, "values": 1})
    if gates == "values" and sizes.value_dim == sizes.content_dim:
        options["gates"] = gates
    if gates == "separate":
        options |= {"gates": gates, "dim": sizes.dim, "kv_heads": sizes.kv_heads}
    if gates == "keys" and draw.chance(0.3):
        options |= {"rotated": True, "head_dim": sizes.head_dim}
    if axes == 1 and draw.chance(0.25):
        options["relative"] = draw.whole(1, 12)
    return options


def forget(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    kind = draw.weighted({"data": 4, "bias": 1, "fixed": 1})
    options: dict[str, object] = {"dim": sizes.dim, "num_heads": sizes.heads, "kind": kind}
    if kind == "fixed" or (kind == "bias" and draw.chance(0.5)):
        options["decay_time"] = (draw.number(1, 4), draw.number(5, 64))
    return options | ({"scaled": True} if draw.chance(0.25) else {})


def data_alibi(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {"dim": sizes.dim, "num_heads": sizes.heads}
    options["form"] = draw.one(["causal", "bidirectional", "rows"])
    if draw.chance(0.5):
        options["bias_init"] = draw.number(-1, 5)
    if draw.chance(0.3):
        options["post_log_scale"] = draw.number(0.2, 2)
    return options | ({"gate_dim": draw.whole(1, 8)} if options["form"] == "rows" else {})


def path(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {
        "dim": sizes.dim, "head_dim": sizes.head_dim, "kv_heads": sizes.kv_heads, "rank": draw.one([None, 1, 4, 32]),
        "conv": draw.one([1, 2, 3, 4]),
    }  # fmt: skip


def stick_breaking(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    rule = draw.one(["drop", "own", "vector"])
    options: dict[str, object] = {"attend_current": draw.chance(0.5), "remainder": rule}
    return options | ({"num_heads": sizes.heads, "value_dim": sizes.value_dim} if rule == "vector" else {})


def window(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {"num_heads": sizes.heads, "window": tuple(draw.whole(1, 6) for _ in range(axes))}


def t5_grid(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    buckets = [draw.one([4, 8, 12, 32]) for _ in range(axes)]
    longest = [draw.one([n // 4 + 1, n // 4 + 4, 40]) for n in buckets]
    options: dict[str, object] = {"num_heads": sizes.heads, "axes": axes, "num_buckets": buckets[0], "max_distance": 41}
    if draw.chance(0.6):
        options |= {"num_buckets": tuple(buckets), "max_distance": tuple(longest)}
    if draw.chance(0.3):
        options["factor"] = draw.one([0.5, 100.0, tuple(draw.one([1.0, 0.25, 10.0]) for _ in range(axes))])
    if draw.chance(0.2):
        options["bias_scale"] = draw.number(0.2, 3)
    return options


def decomposed(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {"head_dim": sizes.head_dim, "window": tuple(draw.whole(1, 6) for _ in range(axes))}


def log_cpb(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {
        "num_heads": sizes.heads, "axes": axes, "hidden": draw.whole(1, 16), "kind": draw.one(["swin", "paper"]),
        "window": draw.one([2.0, 8.0, 20.0]),
    }  # fmt: skip


def ssmax(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    count = "visible" if axes > 1 else draw.one(["visible", "visible", "position"])
    return {"num_heads": sizes.heads, "bias": draw.chance(0.4), "count": count, "scale": draw.one([0.43, 1.0, -0.3])}


def grape_a(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {
        "head_dim": sizes.head_dim, "num_heads": sizes.heads, "gate": draw.one(["key", "query", "both"]),
        "normalized": draw.chance(0.7),
    }  # fmt: skip
