"""Encodings of the library with random options: every kind, and lists of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from tests.fuzz.draw import Draw
from tests.fuzz.moved_specs import dual_chunk, lm_infinite, moving, string
from tests.fuzz.rotation_specs import axial, comrope, fope, grape_m, liere, mixed, mrope, rope, rope_pp, tape, xpos
from tests.fuzz.score_specs import (
    alibi,
    cope,
    data_alibi,
    decomposed,
    forget,
    grape_a,
    log_cpb,
    path,
    shaw,
    ssmax,
    stick_breaking,
    t5,
    t5_grid,
    transformer_xl,
    window,
)  # fmt: skip
from tests.fuzz.spec import Sizes, Spec, plain
from tests.fuzz.text_specs import grape_ap, grape_context, pope, selective_rope

ROTATIONS = {
    "RoPE", "XPos", "AxialRoPE", "MRoPE", "MixedRoPE", "LieRE", "VJEPARoPE", "ComRoPEAP", "ComRoPELD",
    "RoPEpp", "GRAPEM", "FoPE", "PoPE", "TAPE",
}  # fmt: skip


def dape(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    kind = draw.one(["KERPLE", "ALiBi", "T5Bias", "FIRE"]) if axes == 1 else "ALiBi2D"
    bias = Spec(kind, KINDS[kind](draw, sizes, axes))
    return {"bias": bias, "num_heads": sizes.heads, "hidden": draw.whole(1, 12)}


def mixture(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    rotations = ["MixedRoPE", "PoPE"] if axes > 1 else ["RoPE", "RoPE", "PoPE"]
    biases = ["ALiBi2D"] if axes > 1 else ["ALiBi", "KERPLE", "T5Bias"]
    scores = ["CoPE", "ForgetGate"] if axes > 1 else ["CoPE", "Shaw", "TransformerXL", "ForgetGate", "GRAPEAP"]
    if sizes.head_dim % 2 == 0:
        scores += ["GRAPEContext"] if sizes.dim % sizes.kv_heads else ["GRAPEContext", "SelectiveRoPE"]
    members: list[list[Spec]] = []
    for _ in range(draw.whole(1, 3)):
        kinds = [draw.one(part) for part in (rotations, biases, scores) if draw.chance(0.45)]
        if sizes.head_dim % 2:
            kinds = [kind for kind in kinds if kind not in ("RoPE", "MixedRoPE")]
        members.append([plain(spec) for spec in make_specs(draw, kinds, sizes, axes)])
    return {
        "members": members, "num_heads": sizes.heads, "adaptive": draw.chance(0.4), "dim": sizes.dim
    }  # fmt: skip


def make_specs(draw: Draw, kinds: Sequence[str], sizes: Sizes, axes: int) -> list[Spec]:
    """The encodings of one list: each as wide as queries and keys are after the rotations that act before it."""
    found: dict[int, Spec] = {}
    for turning in (True, False):
        for at, kind in enumerate(kinds):
            if (kind in ROTATIONS) == turning:
                found[at] = made = Spec(kind, KINDS[kind](draw, sizes, axes))
                sizes = widened(sizes, made)
    return [found[at] for at in range(len(kinds))]


def widened(sizes: Sizes, spec: Spec) -> Sizes:
    """The sizes after an encoding, of which PoPE makes queries and keys wider."""
    if spec.kind != "PoPE":
        return sizes
    more = cast("int", spec.options.get("rotary_dim", spec.options["head_dim"]))
    return replace(sizes, head_dim=sizes.head_dim + more, content=sizes.content_dim)


def kernel(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    kind = draw.one(["KERPLE", "KERPLE", "ALiBi", "FIRE"]) if axes == 1 else "ALiBi2D"
    options = {"num_heads": sizes.heads, "kind": "power"} if kind == "KERPLE" else KINDS[kind](draw, sizes, axes)
    return {"bias": Spec(kind, options), "num_heads": sizes.heads}


Maker = Callable[[Draw, Sizes, int], dict[str, object]]
KINDS: dict[str, Maker] = {
    "RoPE": rope, "XPos": xpos, "AxialRoPE": axial, "MRoPE": mrope, "MixedRoPE": mixed, "LieRE": liere,
    "VJEPARoPE": lambda d, s, a: {"head_dim": s.head_dim, "released": d.chance(0.5)},
    "ComRoPEAP": lambda d, s, a: comrope(d, s, a, partition=True),
    "ComRoPELD": lambda d, s, a: comrope(d, s, a, partition=False),
    "ALiBi": alibi, "T5Bias": t5, "KERPLE": lambda d, s, a: {"num_heads": s.heads, "kind": d.one(["log", "power"])},
    "Sandwich": lambda d, s, a: {"num_heads": s.heads, "dim": 2 * d.whole(1, 12), "start": d.whole(0, 2)},
    "FIRE": lambda d, s, a: {
        "num_heads": s.heads, "hidden": d.whole(1, 33), "threshold": d.one([1.0, 8.0, 30.0, 512.0])
    },
    # A norm of one unit is 0, and so are gradients before it: what rounding leaves of them is nothing to be judged.
    "DistanceMLP": lambda d, s, a: {
        "num_heads": s.heads, "hidden": d.whole(2, 12), "layers": d.whole(1, 2), "log": d.chance(0.7),
        "norm": d.chance(0.3),
    },
    "LogCPB": log_cpb, "SwinBias": window, "BEiTBias": window, "T5GridBias": t5_grid, "DecomposedRelative": decomposed,
    "ALiBi2D": lambda d, s, a: {"num_heads": s.heads, "axes": a},
    "Shaw": shaw, "TransformerXL": transformer_xl, "CoPE": cope, "ForgetGate": forget, "PaTH": path, "DAPE": dape,
    "DataDependentALiBi": data_alibi, "Mixture": mixture, "StickBreaking": stick_breaking,
    "AttentionSink": lambda d, s, a: {
        "num_heads": s.heads, "learned": d.chance(0.7), "logit": d.one([0.0, 2.0, -30.0])
    },
    "SSMax": ssmax,
    "LogN": lambda d, s, a: {
        "original_length": d.one([2, 7, 512]), "strength": d.one([None, 0.5]),
        "count": d.one(["visible", "position"]),
    },
    "PowerTemperature": lambda d, s, a: {"step": d.one([1, 3, 64]), "power": d.one([0.1, 0.5])},
    "TokenRelativeBias": lambda d, s, a: {
        "dim": s.dim, "num_heads": s.heads, "extent": d.one([1, 3, 9]), "relative_dim": d.whole(1, 5), "init_std": 1.0
    },
    "KERPLEWeight": kernel, "RoPEpp": rope_pp, "FoPE": fope, "PoPE": pope, "TAPE": tape,
    "GRAPEM": grape_m, "GRAPEA": grape_a, "GRAPEAP": grape_ap, "GRAPEContext": grape_context,
    "SelectiveRoPE": selective_rope,
    "ReRoPE": lambda d, s, a: moving(d, s),
    "LeakyReRoPE": lambda d, s, a: moving(d, s) | {"factor": d.one([1.0, 4.0, d.number(1, 20)])},
    "SelfExtend": lambda d, s, a: moving(d, s) | {"group": d.one([1, 2, 3, 8])},
    "DualChunk": dual_chunk, "STRING": string, "LMInfinite": lm_infinite,
    "StreamingLLM": lambda d, s, a: moving(d, s) | {"sinks": d.one([0, 1, 4])},
    "StepTemperature": lambda d, s, a: {
        "step": d.one([1, 3, 64]), "strength": d.one([0.1, 1.0]), "offset": d.whole(0, 1)
    },
}  # fmt: skip
