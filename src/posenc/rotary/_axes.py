"""Angles of positions with several coordinates: the only module that computes them.

    each axis:   angle[t, (a, j)] = theta[(a,) j] · p[t, a]           axial RoPE, V-JEPA
    chosen:      angle[t, j]      = theta[j] · p[t, axis[j]]          M-RoPE
    summed:      angle[t, h, j]   = Σ_a theta[h, a, j] · p[t, a]      mixed RoPE

All of them come from `frequencies.phase.angles`: exact for integers of any size, fractions as they are. Tokens without
a place stand at 0 on every axis, so they are not rotated: cos 1, sin 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.constants import constant
from posenc.dtypes import precision
from posenc.encoding import Table, float64_if_supported
from posenc.frequencies.phase import AnyFrequencies, angles, cos_sin, working_dtype
from posenc.positions import checking as position
from posenc.rotary._rotate import check_table
from posenc.rotary._rotation_table import RotationTable


def coordinates(
    positions: Tensor, axes: int, like: Tensor | None, *, shift: int = 0
) -> tuple[Tensor, Tensor, torch.dtype]:
    """The coordinates, mask and dtype from which a table of cos and sin is computed.

    Returns:
        Coordinates ``(*batch, tokens, axes)`` plus ``shift`` on the device of ``like``, 0 for tokens without a place;
        which tokens these are, ``(*batch, tokens, 1)``; and the dtype of the table.

    Raises:
        ValueError: for positions that cannot count, or without an axis of ``axes`` coordinates.
    """
    position.check_dtype("positions", positions)
    if axes > 1 and (positions.ndim not in (2, 3) or positions.shape[-1] != axes):
        axes_first = positions.ndim == 3 and positions.shape[0] == axes
        help_ = "; positions.movedim(0, -1) moves (axes, batch, tokens) to (batch, tokens, axes)" if axes_first else ""
        shapes = f"(tokens, {axes}) or (batch, tokens, {axes})"
        raise ValueError(f"positions must be {shapes}, got {tuple(positions.shape)}{help_}")
    if axes == 1 and positions.ndim == 3:
        if positions.shape[-1] != 1:
            raise ValueError(f"positions must be (tokens,) or (batch, tokens), got {tuple(positions.shape)}")
        positions = positions.squeeze(-1)
    if like is not None:
        positions = positions.to(like.device)
    positions = position.wide(positions)
    unplaced = position.has_no_position(positions, axes).unsqueeze(-1)
    places = positions if axes > 1 else positions.unsqueeze(-1)
    if shift:  # in float64, as a float32 fraction and a whole number have more digits together than float32 holds
        places = (places.to(float64_if_supported(places.device)) if places.is_floating_point() else places) + shift
    # before any angle: to frequencies the mark −2³¹ is a position like others
    places = places.masked_fill(unplaced, 0)
    return places, unplaced, precision(like)


def without_single_axis(axes: int, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of queries and keys, where one axis has them as ``(tokens, 1)``, as ``(tokens,)``.

    Only the tokens tell these from ``(batch, 1)`` of one token each, as which they would broadcast to tokens × tokens.
    """
    if axes > 1:
        return q_pos, k_pos
    q_places, k_places = (
        p.squeeze(-1) if p.ndim == 2 and p.shape[-1] == 1 and x.shape[2] > 1 else p for p, x in ((q_pos, q), (k_pos, k))
    )
    return q_places, q_places if k_pos is q_pos else k_places


def table_by_axis(places: Tensor, frequencies: AnyFrequencies, dtype: torch.dtype, *, woven: bool = False) -> Table:
    """cos and sin ``(*batch, tokens, axes · pairs)`` of pairs whose angle follows one coordinate, axis by axis.

    Args:
        frequencies: ``(pairs,)`` for all axes alike, or ``(axes, pairs)``.
        woven: the first pair of each axis, then the second of each, and so on.
    """
    angle = angles(places, frequencies, working_dtype(dtype, places.device))
    return cos_sin((angle.mT if woven else angle).flatten(-2), dtype)


def table_of_sums(places: Tensor, frequencies: Sequence[AnyFrequencies], dtype: torch.dtype) -> Table:
    """cos and sin ``(*batch, heads, tokens, pairs)`` of pairs whose angle is a sum over the axes.

    Args:
        frequencies: those of each axis, ``(heads, 1, pairs)``.
    """
    wide = working_dtype(dtype, places.device)
    angle, *more = (
        angles(place.unsqueeze(-2), theta, wide) for place, theta in zip(places.unbind(-1), frequencies, strict=True)
    )
    for other in more:
        angle = angle + other
    return cos_sin(angle, dtype)


def with_learned_angles(table: Table, positions: Tensor, learned_angles: Tensor, axes: int) -> Table:
    """A table in which tokens without a place, numbered below ``len(learned_angles)``, are rotated by learned angles.

    Args:
        table: cos and sin ``(*batch, tokens, pairs)``.
        learned_angles: radians ``(rows, pairs)``, differentiable.
    """
    away = position.has_no_position(positions, axes)
    number = positions[..., -1].long() if axes > 1 else torch.zeros_like(positions, dtype=torch.int64)
    here = (away & (number >= 0) & (number < len(learned_angles))).to(table[0].device)
    rows = learned_angles[torch.where(here, number.to(here.device), 0)]
    learned_table = cos_sin(rows.to(working_dtype(table[0].dtype, rows.device)), table[0].dtype)
    return tuple(
        torch.where(here.unsqueeze(-1), learned, given) for learned, given in zip(learned_table, table, strict=True)
    )


class Chosen:
    """Assigns one coordinate to each pair, in any order.

    Args:
        axis: which axis each pair reads.
    """

    def __init__(self, axis: Sequence[int]) -> None:
        self.axis = list(axis)

    def table(self, places: Tensor, waves: RotationTable, dtype: torch.dtype, *, per_head: bool = False) -> Table:
        """cos and sin ``(*batch, tokens, pairs)``, with an axis of heads before tokens where they have one.

        Args:
            waves: see `posenc.rotary._rotation_table.alone`.
        """
        axis = constant(self.axis, torch.int64, places.device)
        chosen = places.gather(-1, axis.expand(*places.shape[:-1], len(self.axis)))
        cos, sin = waves.table(chosen.unsqueeze(-3) if per_head else chosen, dtype)
        return cos.squeeze(-1), sin.squeeze(-1)


def over_heads(table: Table) -> Table:
    """A table ``(*batch, tokens, pairs)`` in a shape that broadcasts with (batch, heads, tokens, pairs)."""
    check_table(table)
    return table if table[0].ndim == 2 else tuple(part.unsqueeze(-3) for part in table)


def check_head(kind: str, head_dim: int, x: Tensor) -> None:
    """Raise a ValueError unless queries or keys have the width of the encoding."""
    if x.shape[-1] != head_dim:
        raise ValueError(f"head_dim of this {kind} is {head_dim}, got a tensor of {tuple(x.shape)}")
