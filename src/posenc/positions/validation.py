"""Validation of the position builders' arguments, by name, before anything is computed from them.

Builders count what data says, so that integers of numpy and of a tensor without axes are counts as well. A size that a
compiler traces has no bound above, since whatever it is compared with becomes a condition of what is compiled.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from posenc.arguments import check_number, check_several, check_table, check_whole, shown

MOST_TOKENS = 2**30  # that one count may ask for, 8 GiB of int64; the longest text that a model declared had 10 million
FARTHEST = 1e15  # coordinates and seconds: float64 still tells eighths apart, int64 holds their products with sizes
Sizes = int | Sequence[int]  # tokens along each axis; one number for all of them


def count_of(name: str, value: object, *, least: int = 1, most: int = MOST_TOKENS) -> int:
    """The count that ``value`` is; a ValueError that names the argument unless it is from ``least`` to ``most``.

    >>> count_of("tokens", torch.tensor(3)), count_of("tokens", 0, least=0)
    (3, 0)
    """
    number = _integer(value)
    if not isinstance(number, torch.SymInt) and not torch.compiler.is_compiling():
        check_whole(name, value if number is None else number, least=least, most=most)
    elif number is None or number < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {shown(value)}")
    return cast(int, number)


def within(name: str, value: object, least: int, most: int, of: str) -> int:
    """The integer that ``value`` is; a ValueError unless it is in ``least``..``most``, which ``of`` calls by name."""
    number = _integer(value)
    if number is None or not least <= number <= most:
        raise ValueError(f"{name} must be in {least}..{of} = {most}, got {shown(value)}")
    return cast(int, number)


def number_of(
    name: str, value: object, *, above: float | None = None, least: float | None = None, most: float = FARTHEST
) -> float:
    """The number that ``value`` is; a ValueError that names the argument unless it is in range.

    >>> number_of("rate", torch.tensor(2.0), above=0)
    2.0
    """
    number = _number(value)
    check_number(name, value if number is None else number, above=above, least=least, most=most)
    return cast(float, number)


def sizes_of(name: str, sizes: Sizes, axes: int) -> tuple[int, ...]:
    """One size an axis, checked."""
    same_size = _integer(sizes)
    counts = (
        [same_size] * axes
        if same_size is not None
        else [_integer(size) for size in check_several(name, cast(Sequence[int], sizes))]
    )
    if len(counts) != axes or not all(size is not None and size >= 1 for size in counts):
        raise ValueError(f"{name} must be positive integers, one or one for each of {axes} axes, got {shown(sizes)}")
    return tuple(count_of(name, size) for size in counts)


def numbers(name: str, value: float | Sequence[float], axes: int) -> tuple[float, ...]:
    """One number an axis, checked."""
    number = _number(value)
    values = (
        [number] * axes
        if number is not None
        else [_number(entry) for entry in check_several(name, cast(Sequence[float], value))]
    )
    if len(values) != axes or not all(entry is not None and abs(entry) <= FARTHEST for entry in values):
        raise ValueError(
            f"{name} must be finite, one number or one for each of {axes} axes, got {shown(value)}: "
            f"at most {FARTHEST:g} either way"
        )
    return tuple(float(entry) for entry in values if entry is not None)


def table_of(name: str, value: object, expected: str) -> Tensor:
    """Numbers as a tensor: one, or lists of them; a ValueError that names the argument for what makes none."""
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{name} must be {expected}, got {shown(value)}") from error


def check_rows(
    name: str, value: object, expected: str, *, axes: tuple[int, ...] = (1, 2), integers: bool = False
) -> None:
    """Raise a ValueError that names the argument unless it is a tensor of so many axes, and of integers if need be."""
    kind = isinstance(value, Tensor) and (is_whole(value) if integers else not value.is_complex())
    if not isinstance(value, Tensor) or not kind or value.ndim not in axes:
        raise ValueError(f"{name} must be {expected}, got {shown(value)}")


def check_fits(names: str, *sizes: int) -> None:
    """Raise a ValueError unless a memory holds a table of these sizes, which ``names`` ask for."""
    if not torch.compiler.is_compiling() and not any(isinstance(size, torch.SymInt) for size in sizes):
        check_table(names, *sizes)


def device_of(generator: torch.Generator | None) -> torch.device | None:
    """Where draws are made; None: on the device in force."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise ValueError(f"generator must be a torch.Generator or None, got {shown(generator)}")
    return None if generator is None else generator.device


def is_whole(numbers: Tensor) -> bool:
    """Whether a tensor holds integers."""
    return not (numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool)


def _integer(value: object) -> int | torch.SymInt | None:
    """The integer that ``value`` is, of Python, of numpy or of a tensor without axes; None for anything else."""
    if isinstance(value, int | torch.SymInt):
        return None if isinstance(value, bool) else value
    if isinstance(value, Tensor) and (value.ndim or not is_whole(value)):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except (TypeError, RuntimeError):  # no integer; a tensor of which no number is known
        return None


def _number(value: object) -> float | None:
    """The number that ``value`` is, likewise; integers stay integers."""
    if isinstance(value, int | float):
        return None if isinstance(value, bool) else value
    if not hasattr(value, "__float__") or str(getattr(value, "dtype", "")).endswith("bool"):
        return None
    if getattr(value, "ndim", 0) != 0:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
