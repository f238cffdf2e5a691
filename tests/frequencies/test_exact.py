"""Angles of every fixed spectrum far out, against 50 digits that evaluate the method's own formula."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from mpmath import mpf
from torch import nn

from posenc import Llama3, LongRoPE, NTKAware, PositionInterpolation, RoPE, YaRN
from posenc.frequencies import MultiScale, NTKByParts, PartNTK, Proportional, Resonance

PAIRS, LENGTH = 32, 4096
DIM = 2 * PAIRS
LONG = [1.0 + 0.37 * j for j in range(PAIRS)]
Theta = list[mpf]


def geometric(base: float) -> Theta:
    return [mpf(base) ** (mpf(-2 * j) / DIM) for j in range(PAIRS)]


def ntk(theta: Theta, factor: float) -> Theta:
    return [t * mpf(factor) ** (mpf(-2 * j) / (DIM - 2)) for j, t in enumerate(theta)]


def blend(theta: Theta, factor: float, stays: list[mpf]) -> Theta:
    return [(1 - g) * t / mpf(factor) + g * t for t, g in zip(theta, stays, strict=True)]


def by_turns(theta: Theta, low: float, high: float) -> list[mpf]:
    turns = [LENGTH * t / (2 * mpmath.pi) for t in theta]
    return [min(max((r - low) / mpf(high - low), 0), 1) for r in turns]


def by_index(base: float, fast: float, slow: float, truncate: bool = True) -> list[mpf]:
    low, high = (DIM * mpmath.log(LENGTH / (rot * 2 * mpmath.pi)) / (2 * mpmath.log(base)) for rot in (fast, slow))
    if truncate:
        low, high = mpmath.floor(low), mpmath.ceil(high)
    low, high = max(low, 0), min(high, DIM - 1)
    return [1 - min(max((j - low) / (high - low), 0), 1) for j in range(PAIRS)]


def as_fractions(theta: Theta) -> Theta:
    return [2 * mpmath.pi / mpmath.nint(2 * mpmath.pi / t) for t in theta]


def part_ntk(base: float, factor: float) -> Theta:
    theta, aware = geometric(base), ntk(geometric(base), factor)
    first, second = by_index(base, 1.25, 0.75), by_index(base, 16, 2)
    mixed = [t / mpf(factor) * (1 - g) + a * g for t, a, g in zip(theta, aware, first, strict=True)]
    return [m * (1 - g) + t * g for m, t, g in zip(mixed, theta, second, strict=True)]


OPTIONS = {"original_length": LENGTH}
METHODS: dict[str, tuple[float, nn.Module | None, Callable[[], Theta]]] = {
    "rope": (1e4, None, lambda: geometric(1e4)),
    "rope_5e5": (5e5, None, lambda: geometric(5e5)),
    "linear": (1e4, PositionInterpolation(3.7), lambda: [t / mpf(3.7) for t in geometric(1e4)]),
    "ntk": (1e4, NTKAware(6.5), lambda: ntk(geometric(1e4), 6.5)),
    "ntk_by_parts": (1e4, NTKByParts(8, **OPTIONS), lambda: blend(geometric(1e4), 8, by_turns(geometric(1e4), 1, 32))),
    "part_ntk": (1e4, PartNTK(8, **OPTIONS), lambda: part_ntk(1e4, 8)),
    "yarn": (1e4, YaRN(16, **OPTIONS), lambda: blend(geometric(1e4), 16, by_index(1e4, 32, 1))),
    "yarn_no_truncate": (
        1.5e5,
        YaRN(32, truncate=False, **OPTIONS),
        lambda: blend(geometric(1.5e5), 32, by_index(1.5e5, 32, 1, truncate=False)),
    ),
    "yarn_rotations": (
        1e6,
        YaRN(4, ramp="rotations", **OPTIONS),
        lambda: blend(geometric(1e6), 4, by_turns(geometric(1e6), 1, 32)),
    ),
    "llama3": (5e5, Llama3(8, **OPTIONS), lambda: blend(geometric(5e5), 8, by_turns(geometric(5e5), 1, 4))),
    "longrope": (
        1e4,
        LongRoPE(LONG, LONG, factor=8, **OPTIONS),
        lambda: [t / mpf(f) for t, f in zip(geometric(1e4), LONG, strict=True)],
    ),
    "resonance": (1e4, Resonance(), lambda: as_fractions(geometric(1e4))),
    "resonance_yarn": (
        1e4,
        nn.Sequential(YaRN(16, **OPTIONS), Resonance()),
        lambda: as_fractions(blend(geometric(1e4), 16, by_index(1e4, 32, 1))),
    ),
    "resonance_ntk": (1e4, nn.Sequential(NTKAware(4), Resonance()), lambda: as_fractions(ntk(geometric(1e4), 4))),
    "proportional": (
        1e6,
        Proportional(0.25),
        lambda: [t if j < PAIRS // 4 else mpf(0) for j, t in enumerate(geometric(1e6))],
    ),
}


def exact(theta: Theta, position: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of position × theta, in 50 digits and rounded once."""
    return tuple(
        torch.tensor([float(wave(position * t)) for t in theta], dtype=torch.float64)
        for wave in (mpmath.cos, mpmath.sin)
    )  # type: ignore[return-value]


@pytest.mark.parametrize("position", [2**17, 2**21, 10**8, 2**31 - 1])
@pytest.mark.parametrize("name", METHODS)
def test_angles_far_out(name, position):
    base, scaling, formula = METHODS[name]
    rope = RoPE(DIM, base=base, scaling=scaling).to(torch.bfloat16)
    table, gain = rope.table(torch.tensor([position])), float(rope.spectrum().gain)
    with mpmath.workdps(50):
        expected = exact(formula(), position)
    for got, right in zip(table, expected, strict=True):
        off = (got[0].double() / gain - right).abs().max().item()
        assert off < (3e-7 if position <= 10**8 else 2e-6)


@pytest.mark.parametrize("position", [2**17, 2**21, 10**8, 2**31 - 1])
def test_a_base_a_head(position):
    rope = RoPE(DIM, scaling=nn.Sequential(MultiScale(3), PositionInterpolation(2)))
    cos, _ = rope.table(torch.tensor([position]))
    with mpmath.workdps(50):
        for head, base in enumerate(MultiScale(3).bases()):
            expected, _ = exact([t / 2 for t in geometric(base)], position)
            assert (cos[head, 0].double() - expected).abs().max() < (3e-7 if position <= 10**8 else 2e-6)


def test_a_frequency_is_right_to_a_few_roundings():
    """What the angles at 2³¹ − 1 rest on."""
    for name, (base, scaling, formula) in METHODS.items():
        with mpmath.workdps(50):
            expected = torch.tensor([float(t) for t in formula()], dtype=torch.float64)
        theta = RoPE(DIM, base=base, scaling=scaling).spectrum().theta
        assert torch.allclose(theta, expected, rtol=6 * math.ulp(1.0), atol=0), name
