"""Class and register tokens before the tokens of a picture: without a place, or at a stated one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from posenc.positions.checking import NOWHERE, check_coordinates, numbers, wide

Place = Literal["nowhere", "origin", "centre"]


def with_prefix(positions: Tensor, count: int = 1, *, at: Place | float | Sequence[float] = "nowhere") -> Tensor:
    """Positions with ``count`` tokens more in front of each row: class tokens, registers.

    Map a grid to a model's coordinates first; then add the prefix.

    Args:
        positions: ``(*batch, tokens, axes)``.
        count: tokens in front.
        at: ``"nowhere"``: they have no place, and rotations leave them as they are; each is marked by `NOWHERE` and its
            number (DINOv3, Swin, BEiT, learned tables). ``"origin"``: 0 on every axis; without a rotation either
            (RoPE-Axial and -Mixed), but seen at a distance. ``"centre"``: the middle of each axis, in floats. A number,
            or one an axis: there (ComRoPE's class token: 0.5, in coordinates `centred`).

    >>> from posenc.positions import grid
    >>> with_prefix(grid(1, 2), 2).tolist()
    [[-2147483648, 0], [-2147483648, 1], [0, 0], [0, 1]]
    >>> with_prefix(grid(1, 2), at="centre").tolist()
    [[0.0, 0.5], [0.0, 0.0], [0.0, 1.0]]
    """
    check_coordinates(positions)
    if positions.shape[-1] < 2:
        raise ValueError(f"positions must have at least 2 coordinates, got {tuple(positions.shape)}")
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ValueError(f"count must be an integer of at least 0, got {count!r}")
    positions = wide(positions)
    return torch.cat([_places(positions, count, at), _fit(positions, at)], -2)


def _places(positions: Tensor, count: int, at: Place | float | Sequence[float]) -> Tensor:
    """``(*batch, count, axes)``."""
    axes, shape = positions.shape[-1], (*positions.shape[:-2], count, positions.shape[-1])
    if at == "nowhere":
        number = torch.arange(count, dtype=positions.dtype, device=positions.device)[:, None]
        mark, between = torch.full_like(number, NOWHERE), torch.zeros_like(number).expand(count, axes - 2)
        return torch.cat([mark, between, number], -1).expand(shape)
    if at == "origin":
        return positions.new_zeros(shape)
    if at == "centre":
        return _middle(_fit(positions, at)).expand(shape)
    if isinstance(at, str):
        raise ValueError(f"at must be 'nowhere', 'origin', 'centre', a number or one for each axis, got {at!r}")
    return _fit(positions, at).new_tensor(numbers("at", at, axes)).expand(shape)


def _middle(positions: Tensor) -> Tensor:
    """Half way between the smallest and the largest coordinate of each axis, of tokens that have a place."""
    lost = positions[..., :1] == NOWHERE
    first = positions.masked_fill(lost, torch.inf).amin(-2, keepdim=True)
    last = positions.masked_fill(lost, -torch.inf).amax(-2, keepdim=True)
    return (first + last) / 2


def _fit(positions: Tensor, at: Place | float | Sequence[float]) -> Tensor:
    """Positions in a dtype that holds the place as well: integers stay integers where it is whole."""
    if positions.is_floating_point() or at in ("nowhere", "origin"):
        return positions
    whole = not isinstance(at, str) and all(
        float(x).is_integer() for x in ([at] if isinstance(at, int | float) else at)
    )
    return positions if whole else positions.float()
