"""What a block of `rope_parameters` may hold: the keys of each rope type, what each key may be, and the errors.

A block is checked as a whole. Whatever is wrong comes as one `ValueError` that names each key, says what was found and
what is allowed, and ends with a corrected block, ready to paste.

Source: transformers 5.23, modeling_rope_utils.py (RopeParameters and the validators of RotaryEmbeddingConfigMixin);
    the keys of vLLM: its rotary_embedding/__init__.py.
Departs from the source: what transformers only logs (unknown keys, factors below 1, wrong lists) is an error.
"""

from __future__ import annotations

import difflib
import json
import math
import reprlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeGuard

from posenc.rotary.axial import CONVENTIONS

Block = dict[str, Any]


class Rule(NamedTuple):
    """What a key may be, in words and as a test, and an example for the corrected block."""

    words: str
    holds: Callable[[Any], bool]
    example: Any


class RopeType(NamedTuple):
    """Keys of a rope type beside the common ones."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


class Problem(NamedTuple):
    """What is wrong with a key, and the change of the block that mends it (None: the key goes)."""

    key: str
    text: str
    mended: Block


def is_number(value: Any, least: float = -math.inf, *, above: bool = False) -> bool:
    """Whether ``value`` is a finite int or float, no bool, of at least (or above) ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    return value > least if above else value >= least


def is_count(value: Any) -> TypeGuard[int]:
    """Whether ``value`` is an integer of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _are_factors(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(is_number(x, 0, above=True) for x in value)


def _above(least: float, example: float) -> Rule:
    return Rule(f"a number above {least:g}", lambda value: is_number(value, least, above=True), example)


_COUNT = "an integer of at least 1"
_FLAG = Rule("true or false", lambda value: isinstance(value, bool), True)
_FACTORS = Rule("a list of numbers above 0, one for each pair", _are_factors, None)
_SECTIONS = Rule(
    "a list of three integers of at least 1, the pairs that read each of time, row and column",
    lambda value: isinstance(value, list) and len(value) == 3 and all(is_count(x) for x in value),
    None,
)

RULES: dict[str, Rule] = {
    "rope_theta": _above(1, 10000.0),
    "partial_rotary_factor": Rule("a number in 0..1", lambda value: is_number(value, 0) and value <= 1, 1.0),
    "rotary_dim": Rule("an even integer of at least 2", lambda value: is_count(value) and value % 2 == 0, 64),
    "factor": Rule("a number of at least 1", lambda value: is_number(value, 1), 4.0),
    "original_max_position_embeddings": Rule(f"{_COUNT}, in tokens", is_count, 4096),
    "max_position_embeddings": Rule(f"{_COUNT}, in tokens", is_count, 4096),
    "attention_factor": _above(0, 1.0),
    "beta_fast": _above(0, 32.0),
    "beta_slow": _above(0, 1.0),
    "mscale": Rule("a number of at least 0", lambda value: is_number(value, 0), 1.0),
    "mscale_all_dim": Rule("a number of at least 0", lambda value: is_number(value, 0), 1.0),
    "truncate": _FLAG,
    "low_freq_factor": _above(0, 1.0),
    "high_freq_factor": _above(0, 4.0),
    "short_factor": _FACTORS,
    "long_factor": _FACTORS,
    "short_mscale": _above(0, 1.0),
    "long_mscale": _above(0, 1.0),
    "mrope_section": _SECTIONS,
    "mrope_interleaved": _FLAG,
    "interleaved": _FLAG,
    "finetuned": _FLAG,
    "llama_4_scaling_beta": Rule("a number of at least 0", lambda value: is_number(value, 0), 0.1),
    "attn_factor": _above(0, 1.0),
    "extrapolation_factor": Rule("a number in 0..1", lambda value: is_number(value, 0) and value <= 1, 1.0),
    "apply_yarn_scaling": _FLAG,
}

COMMON = ("rope_type", "rope_theta", "partial_rotary_factor", "rotary_dim", "original_max_position_embeddings")
KEPT = ("mrope_interleaved", "interleaved", "finetuned", "llama_4_scaling_beta", "max_position_embeddings")
FREE = (*COMMON, "mrope_section", *KEPT)  # what a block of any type may hold
VLLM = ("attn_factor", "extrapolation_factor", "apply_yarn_scaling")
_YARN = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")
TYPES: dict[str, RopeType] = {
    "default": RopeType(),
    "linear": RopeType(("factor",)),
    "dynamic": RopeType(("factor",)),
    "yarn": RopeType(("factor",), _YARN),
    "longrope": RopeType(
        ("short_factor", "long_factor"), ("factor", "attention_factor", "short_mscale", "long_mscale")
    ),
    "llama3": RopeType(("factor", "low_freq_factor", "high_freq_factor")),
    "proportional": RopeType((), ("factor",)),
}
ALIASES = {"su": "longrope", "mrope": "default"}


def keys_of(rope_type: str, convention: str) -> tuple[str, ...]:
    """All keys that a block of this type may hold beside the common and the kept ones."""
    required, optional = TYPES[rope_type]
    return required + optional + (VLLM if rope_type == "yarn" and convention == "vllm" else ())


def problems(block: Block, pairs: int | None, convention: str, ignore: Collection[str], hints: Block) -> list[Problem]:
    """All that is wrong with a block whose nulls were dropped.

    Args:
        block: its keys under the names of version 5.
        pairs: that turn, or None where that is not known.
        convention: as in `read_rope`.
        ignore: keys that are the model's own business.
        hints: likely values of keys that are missing.
    """
    rope_type = block.get("rope_type", "default")
    if not isinstance(rope_type, str) or rope_type not in TYPES:
        return [_unknown_type(rope_type)]
    keys = keys_of(rope_type, convention)
    if "rope_type" not in block:
        own = [key for key in block if key not in (*FREE, *ignore)]
        if own:
            fitting = max(TYPES, key=lambda name: _fit(own, name, convention))
            text = f"is missing, and without it {', '.join(own)} would be ignored"
            return [Problem("rope_type", text, {"rope_type": fitting})]
    found = []
    allowed = (*FREE, *keys)
    for key, value in block.items():
        if key not in allowed and key not in ignore:
            found.append(_unknown_key(key, value, rope_type, [name for name in allowed if name not in block]))
        elif key in RULES and not RULES[key].holds(value):
            text = f"must be {RULES[key].words}, found {reprlib.repr(value)}"
            found.append(Problem(key, text, {key: _example(key, value, pairs)}))
    for key in TYPES[rope_type].required:
        if key not in block and not any(key in problem.mended for problem in found):
            text = f"is missing; rope type {rope_type!r} needs {RULES[key].words}"
            found.append(Problem(key, text, {key: hints.get(key, _example(key, None, pairs))}))
    return found or _disagreements(block, pairs)


def _disagreements(block: Block, pairs: int | None) -> list[Problem]:
    """What is wrong between keys that are right one by one."""
    found = []
    fast, slow = block.get("beta_fast", 32.0), block.get("beta_slow", 1.0)
    if fast <= slow:
        text = f"must be above beta_slow = {slow}, found {fast}"
        found.append(Problem("beta_fast", text, {"beta_fast": 32.0, "beta_slow": 1.0}))
    low, high = block.get("low_freq_factor", 1.0), block.get("high_freq_factor", 4.0)
    if high < low:
        text = f"must be at least low_freq_factor = {low}, found {high}"
        found.append(Problem("high_freq_factor", text, {"low_freq_factor": 1.0, "high_freq_factor": 4.0}))
    for key in ("short_factor", "long_factor"):
        if pairs is not None and len(block.get(key, [None] * pairs)) != pairs:
            text = f"must have {pairs} numbers, one for each pair that turns, found {len(block[key])}"
            found.append(Problem(key, text, {key: _example(key, block[key], pairs)}))
    if block.get("rope_type", "default") != "proportional" and block.get("partial_rotary_factor") == 0:
        text = "must be above 0 but for rope type 'proportional', found 0"
        found.append(Problem("partial_rotary_factor", text, {"partial_rotary_factor": 1.0}))
    return found


def _unknown_type(rope_type: Any) -> Problem:
    near = difflib.get_close_matches(str(rope_type), [*TYPES, *ALIASES], n=1, cutoff=0.0)
    nearest = ALIASES.get(near[0], near[0]) if near else "default"
    text = f"is none of {', '.join(TYPES)}, found {rope_type!r}; the nearest is {nearest!r}"
    if rope_type == "axial":
        nearest = "default"
        text = "'axial' turns by row and column of an image, each model in its own way, and is no RoPE of text: it is "
        text += f"AxialRoPE(head_dim, convention=...), with one of {', '.join(CONVENTIONS)}"
    return Problem("rope_type", text, {"rope_type": nearest})


def _unknown_key(key: str, value: Any, rope_type: str, free: list[str]) -> Problem:
    near = difflib.get_close_matches(key, free, n=1, cutoff=0.7)
    text = f"is no key of rope type {rope_type!r}"
    if key in VLLM:
        text += "; it is vLLM's: read it with convention='vllm', or write attention_factor"
    elif near:
        return Problem(key, f"{text}, did you mean {near[0]}?", {key: None, near[0]: value})
    elif key in RULES:
        owners = [name for name in TYPES if key in keys_of(name, "transformers")]
        text += f" but of {', '.join(map(repr, owners))}" if owners else ""
    else:
        text += f"; ignore=[{key!r}] keeps it and reads the rest"
    return Problem(key, text, {key: None})


def _fit(keys: list[str], rope_type: str, convention: str) -> tuple[int, int]:
    """How well ``keys`` fit a rope type: as many as possible allowed, as few as possible missing."""
    return sum(key in keys_of(rope_type, convention) for key in keys), -sum(
        key not in keys for key in TYPES[rope_type].required
    )


def _example(key: str, value: Any, pairs: int | None) -> Any:
    """A value that the rule allows, as near to the given one as can be known."""
    if key in ("short_factor", "long_factor"):
        given = [x for x in value if is_number(x, 0, above=True)] if isinstance(value, list) else []
        return (given + [given[-1] if given else 1.0] * (pairs or 1))[: pairs or 1]
    if key == "mrope_section":
        third = (pairs or 3) // 3
        return [(pairs or 3) - 2 * third, third, third] if third else [pairs]
    try:
        number = float(value) if isinstance(value, str | float) else math.nan
    except ValueError:
        number = math.nan
    for candidate in (int(number) if number.is_integer() else number, number):  # an integer where there may be one
        if RULES[key].holds(candidate):
            return candidate
    return RULES[key].example


def mend(block: Block, found: list[Problem], again: Callable[[Block], list[Problem]]) -> Block:
    """The block with all problems mended, also those that only show once others are."""
    mended = dict(block)
    for _ in range(10):
        for problem in found:
            mended.update(problem.mended)
            mended = {key: value for key, value in mended.items() if value is not None}
        found = again(mended)
        if not found:
            break
    return mended


def complaint(where: str, block: Mapping[str, Any], found: list[Problem], mended: Block, allowed: str) -> str:
    """The text of the error: each key, what was found, what is allowed, and a corrected block."""
    lines = [f"{where}.{problem.key} {problem.text}" for problem in found]
    shown = {key: reprlib.repr(value) if isinstance(value, list) else value for key, value in block.items()}
    lines += [f"allowed: {allowed}", f"found: {shown}", f"corrected, check its numbers: {json.dumps(mended)}"]
    return "\n".join(lines)
