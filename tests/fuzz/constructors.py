"""Constructors with one option that means nothing: a ValueError that names it."""

from __future__ import annotations

import re

from tests.fuzz.draw import Draw
from tests.fuzz.oracle import DisagreementError
from tests.fuzz.situation import ROTARY
from tests.fuzz.spec import Sizes, Spec
from tests.fuzz.specs import KINDS
from tests.fuzz.spectra import SCALINGS

NAN, INF = float("nan"), float("inf")
COUNTS = {
    "head_dim", "num_heads", "kv_heads", "value_dim", "dim", "axes", "rotary_dim", "block", "hidden", "layers", "rank",
    "conv", "max_distance", "max_position", "relative", "clamp", "learned_distances", "num_buckets", "gate_dim",
    "original_length", "max_factor", "pairs", "param_factor", "taps", "gate_rank", "path_dim",
}  # fmt: skip
NUMBERS = {
    "base", "scale_base", "gamma", "max_exponent", "bias_scale", "threshold", "factor", "beta_fast", "beta_slow",
    "attention_factor", "attn_factor", "step", "time_base", "fraction", "min_period", "max_period", "init_scale",
    "init_std", "alpha", "beta", "low_freq_factor", "high_freq_factor", "min_base", "max_base", "post_log_scale",
    "bias_init", "c", "temperature", "omega_scale",
}  # fmt: skip
CHOICES = {
    "layout", "kind", "form", "gates", "remainder", "convention", "directions", "ramp", "schedule", "rounding",
    "activation", "slopes", "initial", "tie", "gate",
}  # fmt: skip
ABOUT = {  # words by which a message may speak of an option as well
    "kv_heads": ["num_heads"], "num_heads": ["kv_heads", "heads"], "block": ["head_dim", "axes"],
    "head_dim": ["rotary_dim"], "value_dim": ["num_heads"],
    "num_buckets": ["max_distance"], "max_distance": ["num_buckets"], "axes": ["head_dim", "convention", "sections"],
    "pairs": ["factors"], "min_period": ["max_period"], "max_period": ["min_period"], "dim": ["num_heads"],
    "sections": ["axes"], "time_base": ["base"], "beta_slow": ["beta_fast"], "beta_fast": ["beta_slow"],
}  # fmt: skip


def refused_at_construction(seed: int) -> str:
    """What was tried; raises a `DisagreementError` where it was served, or failed otherwise."""
    draw = Draw(seed)
    axes = draw.weighted({1: 70, 2: 20, 3: 10})
    sizes = Sizes(4, draw.one([1, 2, 4]), 24, 24, 8)
    if draw.chance(0.35):
        kind = draw.one(list(SCALINGS))
        options = SCALINGS[kind](draw, sizes, 12)
    else:
        several = {*ROTARY[3], "SwinBias", "BEiTBias", "ALiBi2D", "LogCPB", "T5GridBias", "DecomposedRelative"} - {
            "VJEPARoPE"
        }
        line = set(KINDS) - {"ALiBi2D", "VJEPARoPE", "MRoPE"}
        kind = draw.one(sorted(line if axes == 1 else several))
        options = KINDS[kind](draw, sizes, axes)
    known = [name for name in options if name in COUNTS | NUMBERS | CHOICES and options[name] is not None]
    if not known:
        return "nothing to spoil"
    name = draw.one(known)
    wrong = {**options, name: draw.one(_wrong(name))}
    tried = str(Spec(kind, wrong)) + f", {name}={wrong[name]!r}"
    try:
        Spec(kind, wrong).build()
    except ValueError as error:
        if any(re.search(rf"\b{word}\b", str(error)) for word in [name, *ABOUT.get(name, [])]):
            return tried
        raise DisagreementError(f"{tried}: the message does not name {name}: {error}") from error
    except Exception as error:
        raise DisagreementError(f"{tried}: {type(error).__name__}: {error}") from error
    raise DisagreementError(f"{tried}: taken")


def _wrong(name: str) -> list[object]:
    """Values that an option of this name cannot have."""
    if name in COUNTS:
        return [0, -1, -8]
    if name in CHOICES:
        return ["", "none of these", 3]
    return [NAN, INF, -INF]
