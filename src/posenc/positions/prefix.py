"""Class and register tokens before the tokens of an image: without a place, or at a stated one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast, get_args

import torch
from torch import Tensor

from posenc.arguments import WIDEST, shown
from posenc.positions.checking import NO_POSITION, check_coordinates, wide
from posenc.positions.validation import count_of, numbers

Place = Literal["nowhere", "origin", "centre"]


def with_prefix(positions: Tensor, count: int = 1, *, at: Place | float | Sequence[float] = "nowhere") -> Tensor:
    """Add ``count`` positions in front of each sequence: class tokens, registers.

    Map a grid to a model's coordinates first; then add the prefix.

    Args:
        positions: ``(*batch, tokens, axes)``.
        count: tokens in front.
        at: ``"nowhere"``: they have no place, and rotations leave them as they are; each is marked by `NO_POSITION` and
            its number, counted on from such tokens that are there already (DINOv3, Swin, BEiT, learned tables).
            ``"origin"``: 0 on every axis; without a rotation either (RoPE-Axial and -Mixed), but seen at a distance.
            ``"centre"``: the middle of each axis, in floats. A number, or one an axis: there (ComRoPE's class token:
            0.5, in coordinates `centred`).

    >>> from posenc.positions import grid
    >>> with_prefix(grid(1, 2), 2).tolist()
    [[-2147483648, 0], [-2147483648, 1], [0, 0], [0, 1]]
    >>> with_prefix(grid(1, 2), at="centre").tolist()
    [[0.0, 0.5], [0.0, 0.0], [0.0, 1.0]]
    """
    more, grid_positions = _prefix_and_grid(positions, count, at)
    return torch.cat([more, grid_positions], -2)


def with_suffix(positions: Tensor, count: int = 1, *, at: Place | float | Sequence[float] = "nowhere") -> Tensor:
    """Add ``count`` positions behind each sequence: Llama 4's class token, SAM 2's object pointers.

    Llama 4's learned table has its class token's row last, `LearnedGrid` has it first: ``table.roll(1, 0)``. SAM 2's
    memory is ``with_suffix(grid(64, 64).repeat(frames, 1), pointers)``.

    Args:
        positions: ``(*batch, tokens, axes)``.
        count: tokens behind.
        at: as for `with_prefix`.

    >>> from posenc.positions import grid
    >>> with_suffix(grid(1, 2)).tolist()
    [[0, 0], [0, 1], [-2147483648, 0]]
    """
    more, grid_positions = _prefix_and_grid(positions, count, at)
    return torch.cat([grid_positions, more], -2)


def _prefix_and_grid(positions: Tensor, count: int, at: Place | float | Sequence[float]) -> tuple[Tensor, Tensor]:
    """``count`` tokens more, and those that are given, in one dtype."""
    check_coordinates(positions, "positions")
    if positions.shape[-1] < 2:
        raise ValueError(f"positions must have at least 2 coordinates, got {tuple(positions.shape)}")
    count = count_of("count", count, least=0, most=WIDEST)
    place = _place(at, positions.shape[-1])
    positions = wide(positions)
    return _places(positions, count, place), _fit(positions, place)


def _place(at: Place | float | Sequence[float], axes: int) -> Place | tuple[float, ...]:
    """Where the tokens lie: a word, or a number an axis."""
    if not isinstance(at, str):
        return numbers("at", at, axes)
    for place in get_args(Place):
        if at == place:
            return cast(Place, place)
    raise ValueError(f"at must be 'nowhere', 'origin', 'centre', a number or one for each axis, got {shown(at)}")


def _places(positions: Tensor, count: int, at: Place | tuple[float, ...]) -> Tensor:
    """``(*batch, count, axes)``."""
    axes, shape = positions.shape[-1], (*positions.shape[:-2], count, positions.shape[-1])
    if at == "nowhere":
        # Their numbers go on from those of such tokens that are there, which tables of own rows tell apart.
        there = (positions[..., 0] == NO_POSITION).sum(-1, keepdim=True)
        number = (there + torch.arange(count, device=positions.device)).to(positions.dtype).unsqueeze(-1)
        between = number.new_zeros(*number.shape[:-1], axes - 2)
        return torch.cat([torch.full_like(number, NO_POSITION), between, number], -1)
    if at == "origin":
        return positions.new_zeros(shape)
    if at == "centre":
        return _middle(_fit(positions, at)).expand(shape)
    return _fit(positions, at).new_tensor(at).expand(shape)


def _middle(positions: Tensor) -> Tensor:
    """Half way between the smallest and the largest coordinate of each axis, of tokens that have a place."""
    if not positions.shape[-2]:
        raise ValueError(f"positions must hold tokens for at='centre', got {shown(positions)}: no token, no middle")
    unplaced = positions[..., :1] == NO_POSITION
    first = positions.masked_fill(unplaced, torch.inf).amin(-2, keepdim=True)
    last = positions.masked_fill(unplaced, -torch.inf).amax(-2, keepdim=True)
    return (first + last) / 2


def _fit(positions: Tensor, at: Place | tuple[float, ...]) -> Tensor:
    """Positions in a dtype that holds the place as well: integers stay integers where it is whole."""
    if positions.is_floating_point() or at in ("nowhere", "origin"):
        return positions
    are_whole = not isinstance(at, str) and all(x.is_integer() for x in at)
    return positions if are_whole else positions.float()
