"""Validation of constructor arguments: sizes and numbers are checked before anything is computed from them.

A size that no model has (2³¹ channels, tables of 10¹⁸ rows) is a slip of the pen or of a configuration, and would fill
the memory or never end: it is refused at once, like a string or a NaN. Bounds lie far above what anybody trains.
"""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

T = TypeVar("T")
WIDEST = 2**17  # channels of a token, of a head, units of a layer
MOST_HEADS = 2**13
MOST_AXES = 2**6
LONGEST = 2**53  # tokens that a length may speak of: float64 counts them one by one
TRANSPOSE_HINT = "; tensors (batch, tokens, heads, width) want .transpose(1, 2) first"  # the likely cause
LARGEST = 2**33  # numbers in one table of parameters, 32 GiB in float32


def check_whole(name: str, value: object, *, least: int = 1, most: int = WIDEST) -> None:
    """Raise a ValueError that names the argument unless ``value`` is an integer from ``least`` to ``most``.

    >>> check_whole("num_heads", 0)
    Traceback (most recent call last):
    ValueError: num_heads must be at least 1, got 0
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be an integer of at least {least}, got {shown(value)}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {shown(value)}")
    if value > most:
        raise ValueError(f"{name} must be at most {most:,}, got {shown(value)}: no model has so many")


def check_pairs(name: str, value: int) -> None:
    """Raise a ValueError unless ``value`` channels are whole pairs, at least one."""
    check_whole(name, value)
    if value % 2:
        raise ValueError(f"{name} must be even and at least 2, got {value}: channels are rotated in pairs")


def check_heads(name: str, value: object) -> None:
    """Raise a ValueError unless ``value`` is a number of heads."""
    check_whole(name, value, most=MOST_HEADS)


def check_kv_heads(num_heads: int, num_kv_heads: int | None) -> int:
    """Raise a ValueError unless query heads fall into groups of one key head each; returns the key heads."""
    check_heads("num_heads", num_heads)
    if num_kv_heads is None:
        return num_heads
    check_heads("num_kv_heads", num_kv_heads)
    if num_heads % num_kv_heads:
        raise ValueError(f"num_kv_heads must divide num_heads = {num_heads}, got {num_kv_heads}")
    return num_kv_heads


def check_number(
    name: str, value: object, *, above: float | None = None, least: float | None = None, most: float = math.inf
) -> None:
    """Raise a ValueError that names the argument unless ``value`` is a finite number in range.

    >>> check_number("scale_base", "512", above=0)
    Traceback (most recent call last):
    ValueError: scale_base must be a finite number above 0, got '512'
    """
    limits = [f"above {above:g}"] if above is not None else [f"of at least {least:g}"] if least is not None else []
    limits += [] if most == math.inf else [f"at most {most:g}"]
    requirement = " ".join(["a finite number", " and ".join(limits)]).strip()
    if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
        raise ValueError(f"{name} must be {requirement}, got {shown(value)}")
    if (above is not None and value <= above) or (least is not None and value < least) or value > most:
        raise ValueError(f"{name} must be {requirement}, got {shown(value)}")


def is_number(value: Any, least: float = -1e9, most: float = 1e9, *, above: bool = False) -> bool:
    """Whether ``value`` is an int or float, no bool, of at least (or above) ``least`` and at most ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return (value > least if above else value >= least) and value <= most  # false for NaN; ints of any size compare


def is_count(value: Any, most: int = 2**31) -> TypeGuard[int]:
    """Whether ``value`` is an integer in 1..``most``, no bool; without ``most``, a number of tokens."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise a ValueError that names the argument unless ``value`` is one of these words.

    >>> check_choice("side", "top", ("left", "right"))
    Traceback (most recent call last):
    ValueError: side must be one of ('left', 'right'), got 'top'
    """
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {shown(value)}")


def check_flag(name: str, value: object) -> bool:
    """The truth that ``value`` is: True, False or 0 and 1, numpy's too; a ValueError that names the argument otherwise.

    >>> check_flag("learned", "no")
    Traceback (most recent call last):
    ValueError: learned must be True or False, got 'no'
    """
    truth = truth_of(value)
    if truth is None:
        raise ValueError(f"{name} must be True or False, got {shown(value)}")
    return truth


def truth_of(value: object) -> bool | None:
    """The truth that a bool, 0 or 1 is, of Python or of numpy; None for anything else."""
    if value is True or value is False:
        return value
    if isinstance(value, int) or (type(value).__module__ == "numpy" and getattr(value, "ndim", 0) == 0):
        truth = bool(value)
        return truth if value == truth else None
    return None


def check_several(name: str, value: Iterable[T]) -> list[T]:
    """The entries of ``value`` as a list; a ValueError that names the argument unless it has any order of them.

    >>> check_several("sections", 3)
    Traceback (most recent call last):
    ValueError: sections must be a list or tuple, got 3
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be a list or tuple, got {shown(value)}")
    try:
        return list(value)
    except TypeError as error:  # a tensor without axes
        raise ValueError(f"{name} must be a list or tuple, got {shown(value)}") from error


def check_table(names: str, *sizes: int) -> None:
    """Raise a ValueError unless a table of these sizes, which ``names`` ask for, fits into a memory.

    >>> check_table("dim and max_length", 2**17, 2**30)
    Traceback (most recent call last):
    ValueError: dim and max_length ask for a table of 140,737,488,355,328 numbers, got 131072 x 1073741824: at most 8,589,934,592 fit
    """  # noqa: E501
    numbers = math.prod(sizes)
    if numbers > LARGEST:
        shape = " x ".join(map(str, sizes))
        raise ValueError(f"{names} ask for a table of {numbers:,} numbers, got {shape}: at most {LARGEST:,} fit")


_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 60


def shown(value: object) -> str:
    """A value in the text of an error, cut short: a tensor by its shape, everything else by its repr.

    `reprlib` visits only the parts that are shown, so that a huge or deeply nested value costs nothing.
    """
    torch = sys.modules.get("torch")  # not imported for this: configurations are read without it
    if torch is not None and isinstance(value, torch.Tensor):
        return f"a tensor {tuple(value.shape)} of {value.dtype}"
    if isinstance(value, int) and value.bit_length() > 64:  # Python prints no integer of thousands of digits
        return f"an integer of {value.bit_length()} bits"
    return _brief.repr(value)


def one_line(value: object) -> str:
    """The text of a value, such as a module with others inside, on one line."""
    return " ".join(str(value).split())


def _finite(value: float) -> bool:
    """Whether a number is finite; integers too large for a float count as not."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_sizes(name: str, sizes: object) -> tuple[int, ...]:
    """The sizes as a tuple; a ValueError that names the argument unless they are whole numbers from 1, one an axis.

    >>> check_sizes("window", (7, 0))
    Traceback (most recent call last):
    ValueError: window must be integers of at least 1, one an axis, such as (14, 14); got (7, 0)
    """
    are_counts = isinstance(sizes, Sequence) and all(
        isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in sizes
    )
    if not (isinstance(sizes, Sequence) and are_counts and sizes):
        raise ValueError(f"{name} must be integers of at least 1, one an axis, such as (14, 14); got {shown(sizes)}")
    return tuple(sizes)
