"""Random options of every encoding, one function a class, for the sizes of a call; and lists of encodings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from tests.fuzz.draw import Draw, Sizes, Spec, without_scaling
from tests.fuzz.rotations import axial, comrope, fope, grape_m, liere, mixed, mrope, rope, rope_pp, xpos


def alibi(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {"num_heads": sizes.heads}
    kind = draw.weighted({"default": 4, "name": 2, "numbers": 1, "exponent": 1})
    if kind == "name":
        options["slopes"] = draw.choice(["press", "geometric", "kerple"])
    if kind == "numbers":
        options["slopes"] = [draw.number(-0.2, 1) for _ in range(sizes.heads)]
    if kind == "exponent":
        options["max_exponent"] = draw.number(1, 10)
    return options


def t5(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    both = draw.chance(0.5)
    buckets = draw.choice([4, 8, 12, 32]) if both else draw.choice([2, 3, 5, 8, 32])
    least = max(2, buckets // (2 if both else 1) // 2 + 1)
    options: dict[str, object] = {"num_heads": sizes.heads, "num_buckets": buckets, "bidirectional": both}
    options["max_distance"] = draw.choice([least, least + 3, 20 + least, 128])
    if draw.chance(0.2):
        options["bias_scale"] = draw.number(0.5, 3)
    return options


def shaw(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {"head_dim": sizes.head_dim, "max_distance": draw.choice([1, 2, 5, 16, 100])}
    if draw.chance(0.3):
        return options | {"values": False}
    return options | {"value_dim": sizes.value_dim}


def transformer_xl(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {
        "dim": 2 * draw.integer(1, 8), "num_heads": sizes.heads, "head_dim": sizes.content_dim
    }  # fmt: skip
    kind = draw.weighted({"waves": 3, "clamp": 2, "table": 2})
    if kind == "clamp":
        options["clamp"] = draw.integer(1, 20)
    if kind == "table":
        options["learned_distances"] = draw.integer(1, 30)
    return options


def cope(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {
        "head_dim": sizes.content_dim, "max_position": draw.choice([1, 2, 5, 16, 64]), "scaled": draw.chance(0.3)
    }  # fmt: skip
    gates = draw.weighted({"keys": 5, "separate": 2, "values": 1})
    if gates == "values" and sizes.value_dim == sizes.content_dim:
        options["gates"] = gates
    if gates == "separate":
        options |= {"gates": gates, "dim": sizes.dim, "num_kv_heads": sizes.num_kv_heads}
    if gates == "keys" and draw.chance(0.3):
        options |= {"rotated": True, "head_dim": sizes.head_dim}
    if axes == 1 and draw.chance(0.25):
        options["relative"] = draw.integer(1, 12)
    return options


def forget(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    kind = draw.weighted({"data": 4, "bias": 1, "fixed": 1})
    options: dict[str, object] = {"dim": sizes.dim, "num_heads": sizes.heads, "kind": kind}
    if kind == "fixed" or (kind == "bias" and draw.chance(0.5)):
        options["decay_time"] = (draw.number(1, 4), draw.number(5, 64))
    return options | ({"scaled": True} if draw.chance(0.25) else {})


def data_alibi(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {"dim": sizes.dim, "num_heads": sizes.heads}
    options["form"] = draw.choice(["causal", "bidirectional", "rows"])
    if draw.chance(0.5):
        options["bias_init"] = draw.number(-1, 5)
    if draw.chance(0.3):
        options["post_log_scale"] = draw.number(0.2, 2)
    return options | ({"gate_dim": draw.integer(1, 8)} if options["form"] == "rows" else {})


def path(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {
        "dim": sizes.dim, "head_dim": sizes.head_dim, "num_kv_heads": sizes.num_kv_heads,
        "rank": draw.choice([None, 1, 4, 32]), "conv": draw.choice([1, 2, 3, 4]),
    }  # fmt: skip


def stick_breaking(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    rule = draw.choice(["drop", "own", "vector"])
    options: dict[str, object] = {"attend_current": draw.chance(0.5), "remainder": rule}
    return options | ({"num_heads": sizes.heads, "value_dim": sizes.value_dim} if rule == "vector" else {})


def window(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {"num_heads": sizes.heads, "window": tuple(draw.integer(1, 6) for _ in range(axes))}


def t5_grid(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    buckets = [draw.choice([4, 8, 12, 32]) for _ in range(axes)]
    longest = [draw.choice([n // 4 + 1, n // 4 + 4, 40]) for n in buckets]
    options: dict[str, object] = {"num_heads": sizes.heads, "axes": axes, "num_buckets": buckets[0], "max_distance": 41}
    if draw.chance(0.6):
        options |= {"num_buckets": tuple(buckets), "max_distance": tuple(longest)}
    if draw.chance(0.3):
        options["factor"] = draw.choice([0.5, 100.0, tuple(draw.choice([1.0, 0.25, 10.0]) for _ in range(axes))])
    if draw.chance(0.2):
        options["bias_scale"] = draw.number(0.2, 3)
    return options


def decomposed(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {"head_dim": sizes.head_dim, "window": tuple(draw.integer(1, 6) for _ in range(axes))}


def log_cpb(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {
        "num_heads": sizes.heads, "axes": axes, "hidden": draw.integer(1, 16), "kind": draw.choice(["swin", "paper"]),
        "window": draw.choice([2.0, 8.0, 20.0]),
    }  # fmt: skip


def ssmax(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    count = "visible" if axes > 1 else draw.choice(["visible", "visible", "position"])
    return {"num_heads": sizes.heads, "bias": draw.chance(0.4), "count": count, "scale": draw.choice([0.43, 1.0, -0.3])}


def grape_a(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {
        "head_dim": sizes.head_dim, "num_heads": sizes.heads, "gate": draw.choice(["key", "query", "both"]),
        "normalized": draw.chance(0.7),
    }  # fmt: skip


def pope(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    width, step = sizes.head_dim, 1 if sizes.head_dim % 2 else 2 * axes  # what stands behind it needs whole pairs
    options: dict[str, object] = {
        "head_dim": width, "num_heads": sizes.heads, "num_kv_heads": sizes.num_kv_heads,
        "initial": draw.weighted({"uniform": 8, "zero": 1}),
    }  # fmt: skip
    rotary = width
    if draw.chance(0.4):
        options["rotary_dim"] = rotary = step * draw.integer(1, width // step)
    if axes > 1:
        ends = sorted(draw.sample(range(1, rotary), axes - 1))
        options["sections"] = [b - a for a, b in zip([0, *ends], [*ends, rotary], strict=True)]
    if draw.chance(0.4):
        options["base"] = draw.choice([100.0, 500_000.0, draw.number(2, 1e5)])
    return options


def selective_rope(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {
        "dim": sizes.dim, "head_dim": sizes.head_dim, "num_kv_heads": sizes.num_kv_heads,
        "rank": draw.choice([None, 1, 4, 16]), "taps": draw.choice([None, 1, 2, 4]),
        "activation": draw.chance(0.4), "bias": draw.chance(0.4),
        "gate": draw.choice([None, "head", "pair"]), "gate_rank": draw.choice([1, 4, 16]), "learned": draw.chance(0.4),
    }  # fmt: skip
    if draw.chance(0.5):  # of one pair alone the tangents are all 0
        tangents = draw.number(0.1, 0.9) if sizes.head_dim > 2 else 2.0
        options["base"] = draw.choice([10_000.0, draw.number(2, 1e5), tangents])
    return options | ({"temperature": draw.number(0.1, 3)} if draw.chance(0.4) else {})


def repo(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {
        "dim": sizes.dim, "head_dim": sizes.head_dim, "num_kv_heads": sizes.num_kv_heads,
        "hidden": draw.choice([None, 1, 3, 8]), "init_std": draw.choice([0.02, 1.0]),
    }  # fmt: skip
    return options | ({"base": draw.choice([100.0, 500_000.0, draw.number(2, 1e5)])} if draw.chance(0.4) else {})


def grape_context(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {
        "dim": sizes.dim, "head_dim": sizes.head_dim, "num_kv_heads": sizes.num_kv_heads, "per_head": draw.chance(0.5),
        "per_head_phase": draw.chance(0.5), "omega_scale": draw.choice([0.2, 1.0, 16.0]),
        "init_std": draw.choice([0.02, 1.0]),
    }  # fmt: skip
    if draw.chance(0.4):
        options["base"] = draw.choice([100.0, 500_000.0, draw.number(2, 1e5)])
    return options | ({"start": draw.choice([1e-3, 1.0, 5.0])} if draw.chance(0.4) else {})


def grape_ap(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    tie = "none" if sizes.head_dim % 2 else draw.choice(["none", "key"])
    return {
        "dim": sizes.dim, "num_heads": sizes.heads, "tie": tie, "init_std": draw.choice([0.02, 1.0]),
        "path_dim": sizes.head_dim if tie == "key" else 2 * draw.integer(1, 6),
    }  # fmt: skip


def moving(draw: Draw, sizes: Sizes) -> dict[str, object]:
    rotation = without_scaling(Spec("RoPE", rope(draw, sizes, 1)))
    return {"rotation": rotation, "window": draw.choice([1, 2, 5, 12, 40])}


def dual_chunk(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    size = draw.choice([2, 3, 8, 12, 40])
    options = {"rotation": moving(draw, sizes)["rotation"], "size": size, "local": draw.integer(1, size - 1)}
    return options | ({"gain": draw.number(0.8, 1.2)} if draw.chance(0.3) else {})


def string(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    shift = draw.choice([1, 2, 8, 20])
    return {"rotation": moving(draw, sizes)["rotation"], "shift": shift, "local": draw.integer(0, shift)}


def lm_infinite(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options = moving(draw, sizes) | {"sinks": draw.choice([None, 1, 3])}
    return options | ({"limit": draw.integer(1, 50)} if draw.chance(0.3) else {})


ROTATIONS = {
    "RoPE", "AxialRoPE", "MRoPE", "MixedRoPE", "LieRE", "VJEPARoPE", "ComRoPEAP", "ComRoPELD",
    "RoPEpp", "GRAPEM", "FoPE", "PoPE",
}  # fmt: skip


def kerple(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    kind = draw.choice(["log", "power", "bam"])
    return {"num_heads": sizes.heads, "kind": kind} | ({"shift": draw.chance(0.5)} if kind == "bam" else {})


def dape(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    kind = draw.choice(["KERPLE", "ALiBi", "T5Bias", "FIRE"]) if axes == 1 else "ALiBi2D"
    bias = Spec(kind, KINDS[kind](draw, sizes, axes))
    return {"bias": bias, "hidden": draw.integer(1, 12)}


def mixture(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    rotations = ["MixedRoPE", "PoPE"] if axes > 1 else ["RoPE", "RoPE", "PoPE"]
    biases = ["ALiBi2D"] if axes > 1 else ["ALiBi", "KERPLE", "T5Bias"]
    members: list[list[Spec]] = []
    for _ in range(draw.integer(1, 3)):
        kinds = [draw.choice(part) for part in (rotations, biases) if draw.chance(0.6)]
        if sizes.head_dim % 2:
            kinds = [kind for kind in kinds if kind not in ("RoPE", "MixedRoPE")]
        members.append([without_scaling(spec) for spec in make_specs(draw, kinds, sizes, axes)])
    return {
        "members": members, "num_heads": sizes.heads, "adaptive": draw.chance(0.4), "dim": sizes.dim
    }  # fmt: skip


def make_specs(draw: Draw, kinds: Sequence[str], sizes: Sizes, axes: int) -> list[Spec]:
    """The encodings of one list: each as wide as queries and keys are after the rotations that act before it."""
    specs: dict[int, Spec] = {}
    for turning in (True, False):
        for at, kind in enumerate(kinds):
            if (kind in ROTATIONS) == turning:
                specs[at] = built = Spec(kind, KINDS[kind](draw, sizes, axes))
                sizes = widened(sizes, built)
    return [specs[at] for at in range(len(kinds))]


def widened(sizes: Sizes, spec: Spec) -> Sizes:
    """The sizes after an encoding, of which PoPE makes queries and keys wider."""
    if spec.kind != "PoPE":
        return sizes
    more = cast("int", spec.options.get("rotary_dim", spec.options["head_dim"]))
    return replace(sizes, head_dim=sizes.head_dim + more, content=sizes.content_dim)


Maker = Callable[[Draw, Sizes, int], dict[str, object]]
KINDS: dict[str, Maker] = {
    "RoPE": rope, "XPos": xpos, "AxialRoPE": axial, "MRoPE": mrope, "MixedRoPE": mixed, "LieRE": liere,
    "VJEPARoPE": lambda d, s, a: {"head_dim": s.head_dim, "released": d.chance(0.5)},
    "ComRoPEAP": lambda d, s, a: comrope(d, s, a, partition=True),
    "ComRoPELD": lambda d, s, a: comrope(d, s, a, partition=False),
    "ALiBi": alibi, "T5Bias": t5, "KERPLE": kerple,
    "Sandwich": lambda d, s, a: {"num_heads": s.heads, "dim": 2 * d.integer(1, 12), "start": d.integer(0, 2)},
    "FIRE": lambda d, s, a: {
        "num_heads": s.heads, "hidden": d.integer(1, 33), "threshold": d.choice([1.0, 8.0, 30.0, 512.0])
    },
    # A norm of one unit is 0, and so are gradients before it: what rounding leaves of them is nothing to be judged.
    "DistanceMLP": lambda d, s, a: {
        "num_heads": s.heads, "hidden": d.integer(2, 12), "layers": d.integer(1, 2), "log": d.chance(0.7),
        "norm": d.chance(0.3),
    },
    "LogCPB": log_cpb, "SwinBias": window, "BEiTBias": window, "T5GridBias": t5_grid, "DecomposedRelative": decomposed,
    "ALiBi2D": lambda d, s, a: {"num_heads": s.heads, "axes": a},
    "Shaw": shaw, "TransformerXL": transformer_xl, "CoPE": cope, "ForgetGate": forget, "PaTH": path, "DAPE": dape,
    "DataDependentALiBi": data_alibi, "Mixture": mixture, "StickBreaking": stick_breaking,
    "AttentionSink": lambda d, s, a: {
        "num_heads": s.heads, "learned": d.chance(0.7), "logit": d.choice([0.0, 2.0, -30.0])
    },
    "SSMax": ssmax,
    "LogN": lambda d, s, a: {
        "original_length": d.choice([2, 7, 512]), "strength": d.choice([None, 0.5]),
        "count": d.choice(["visible", "position"]),
    },
    "PowerTemperature": lambda d, s, a: {"step": d.choice([1, 3, 64]), "power": d.choice([0.1, 0.5])},
    "TokenRelativeBias": lambda d, s, a: {
        "dim": s.dim, "num_heads": s.heads, "max_distance": d.choice([1, 3, 9]), "relative_dim": d.integer(1, 5),
        "init_std": 1.0,
    },
    "RoPEpp": rope_pp, "FoPE": fope, "PoPE": pope,
    "GRAPEM": grape_m, "GRAPEA": grape_a, "GRAPEAP": grape_ap, "GRAPEContext": grape_context,
    "SelectiveRoPE": selective_rope, "RePo": repo,
    "ReRoPE": lambda d, s, a: moving(d, s),
    "LeakyReRoPE": lambda d, s, a: moving(d, s) | {"factor": d.choice([1.0, 4.0, d.number(1, 20)])},
    "SelfExtend": lambda d, s, a: moving(d, s) | {"group": d.choice([1, 2, 3, 8])},
    "DualChunk": dual_chunk, "STRING": string, "LMInfinite": lm_infinite,
    "StreamingLLM": lambda d, s, a: moving(d, s) | {"sinks": d.choice([0, 1, 4])},
    "StepTemperature": lambda d, s, a: {
        "step": d.choice([1, 3, 64]), "strength": d.choice([0.1, 1.0]), "offset": d.integer(0, 1)
    },
}  # fmt: skip
