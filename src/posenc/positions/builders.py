"""Which builder makes the positions of a family, a design or a model: an error on a wrong name says which one takes it.

Each builder of streams registers its names when its module is imported, so that this module imports none of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from posenc.arguments import check_choice

_BUILDERS: dict[str, tuple[str, tuple[str, ...]]] = {}  # function: its argument, and the names that it takes


def register(function: str, argument: str, names: Sequence[str]) -> None:
    """State that ``function(parts, argument=name)`` makes positions for each of these names."""
    _BUILDERS[function] = argument, tuple(names)


def taken_elsewhere(argument: str, value: object) -> None:
    """Raise a ValueError that says which registered function takes this name, if one does."""
    for function, (of, names) in _BUILDERS.items():
        if isinstance(value, str) and value in names:
            raise ValueError(f"{argument}: {value!r} has its positions from {function}(parts, {of}={value!r})")


def check_name(function: str, value: object) -> None:
    """Raise a ValueError unless a registered function takes this name; it says which other function takes it.

    >>> import posenc.positions.streams, posenc.positions.designs  # which register their names
    >>> check_name("stream", "v2pe")
    Traceback (most recent call last):
    ValueError: family: 'v2pe' has its positions from multimodal(parts, design='v2pe')
    """
    argument, choices = _BUILDERS[function]
    if isinstance(value, str) and value not in choices:
        taken_elsewhere(argument, value)
    check_choice(argument, value, choices)
