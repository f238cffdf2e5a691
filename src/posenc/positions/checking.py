"""What positions must be, and which tokens have none: used wherever positions come in."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

NOWHERE = -(2**31)  # exact in int32, float32 and whatever is wider
Sizes = int | Sequence[int]  # tokens along each axis; one number for all of them


def nowhere(positions: Tensor, axes: int) -> Tensor:
    """Which tokens have no place, bool ``(*batch, tokens)``: class and register tokens, whose first coordinate says so.

    Rotations leave them as they are, embeddings of a grid add a row of their own or nothing, and biases give them
    numbers of their own or none. Their last coordinate, where there are several, counts them: 0, 1, ….

    >>> nowhere(torch.tensor([[NOWHERE, 0], [0, 0], [0, 1]]), axes=2)
    tensor([ True, False, False])
    """
    return wide(positions if axes == 1 else positions[..., 0]) == NOWHERE  # in int16, −2^31 would be 0


def check(name: str, positions: Tensor, tokens: int, batch: int, axes: int = 1) -> None:
    """Raise a ValueError that names ``name`` unless the positions fit ``tokens`` tokens of ``batch`` rows."""
    if not isinstance(positions, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(positions).__name__}: torch.tensor(...) makes one")
    wanted = "(tokens,) or (batch, tokens)" if axes == 1 else f"(tokens, {axes}) or (batch, tokens, {axes})"
    shape = tuple(positions.shape)
    if axes > 1:
        if positions.ndim < 2 or shape[-1] != axes:
            turned = positions.ndim == 3 and shape[0] == axes
            hint = ": movedim(0, -1) takes the coordinates to the end" if turned else ""
            raise ValueError(f"{name} must be {wanted}, got {shape}{hint}")
        shape = shape[:-1]
    if len(shape) not in (1, 2) or shape[-1] != tokens or (len(shape) == 2 and shape[0] not in (1, batch)):
        raise ValueError(f"{name} must be {wanted} for {tokens} tokens and batch {batch}, got {tuple(positions.shape)}")
    check_dtype(name, positions)


def check_dtype(name: str, positions: Tensor) -> None:
    """Raise a ValueError for positions that cannot count: bool, complex, float16, bfloat16 (exact only to 256)."""
    dtype = positions.dtype
    if dtype in (torch.bool, torch.float16, torch.bfloat16) or dtype.is_complex:
        raise ValueError(
            f"{name} must be integers (exact), float32 or float64, got {dtype}: positions.long() keeps them exact"
        )


def span(positions: Tensor) -> Tensor:
    """Tokens that a row spans, its last position + 1: ``(*batch, 1)`` for positions ``(*batch, tokens)``.

    >>> span(torch.tensor([[0, 1, 2], [7, 5, 6]]))
    tensor([[3],
            [8]])
    """
    last = positions.amax(-1, keepdim=True)
    return (last.floor() if last.is_floating_point() else last) + 1


def wide(positions: Tensor) -> Tensor:
    """Integer positions as int64, in which no difference wraps around; floating ones as they are."""
    return positions if positions.is_floating_point() else positions.long()


def whole(numbers: Tensor) -> bool:
    """Whether a tensor holds integers."""
    return not (numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool)


def check_coordinates(coordinates: Tensor) -> None:
    """Raise a ValueError unless these are coordinates ``(tokens, axes)`` or ``(batch, tokens, axes)``."""
    if not isinstance(coordinates, Tensor) or coordinates.ndim not in (2, 3):
        shape = tuple(coordinates.shape) if isinstance(coordinates, Tensor) else type(coordinates).__name__
        raise ValueError(f"coordinates must be a tensor (tokens, axes) or (batch, tokens, axes), got {shape}")
    check_dtype("coordinates", coordinates)


def sizes_of(name: str, sizes: Sizes, axes: int) -> tuple[int, ...]:
    """One size an axis, checked."""
    found = (sizes,) * axes if isinstance(sizes, int) else tuple(sizes)
    if len(found) != axes or not all(isinstance(size, int) and size >= 1 for size in found):
        raise ValueError(f"{name} must be positive integers, one or one for each of {axes} axes, got {sizes}")
    return found


def numbers(name: str, given: float | Sequence[float], axes: int) -> tuple[float, ...]:
    """One number an axis, checked."""
    found = (float(given),) * axes if isinstance(given, int | float) else tuple(map(float, given))
    if len(found) != axes or not all(map(math.isfinite, found)):
        raise ValueError(f"{name} must be finite, one number or one for each of {axes} axes, got {given}")
    return found
