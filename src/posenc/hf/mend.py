"""A malformed block made right, and the error that shows it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from posenc.hf.numbers import SMALLEST, is_number, nearest_number, shown
from posenc.hf.schema import RULES, Block, Problem


def example(key: str, value: Any, pairs: int | None) -> Any:
    """A value that the rule allows, as near to the given one as can be known."""
    if key in ("short_factor", "long_factor"):
        given = [x for x in value if is_number(x, SMALLEST)] if isinstance(value, list) else []
        return (given + [given[-1] if given else 1.0] * (pairs or 1))[: pairs or 1]
    if key == "mrope_section":
        third = (pairs or 3) // 3
        return [(pairs or 3) - 2 * third, third, third] if third else None
    meant = nearest_number(value)
    return meant if meant is not None and RULES[key].holds(meant) else RULES[key].example


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


def complaint(found: Mapping[str, str], block: Block, corrected: Block, *, inside: str, allowed: str) -> str:
    """The text of the error.

    Args:
        found: by the path of each key, what is wrong with it.
        block: what was read.
        corrected: keys of the text part, mended.
        inside: path of the text part, "" where it is the whole.
        allowed: which keys may stand there.
    """
    lines = [f"{path} {text}" for path, text in found.items()]
    values = ", ".join(f"{shown(key)}: {shown(value)}" for key, value in block.items())
    where = f", in {inside}" if inside else ""
    lines += [f"allowed: {allowed}", f"found: {{{values}}}"]
    lines.append(f"corrected{where}, check its numbers: {json.dumps(corrected, default=str)}")
    return "\n".join(lines)
