"""The frequencies of a rotation, on the host, in float64; and what a scaling of them is.

    theta_j = base^(−2j / dim),  j = 0 … dim/2 − 1          radians per token

theta is the correctly rounded float64 of each frequency (decimal arithmetic of 50 digits), so that an
angle p·theta is off by at most p · 1.1e-16 · theta: 2e-7 rad at p = 2³¹. A `Scaling` (position interpolation,
YaRN, …) maps a `Spectrum` to a `Spectrum`; several compose in ``nn.Sequential``.

Source: Su et al., RoFormer, arXiv 2104.09864, section 3.2.2; the same frequencies as Vaswani et al., arXiv
    1706.03762, section 3.5.
Checked against: mpmath; transformers, gpt-neox and llama-models' tables.
Departs from the source: nothing.
"""

from __future__ import annotations

import decimal
import inspect
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from posenc.arguments import LONGEST, check_number

_TURN = decimal.Decimal("6.28318530717958647692528676655900576839433879875021164194988918461563")


class Start(NamedTuple):
    """Frequencies of the first tokens of a sequence, where a scaling leaves those alone (LongRoPE).

    Attributes:
        tokens: positions below it are rotated by ``theta``, all others by the spectrum's own.
        theta: float64, ``(pairs,)``.
        gain: factor on rotated q and k at those positions.
    """

    tokens: int
    theta: Tensor
    gain: float = 1.0


_NO_GAIN = torch.ones((), dtype=torch.float64, device="cpu")


class Spectrum(NamedTuple):
    """Frequencies of the pairs of a rotation.

    Attributes:
        theta: float64, ``(pairs,)`` or ``(heads, pairs)``, radians per token. Under lengths of several rows it has
            axes that broadcast against them.
        length: tokens that the spectrum spans: a number, a tensor ``(*rows, 1)`` whose last axis stands for
            the pairs, or None for the length that the model was trained at.
        gain: factor on rotated q and k, always a float64 tensor: without axes, or like ``length`` where it depends on
            that.
        start: other frequencies for the first tokens, or None.
    """

    theta: Tensor
    length: int | Tensor | None = None
    gain: Tensor = _NO_GAIN
    start: Start | None = None

    def times_longer(self, original_length: int) -> Tensor:
        """max(1, length / original_length), float64: a scalar, or like ``length``."""
        if self.length is None:
            return self.theta.new_ones(())
        length = self.length if isinstance(self.length, Tensor) else self.theta.new_tensor(self.length)
        return (length.to(self.theta) / original_length).clamp(min=1.0)


class Scaling(nn.Module):
    """Maps a `Spectrum` to a `Spectrum`. Subclass it, or compose several in ``nn.Sequential``.

    ``forward`` is arithmetic on float64 tensors that broadcasts over leading axes of ``theta`` and ``length``.
    Constants are Python numbers, which no cast of the module can round.
    """

    length_dependent: bool = False  # whether the result depends on spectrum.length

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        """Options for a model trained at so many tokens: ``original_length``, where the constructor takes one."""
        return {"original_length": train_length} if "original_length" in inspect.signature(cls).parameters else {}

    def forward(self, spectrum: Spectrum) -> Spectrum:
        """The scaled spectrum."""
        raise NotImplementedError


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
    """Each frequency as a fraction of a rotation in 64-bit fixed point, round(theta / 2π · 2⁶⁴) wrapped to int64."""
    with decimal.localcontext(prec=60):
        fractions = [int((decimal.Decimal(t) / _TURN * 2**64).to_integral_value()) for t in theta]
    return [(w + 2**63) % 2**64 - 2**63 for w in fractions]


def host_float64(values: list[float]) -> Tensor:
    """A float64 tensor on the host, whatever default device or dtype is in force."""
    return torch.tensor(values, dtype=torch.float64, device="cpu")


def index_like(theta: Tensor) -> Tensor:
    """The number j of each pair, float64 ``(pairs,)``, on the device of ``theta``."""
    return torch.tensor([float(j) for j in range(theta.shape[-1])], dtype=torch.float64, device=theta.device)


def index_of(theta: Tensor, frequency: float, scaling: str) -> Tensor:
    """The fractional number j at which a geometric spectrum has ``frequency``, ``(..., 1)``.

    Args:
        theta: ``(..., pairs)``.
        frequency: radians per token.
        scaling: the scaling's name, for the error.

    Raises:
        ValueError: where theta is not geometric, or a single pair; values are not looked at under a compiler.
    """
    pairs = theta.shape[-1]
    if pairs < 2:
        raise ValueError(f"{scaling} places pairs on a geometric spectrum and needs at least two, got {pairs}")
    first, last = theta[..., :1].log(), theta[..., -1:].log()
    if not torch.compiler.is_compiling():
        line = first + (last - first) * index_like(theta) / (pairs - 1)
        if not bool(((theta.log() - line).abs() < 1e-9).all()):
            raise ValueError(f"{scaling} needs a geometric spectrum: put it before scalings that bend it")
    return (pairs - 1) * (first - math.log(frequency)) / (first - last)


def check_base(base: float, name: str = "base") -> None:
    """Raise a ValueError unless ``base`` is a finite number above 1."""
    check_number(name, base, above=1)


def check_factor(factor: float, name: str = "factor") -> None:
    """Raise a ValueError unless ``factor`` is a finite number of at least 1."""
    check_number(name, factor, least=1)


def check_length(length: int, name: str = "original_length") -> None:
    """Raise a ValueError unless ``length`` is a whole number of at least 1."""
    if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= LONGEST:
        raise ValueError(f"{name} must be an integer of at least 1, in tokens, got {length!r}")
