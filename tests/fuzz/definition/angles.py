"""Exact angles: position times frequency, with whole turns taken away by integers of any size."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import mpmath
import torch
from torch import Tensor

_BITS = 320
with mpmath.workprec(_BITS + 40):
    _TURN = int(2 * mpmath.pi * mpmath.mpf(2) ** _BITS)


@lru_cache(maxsize=1 << 18)
def angle(position: float, theta: float) -> float:
    """position · theta in (−π, π], both taken as the exact numbers that they are."""
    product = Fraction(position) * Fraction(theta)
    whole = (product.numerator << _BITS) // product.denominator
    rest = whole % _TURN
    return float(Fraction(rest - _TURN if 2 * rest > _TURN else rest, 1 << _BITS))


def angles(positions: Tensor, theta: Tensor) -> Tensor:
    """``(*positions.shape, pairs)`` for frequencies ``(pairs,)``; exact, or differentiable where theta is learned."""
    if theta.requires_grad or theta.grad_fn is not None:
        return positions.double().unsqueeze(-1) * theta
    flat = [[angle(p, t) for t in theta.tolist()] for p in positions.flatten().tolist()]
    return torch.tensor(flat, dtype=torch.float64).view(*positions.shape, theta.shape[0])


@lru_cache(maxsize=1 << 12)
def power(base: float, numerator: int, denominator: int) -> float:
    """base^(numerator / denominator), correctly rounded."""
    with mpmath.workprec(200):
        return float(mpmath.mpf(base) ** (mpmath.mpf(numerator) / denominator))


def geometric(base: float, count: int, denominator: int, *, first: int = 0) -> Tensor:
    """base^(−2j / denominator), j = first … first + count − 1."""
    return torch.tensor([power(base, -2 * j, denominator) for j in range(first, first + count)], dtype=torch.float64)
