"""The frequencies of a rotation, on the host, in float64.

    theta_j = base^(−2j / dim),  j = 0 … dim/2 − 1          radians per token

theta is the correctly rounded float64 of each frequency (decimal arithmetic of 50 digits), so that an
angle p·theta is off by at most p · 1.1e-16 · theta: 2e-7 rad at p = 2³¹. A scaling (position interpolation,
YaRN, …) maps a `Spectrum` to a `Spectrum`; several compose in ``nn.Sequential``.

Source: Su et al., RoFormer, arXiv 2104.09864, section 3.2.2; the same frequencies as Vaswani et al., arXiv
    1706.03762, section 3.5.
Checked against: mpmath; transformers, gpt-neox and llama-models' tables.
Departs from the source: nothing.
"""

from __future__ import annotations

import decimal
import math
from typing import NamedTuple

import torch
from torch import Tensor

_TURN = decimal.Decimal("6.28318530717958647692528676655900576839433879875021164194988918461563")


class Spectrum(NamedTuple):
    """Frequencies of the pairs of a rotation.

    Attributes:
        theta: float64 on the host, ``(pairs,)`` or ``(heads, pairs)``, radians per token.
        length: tokens that the spectrum spans, or None where it is the same for every length.
        gain: factor on rotated q and k.
    """

    theta: Tensor
    length: int | None = None
    gain: float = 1.0


def geometric(dim: int, base: float, *, denominator: int | None = None) -> list[float]:
    """The geometric frequencies ``base^(−2j / denominator)``, j = 0 … ceil(dim / 2) − 1, correctly rounded.

    Args:
        dim: channels; an odd ``dim`` yields (dim + 1) / 2 frequencies.
        base: wavelengths run from 2π to about 2π · base tokens.
        denominator: default ``dim``.
    """
    with decimal.localcontext(prec=50):
        log_base = decimal.Decimal(base).ln()
        below = decimal.Decimal(dim if denominator is None else denominator)
        return [float((-2 * j * log_base / below).exp()) for j in range((dim + 1) // 2)]


def turns(theta: list[float]) -> list[int]:
    """Each frequency as a fraction of a turn in 64-bit fixed point, round(theta / 2π · 2⁶⁴) wrapped to int64."""
    with decimal.localcontext(prec=60):
        whole = [int((decimal.Decimal(t) / _TURN * 2**64).to_integral_value()) for t in theta]
    return [(w + 2**63) % 2**64 - 2**63 for w in whole]


def host_float64(values: list[float]) -> Tensor:
    """A float64 tensor on the host, whatever default device or dtype is in force."""
    return torch.tensor(values, dtype=torch.float64, device="cpu")


def check_base(base: float) -> None:
    """Raise a ValueError unless ``base`` is a finite number above 1."""
    if not (math.isfinite(base) and base > 1):
        raise ValueError(f"base must be a finite number above 1, got {base}")
