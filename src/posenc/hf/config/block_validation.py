"""Problems of a block of `rope_parameters`, the block repaired, and the error that shows both.

An unknown key or rope type is matched with the nearest known one. The repair is a suggestion: it keeps what is
valid, and its numbers need checking.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from posenc.arguments import shown
from posenc.hf.config.block_schema import (
    ALIASES,
    FREE,
    OF_ENGINES,
    REFUSED,
    REFUSED_KEYS,
    RULES,
    TYPES,
    WITH_ALPHA,
    Block,
    Problem,
    keys_of,
    types_of,
)
from posenc.hf.limits import LARGEST_FACTOR, SMALLEST, is_number, nearest_number

_NTK = "NTK-aware scaling is no rope type of transformers, but 'default' with a larger base: rope_theta times "
_NTK += "factor^(d / (d - 2)), with d rotated channels; a base that grows with the length is 'dynamic'"
_FACTOR = ("scale", "scaling", "scaling_factor", "scale_factor")  # what people write for "factor"


def _axial_conventions() -> str:
    """The names of `AxialRoPE`'s conventions."""
    from posenc.rotary._conventions import CONVENTIONS  # torch, which only this error needs

    return ", ".join(CONVENTIONS)


def unknown_type(block: Block, pairs: int | None, convention: str) -> Problem:
    """A rope type that does not exist.

    Args:
        block: that names it.
        pairs: that rotate, or None where that is not known.
        convention: as in `read_rope`.
    """
    name = block["rope_type"]
    known = types_of(convention).keys() - {WITH_ALPHA}
    text = f"is none of {', '.join(each for each in types_of(convention) if each in known)}, found {shown(name)}"
    normalized = name.lower().replace("-", "_") if isinstance(name, str) else ""
    if normalized in REFUSED:
        reason = REFUSED[normalized].format(conventions=_axial_conventions())
        return Problem("rope_type", f"{name!r} {reason}", {"rope_type": "default"})
    if normalized in OF_ENGINES:
        text += f"; {normalized!r} is a rope type of vLLM or SGLang: read it with convention='vllm' or 'sglang'"
    if normalized in ("ntk", "ntk_aware"):
        return Problem("rope_type", f"{text}; {_NTK}", _another_base(block, pairs))
    if normalized in OF_ENGINES:
        return Problem("rope_type", text, {"rope_type": "yarn"})
    held = [name for name in TYPES if name != "default" and name in normalized.split("_")]  # telechat3-yarn means yarn
    near = held or difflib.get_close_matches(normalized, [*TYPES, *ALIASES], n=1, cutoff=0.5)
    if near:
        nearest = ALIASES.get(near[0], near[0])
        return Problem("rope_type", f"{text}; the nearest is {nearest!r}", {"rope_type": nearest})
    return Problem("rope_type", text, {"rope_type": closest_type(list(block), convention)})


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


def unknown_key(key: str, value: Any, rope_type: str, free: list[str], allowed: Collection[str]) -> Problem:
    """A key that a rope type does not have; ``free`` are the ``allowed`` keys that have no value yet.

    A misspelling by a letter or two means the key that it resembles, also where that has a default value.
    """
    if key in _FACTOR and "factor" in free:
        return Problem(key, f"is no key of rope type {rope_type!r}, did you mean factor?", {key: None, "factor": value})
    near = [] if key in _FACTOR else difflib.get_close_matches(key, allowed, n=1, cutoff=0.9)
    near = near or ([] if key in _FACTOR else difflib.get_close_matches(key, free, n=1, cutoff=0.7))
    text = f"is no key of rope type {rope_type!r}"
    if key in REFUSED_KEYS:
        text = f"{REFUSED_KEYS[key]}; where it is false, drop it"
    elif near:
        return Problem(key, f"{text}, did you mean {near[0]}?", {key: None, near[0]: value})
    elif key in RULES:
        owners = [name for name in TYPES if key in keys_of(name, "transformers")]
        text += f" but of {', '.join(map(repr, owners))}" if owners else ""
    elif len(key) <= _LONGEST_KEY:
        text += f"; ignore=[{key!r}] keeps it and reads the rest"
    return Problem(key, text, {key: None})


def closest_type(keys: list[str], convention: str) -> str:
    """The rope type that has most of these keys; among equals, the type with the fewest missing."""

    def fit(name: str) -> tuple[int, int]:
        missing = sum(key not in keys for key in TYPES[name].required)
        return sum(key in keys_of(name, convention) for key in keys), -missing

    return max(TYPES, key=fit)


def example(key: str, value: Any, pairs: int | None) -> Any:
    """A value that the rule allows, as near to the given one as can be known."""
    if key in ("short_factor", "long_factor"):
        numbers = [x for x in value if is_number(x, SMALLEST, LARGEST_FACTOR)] if isinstance(value, list) else []
        return (numbers + [numbers[-1] if numbers else 1.0] * (pairs or 1))[: pairs or 1]
    if key == "mrope_section":
        third = (pairs or 3) // 3
        return [(pairs or 3) - 2 * third, third, third] if third else None
    meant = nearest_number(value)
    return meant if meant is not None and RULES[key].holds(meant) else RULES[key].example


def repair(block: Block, found_problems: list[Problem], again: Callable[[Block], list[Problem]]) -> Block:
    """The block with all problems mended, also those that only show once others are."""
    mended = dict(block)
    for _ in range(10):
        for problem in found_problems:
            mended.update(problem.mended)
            mended = {key: value for key, value in mended.items() if value is not None}
        found_problems = again(mended)
        if not found_problems:
            break
    return mended


def error_message(
    problem_texts: Mapping[str, str], block: Block, corrected: Block, *, inside: str, allowed: str
) -> str:
    """The text of the error.

    Args:
        problem_texts: by the path of each key, what is wrong with it.
        block: what was read.
        corrected: keys of the text part, mended.
        inside: path of the text part, "" where it is the whole.
        allowed: which keys may stand there.
    """
    lines = [f"{_cut(path)} {text}" for path, text in problem_texts.items()]
    values = ", ".join(f"{shown(key)}: {shown(value)}" for key, value in block.items())
    where = f", in {inside}" if inside else ""
    lines += [f"allowed: {allowed}", f"found: {{{values}}}"]
    lines.append(f"corrected{where}, check its numbers: {json.dumps(_with_short_keys(corrected), default=str)}")
    return "\n".join(lines)


_LONGEST_KEY = 100  # characters of a key that an error repeats
_NAMED = 20  # unknown keys that are named one by one


def _cut(key: str) -> str:
    """A key in the text of an error."""
    return key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}… ({len(key)} characters)"


def _with_short_keys(block: Mapping[str, Any]) -> Block:
    """A block as an error shows it, nested blocks included."""
    return {_cut(key): _with_short_keys(v) if isinstance(v, Mapping) else v for key, v in block.items()}


def problems(block: Block, pairs: int | None, convention: str, hints: Block) -> list[Problem]:
    """All that is wrong with a block whose nulls were dropped.

    Args:
        block: its keys under the names of version 5.
        pairs: that rotate, or None where that is not known.
        convention: as in `read_rope`.
        hints: likely values of keys that are missing.
    """
    rope_type = block.get("rope_type", "default")
    if not isinstance(rope_type, str) or rope_type not in types_of(convention):
        return [unknown_type(block, pairs, convention)]
    if "rope_type" not in block:
        scaling_keys = [key for key in block if key not in FREE]
        if scaling_keys:
            text = f"is missing, and without it {', '.join(scaling_keys[:_NAMED])} would be ignored"
            return [Problem("rope_type", text, {"rope_type": closest_type(scaling_keys, convention)})]
    wrong = _on_keys(block, pairs, convention)
    for key in types_of(convention)[rope_type].required:
        if key not in block and not any(key in problem.mended for problem in wrong):
            text = f"is missing; rope type {rope_type!r} needs {RULES[key].words}"
            wrong.append(Problem(key, text, {key: hints.get(key, example(key, None, pairs))}))
    return wrong or _disagreements(block, pairs)


def _on_keys(block: Block, pairs: int | None, convention: str) -> list[Problem]:
    """Keys that the rope type does not have, and values that they may not have."""
    rope_type = block.get("rope_type", "default")
    allowed = (*FREE, *keys_of(rope_type, convention))
    wrong = []
    for key, value in block.items():
        if key in allowed and key in RULES and not RULES[key].holds(value):
            text = f"must be {RULES[key].words}, found {shown(value)}"
            wrong.append(Problem(key, text, {key: example(key, value, pairs)}))
    unknown = [key for key in block if key not in allowed]
    free = [name for name in allowed if name not in block]
    wrong += [unknown_key(key, block[key], rope_type, free, allowed) for key in unknown[:_NAMED]]
    if unknown[_NAMED:]:
        text = f"and {len(unknown) - _NAMED - 1} more are not keys of rope type {rope_type!r}"
        wrong.append(Problem(unknown[_NAMED], text, dict.fromkeys(unknown[_NAMED:])))
    return wrong


def _disagreements(block: Block, pairs: int | None) -> list[Problem]:
    """What is wrong between keys that are right one by one."""
    wrong = []
    fast, slow = block.get("beta_fast", 32.0), block.get("beta_slow", 1.0)
    if fast < slow:
        text = f"must not be below beta_slow = {slow}, found {fast}"
        wrong.append(Problem("beta_fast", text, {"beta_fast": 32.0, "beta_slow": 1.0}))
    low, high = block.get("low_freq_factor", 1.0), block.get("high_freq_factor", 4.0)
    if high < low:
        text = f"must be at least low_freq_factor = {low}, found {high}"
        wrong.append(Problem("high_freq_factor", text, {"low_freq_factor": 1.0, "high_freq_factor": 4.0}))
    for key in ("short_factor", "long_factor"):
        if pairs is not None and key in block and len(block[key]) != pairs:
            text = f"must have {pairs} numbers, one for each rotated pair, found {len(block[key])}"
            wrong.append(Problem(key, text, {key: example(key, block[key], pairs)}))
    if block.get("rope_type", "default") != "proportional" and block.get("partial_rotary_factor") == 0:
        text = "must be above 0 but for rope type 'proportional', found 0"
        wrong.append(Problem("partial_rotary_factor", text, {"partial_rotary_factor": 1.0}))
    return wrong
