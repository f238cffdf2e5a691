"""Exact angles: position × frequency without losing digits, on any device, without float64 or tables.

    angle = 2π/2⁶⁴ · float( p · F  mod 2⁶⁴ ),   F = round(theta / 2π · 2⁶⁴)

A float32 product p·theta is wrong by 0.1 rad at two million tokens, because its digits go into whole turns
that cos and sin throw away. Here a frequency is a fixed-point fraction of a turn in an int64, and the
wrapping product with an integer position throws the turns away exactly. What is left is one rounding of an
angle in [−π, π]: cos and sin are right to 3e-7 in float32.

A fractional position adds frac(p) · theta, which is below one turn and needs no tricks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.frequencies.spectrum import turns

_RADIANS = 2 * math.pi / 2**64


class Frequencies(NamedTuple):
    """Frequencies as Python numbers, which no cast, no device move and no empty allocation can change."""

    theta: tuple[float, ...]
    turns: tuple[int, ...]

    @classmethod
    def of(cls, theta: Sequence[float]) -> Frequencies:
        return cls(tuple(theta), tuple(turns(list(theta))))


def angles(positions: Tensor, frequencies: Frequencies, dtype: torch.dtype) -> Tensor:
    """Angles in radians ``(*positions.shape, pairs)``, right to one rounding of ``dtype``, in [−π, π] for integers.

    Args:
        positions: integers of any size up to 2⁶³, or float32/float64; differentiable where floating.
        dtype: float32 or float64, the precision of the result.
    """
    fraction = torch.tensor(frequencies.turns, dtype=torch.int64, device=positions.device)
    if not positions.is_floating_point():
        return (positions.long().unsqueeze(-1) * fraction).to(dtype) * _RADIANS
    whole = positions.floor()
    angle = (whole.long().unsqueeze(-1) * fraction).to(dtype) * _RADIANS
    theta = torch.tensor(frequencies.theta, dtype=dtype, device=positions.device)
    return angle + (positions - whole).to(dtype).unsqueeze(-1) * theta
