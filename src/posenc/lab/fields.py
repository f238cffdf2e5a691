"""A field of a configuration: its help, its bounds, and what is wrong with a value."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any

MOST_LENGTHS = 64


def number(
    default: Any,
    text: str,
    *,
    least: float | None = None,
    most: float = 2**16,
    above: float | None = None,
    choices: tuple[str, ...] = (),
    decides: bool = True,
    typed: bool = True,
    parts: bool = False,
) -> Any:
    """A field of a configuration.

    Args:
        default: of the quick profile; its type is that of the field.
        text: what it is, for the command line's help.
        least, most: bounds, themselves allowed.
        above: a bound that is not allowed itself.
        choices: of a field of words.
        decides: whether a result depends on it.
        typed: whether it is an option of the command line; False: it follows from something else.
        parts: of several numbers, whether they need not be whole.
    """
    bounds = {"least": least, "most": most, "above": above, "choices": choices, "parts": parts}
    return field(default=default, metadata={"text": text, "decides": decides, "typed": typed, **bounds})


def check_field(f: dataclasses.Field[Any], value: Any) -> None:
    """Raise a ValueError that names the option and what it needs."""
    bounds, name = f.metadata, option(f.name)
    if bounds["choices"] and value not in bounds["choices"]:
        raise ValueError(f"{name} {value}: {' or '.join(bounds['choices'])} is needed")
    if isinstance(value, tuple) and not 0 < len(value) <= MOST_LENGTHS:
        raise ValueError(f"{name}: {len(value)} of them; one to {MOST_LENGTHS} are taken")
    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(one, bool) or not isinstance(one, int | float):
            continue
        if bounds["least"] is not None and not one >= bounds["least"]:
            raise ValueError(f"{name} {_short(one)}: at least {bounds['least']} is needed")
        if bounds["above"] is not None and not one > bounds["above"]:
            raise ValueError(f"{name} {_short(one)}: a number above {bounds['above']} is needed")
        if not one <= bounds["most"]:
            raise ValueError(f"{name} {_short(one)}: at most {bounds['most']:,} is taken")


def option(name: str) -> str:
    """How a field is called on the command line."""
    return "--" + name.replace("_", "-")


def text_of(value: Any) -> str:
    """A value in words."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _short(value: float) -> str:
    return "of more than 30 digits" if isinstance(value, int) and abs(value) >= 10**30 else str(value)
