"""Names that no block knows: what was meant, as far as that can be told."""

from __future__ import annotations

import difflib
from typing import Any

from posenc.hf.numbers import shown
from posenc.hf.schema import (
    ALIASES,
    OF_ENGINES,
    REFUSED,
    REFUSED_KEYS,
    RULES,
    TYPES,
    VLLM,
    WITH_ALPHA,
    Block,
    Problem,
    keys_of,
    types_of,
)
from posenc.rotary._conventions import CONVENTIONS

_NTK = "NTK-aware scaling is no rope type of transformers, but 'default' with a larger base: rope_theta times "
_NTK += "factor^(d / (d - 2)), with d channels that turn; where the base shall grow with the text, it is 'dynamic'"
_FACTOR = ("scale", "scaling", "scaling_factor", "scale_factor")  # what people write for "factor"


def unknown_type(block: Block, pairs: int | None, convention: str) -> Problem:
    """A rope type that does not exist.

    Args:
        block: that names it.
        pairs: that turn, or None where that is not known.
        convention: as in `read_rope`.
    """
    name = block["rope_type"]
    known = types_of(convention).keys() - {WITH_ALPHA}
    text = f"is none of {', '.join(one for one in types_of(convention) if one in known)}, found {shown(name)}"
    plain = name.lower().replace("-", "_") if isinstance(name, str) else ""
    if plain in REFUSED:
        reason = REFUSED[plain].format(conventions=", ".join(CONVENTIONS))
        return Problem("rope_type", f"{name!r} {reason}", {"rope_type": "default"})
    if plain in OF_ENGINES:
        text += f"; {plain!r} is a rope type of vLLM or SGLang: read it with convention='vllm' or 'sglang'"
    if plain in ("ntk", "ntk_aware"):
        return Problem("rope_type", f"{text}; {_NTK}", _another_base(block, pairs))
    if plain in OF_ENGINES:
        return Problem("rope_type", text, {"rope_type": "yarn"})
    held = [name for name in TYPES if name != "default" and name in plain.split("_")]  # telechat3-yarn means yarn
    near = held or difflib.get_close_matches(plain, [*TYPES, *ALIASES], n=1, cutoff=0.5)
    if near:
        nearest = ALIASES.get(near[0], near[0])
        return Problem("rope_type", f"{text}; the nearest is {nearest!r}", {"rope_type": nearest})
    return Problem("rope_type", text, {"rope_type": fitting(list(block), convention)})


def _another_base(block: Block, pairs: int | None) -> Block:
    """The block of rope type default that means NTK-aware scaling; without a factor there is none."""
    factor: Any = block.get("factor")
    base: Any = block.get("rope_theta")
    mended: Block = {"rope_type": "default", "factor": None}
    known = factor is not None and RULES["factor"].holds(factor) and RULES["rope_theta"].holds(base)
    if known and pairs is not None and pairs > 1:
        larger = float(base) * float(factor) ** (pairs / (pairs - 1))
        if RULES["rope_theta"].holds(larger):
            mended["rope_theta"] = larger
    return mended


def unknown_key(key: str, value: Any, rope_type: str, free: list[str]) -> Problem:
    """A key that a rope type does not have; ``free`` are those that it has and nobody gave."""
    if key in _FACTOR and "factor" in free:
        return Problem(key, f"is no key of rope type {rope_type!r}, did you mean factor?", {key: None, "factor": value})
    near = [] if key in _FACTOR else difflib.get_close_matches(key, free, n=1, cutoff=0.7)
    text = f"is no key of rope type {rope_type!r}"
    if key in REFUSED_KEYS:
        text = f"{REFUSED_KEYS[key]}; where it is false, drop it"
    elif key in VLLM:
        text += "; vLLM read it before 0.33, which ignores it: write attention_factor (for SGLang attn_factor)"
    elif near:
        return Problem(key, f"{text}, did you mean {near[0]}?", {key: None, near[0]: value})
    elif key in RULES:
        owners = [name for name in TYPES if key in keys_of(name, "transformers")]
        text += f" but of {', '.join(map(repr, owners))}" if owners else ""
    else:
        text += f"; ignore=[{key!r}] keeps it and reads the rest"
    return Problem(key, text, {key: None})


def fitting(keys: list[str], convention: str) -> str:
    """The rope type that has most of these keys, and of such the one that misses fewest."""

    def fit(name: str) -> tuple[int, int]:
        missing = sum(key not in keys for key in TYPES[name].required)
        return sum(key in keys_of(name, convention) for key in keys), -missing

    return max(TYPES, key=fit)
