"""All that is wrong with a block of `rope_parameters`, seen by itself."""

from __future__ import annotations

from posenc.hf.mend import example
from posenc.hf.numbers import shown
from posenc.hf.schema import FREE, RULES, Block, Problem, keys_of, types_of
from posenc.hf.unknown import fitting, unknown_key, unknown_type

_NAMED = 20  # unknown keys that are named one by one


def problems(block: Block, pairs: int | None, convention: str, hints: Block) -> list[Problem]:
    """All that is wrong with a block whose nulls were dropped.

    Args:
        block: its keys under the names of version 5.
        pairs: that turn, or None where that is not known.
        convention: as in `read_rope`.
        hints: likely values of keys that are missing.
    """
    rope_type = block.get("rope_type", "default")
    if not isinstance(rope_type, str) or rope_type not in types_of(convention):
        return [unknown_type(block, pairs, convention)]
    if "rope_type" not in block:
        own = [key for key in block if key not in FREE]
        if own:
            text = f"is missing, and without it {', '.join(own[:_NAMED])} would be ignored"
            return [Problem("rope_type", text, {"rope_type": fitting(own, convention)})]
    found = _on_keys(block, pairs, convention)
    for key in types_of(convention)[rope_type].required:
        if key not in block and not any(key in problem.mended for problem in found):
            text = f"is missing; rope type {rope_type!r} needs {RULES[key].words}"
            found.append(Problem(key, text, {key: hints.get(key, example(key, None, pairs))}))
    return found or _disagreements(block, pairs)


def _on_keys(block: Block, pairs: int | None, convention: str) -> list[Problem]:
    """Keys that the rope type does not have, and values that they may not have."""
    rope_type = block.get("rope_type", "default")
    allowed = (*FREE, *keys_of(rope_type, convention))
    found = []
    for key, value in block.items():
        if key in allowed and key in RULES and not RULES[key].holds(value):
            text = f"must be {RULES[key].words}, found {shown(value)}"
            found.append(Problem(key, text, {key: example(key, value, pairs)}))
    unknown = [key for key in block if key not in allowed]
    free = [name for name in allowed if name not in block]
    found += [unknown_key(key, block[key], rope_type, free) for key in unknown[:_NAMED]]
    if unknown[_NAMED:]:
        text = f"and {len(unknown) - _NAMED - 1} more are no keys of rope type {rope_type!r}"
        found.append(Problem(unknown[_NAMED], text, dict.fromkeys(unknown[_NAMED:])))
    return found


def _disagreements(block: Block, pairs: int | None) -> list[Problem]:
    """What is wrong between keys that are right one by one."""
    found = []
    fast, slow = block.get("beta_fast", 32.0), block.get("beta_slow", 1.0)
    if fast < slow:
        text = f"must not be below beta_slow = {slow}, found {fast}"
        found.append(Problem("beta_fast", text, {"beta_fast": 32.0, "beta_slow": 1.0}))
    low, high = block.get("low_freq_factor", 1.0), block.get("high_freq_factor", 4.0)
    if high < low:
        text = f"must be at least low_freq_factor = {low}, found {high}"
        found.append(Problem("high_freq_factor", text, {"low_freq_factor": 1.0, "high_freq_factor": 4.0}))
    for key in ("short_factor", "long_factor"):
        if pairs is not None and key in block and len(block[key]) != pairs:
            text = f"must have {pairs} numbers, one for each pair that turns, found {len(block[key])}"
            found.append(Problem(key, text, {key: example(key, block[key], pairs)}))
    if block.get("rope_type", "default") != "proportional" and block.get("partial_rotary_factor") == 0:
        text = "must be above 0 but for rope type 'proportional', found 0"
        found.append(Problem("partial_rotary_factor", text, {"partial_rotary_factor": 1.0}))
    return found
