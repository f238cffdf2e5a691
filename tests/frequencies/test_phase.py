"""Angles at positions where float32 products have lost all digits."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mpf
from torch import nn

from posenc import Llama3, LongRoPE, NTKAware, PositionInterpolation, RoPE, YaRN
from posenc.frequencies import MultiScale, NTKByParts, PartNTK, Proportional, Resonance, phase
from posenc.frequencies.host import geometric
from posenc.frequencies.phase import Frequencies, TensorFrequencies, angles
from tests.samples import bounded

THETA = geometric(64, 500_000.0)
FREQUENCIES = Frequencies(THETA)


def exact(position, theta) -> tuple[list[float], list[float]]:
    """cos and sin of float64 frequencies at one position, right to float64."""
    with mpmath.workdps(50):
        products = [mpmath.mpf(position) * mpmath.mpf(t) for t in theta]
        return [float(mpmath.cos(a)) for a in products], [float(mpmath.sin(a)) for a in products]


def error(positions: torch.Tensor, dtype: torch.dtype) -> float:
    got = angles(positions, FREQUENCIES, dtype)
    worst = 0.0
    for row, position in zip(got, positions.tolist(), strict=True):
        cos, sin = (torch.tensor(side, dtype=torch.float64) for side in exact(position, THETA))
        worst = max(worst, (row.cos() - cos).abs().max().item(), (row.sin() - sin).abs().max().item())
    return worst


@bounded
@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=4))
def test_integers_are_exact_in_float32(positions):
    assert error(torch.tensor(positions), torch.float32) < 3e-7


@bounded
@given(st.lists(st.integers(-(2**24), 2**24), min_size=1, max_size=4))
def test_integers_are_exact_in_float64(positions):
    assert error(torch.tensor(positions), torch.float64) < 5e-12


@bounded
@given(st.lists(st.floats(-(2.0**21), 2.0**21, width=32), min_size=1, max_size=4))
def test_fractions(positions):
    assert error(torch.tensor(positions), torch.float32) < 3e-7
    assert error(torch.tensor(positions, dtype=torch.float64), torch.float64) < 1e-9


@pytest.mark.parametrize("gain", [1.0, 0.7, 1.2772588722239782, 40.0])
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "graph"])
def test_a_gain_costs_no_second_rounding(gain, traced, monkeypatch):
    """Against float64, at every kind of position; the angle used to be rounded twice, which gave 3.4e-7 and more."""
    generator = torch.Generator().manual_seed(0)
    far = torch.randint(-(2**40), 2**40, (5000,), generator=generator)
    between = (torch.rand(5000, generator=generator) * 2**21 - 2**20).float()
    for positions in (torch.arange(5000), far, between):
        device = positions.device
        wide = phase.cos_sin(angles(positions, FREQUENCIES, torch.float64), torch.float64, gain)
        with monkeypatch.context() as patch:
            patch.setattr(phase, "tracing", lambda: traced)
            narrow = angles(positions, FREQUENCIES, phase.working_dtype(torch.float32, device))
            narrow = phase.cos_sin(narrow, torch.float32, gain)
        for got, expected in zip(narrow, wide, strict=True):
            assert got.dtype == torch.float32
            off = (got.double() - expected).abs().max().item()
            assert off < (3e-7 if traced else 6e-8) * max(1.0, gain), positions.dtype


@pytest.mark.parametrize("kind", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_every_integer_type_counts(kind):
    positions = torch.tensor([0, 1, 100], dtype=kind)
    assert torch.equal(
        angles(positions, FREQUENCIES, torch.float32), angles(positions.long(), FREQUENCIES, torch.float32)
    )


def test_derivative_is_the_frequency():
    positions = torch.tensor([0.5, -3.25, 1000.75], dtype=torch.float64, requires_grad=True)
    jacobian = torch.autograd.functional.jacobian(lambda p: angles(p, FREQUENCIES, torch.float64).sum(0), positions)
    assert torch.allclose(jacobian, torch.tensor(THETA, dtype=torch.float64)[:, None].expand(-1, 3))


def test_frequencies_beyond_a_full_turn_wrap():
    fast = Frequencies([7.0, 100.25, -2.5])
    got = angles(torch.tensor([3]), fast, torch.float64)[0]
    cos, _ = exact(3, fast.theta)
    assert torch.allclose(got.cos(), torch.tensor(cos, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("reach", [2**10, 2**31, 2**40, 2**61])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_graphs_give_the_angles_of_eager_calls(reach, dtype, monkeypatch):
    """Compilers get a product in halves, in which nothing overflows; eager calls one product that wraps around."""
    frequencies = Frequencies(geometric(64, 10_000.0))
    positions = torch.randint(-reach, reach, (500,), generator=torch.Generator().manual_seed(0))
    edges = torch.tensor([0, 1, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1])
    positions = torch.cat([positions, edges])
    wrapped = angles(positions, frequencies, dtype)
    monkeypatch.setattr(phase, "tracing", lambda: True)
    halves = angles(positions, frequencies, dtype)
    tolerance = 1e-14 if dtype == torch.float64 else 3e-7
    assert (wrapped.cos() - halves.cos()).abs().max() < tolerance
    assert (wrapped.sin() - halves.sin()).abs().max() < tolerance


def test_gradient_of_learned_frequencies_between_positions():
    """d angle / d theta is the position, its fraction counted once."""
    theta = torch.tensor([0.3, 0.01], dtype=torch.float64, requires_grad=True)
    positions = torch.tensor([0.5, 3.25, -2.75], dtype=torch.float64)
    angles(positions, TensorFrequencies(theta), torch.float64).sum().backward()
    assert torch.allclose(theta.grad, positions.sum().expand(2))


# Angles of every fixed spectrum far out, against 50 digits that evaluate the method's own formula.


PAIRS, LENGTH = 32, 4096
DIM = 2 * PAIRS
LONG = [1.0 + 0.37 * j for j in range(PAIRS)]
Theta = list[mpf]


def powers(base: float) -> Theta:
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
    theta, aware = powers(base), ntk(powers(base), factor)
    first, second = by_index(base, 1.25, 0.75), by_index(base, 16, 2)
    mixed = [t / mpf(factor) * (1 - g) + a * g for t, a, g in zip(theta, aware, first, strict=True)]
    return [m * (1 - g) + t * g for m, t, g in zip(mixed, theta, second, strict=True)]


OPTIONS = {"original_length": LENGTH}
METHODS: dict[str, tuple[float, nn.Module | None, Callable[[], Theta]]] = {
    "rope": (1e4, None, lambda: powers(1e4)),
    "rope_5e5": (5e5, None, lambda: powers(5e5)),
    "linear": (1e4, PositionInterpolation(3.7), lambda: [t / mpf(3.7) for t in powers(1e4)]),
    "ntk": (1e4, NTKAware(6.5), lambda: ntk(powers(1e4), 6.5)),
    "ntk_by_parts": (1e4, NTKByParts(8, **OPTIONS), lambda: blend(powers(1e4), 8, by_turns(powers(1e4), 1, 32))),
    "part_ntk": (1e4, PartNTK(8, **OPTIONS), lambda: part_ntk(1e4, 8)),
    "yarn": (1e4, YaRN(16, **OPTIONS), lambda: blend(powers(1e4), 16, by_index(1e4, 32, 1))),
    "yarn_no_truncate": (
        1.5e5,
        YaRN(32, truncate=False, **OPTIONS),
        lambda: blend(powers(1.5e5), 32, by_index(1.5e5, 32, 1, truncate=False)),
    ),
    "yarn_rotations": (
        1e6,
        YaRN(4, ramp="rotations", **OPTIONS),
        lambda: blend(powers(1e6), 4, by_turns(powers(1e6), 1, 32)),
    ),
    "llama3": (5e5, Llama3(8, **OPTIONS), lambda: blend(powers(5e5), 8, by_turns(powers(5e5), 1, 4))),
    "longrope": (
        1e4,
        LongRoPE(LONG, LONG, factor=8, **OPTIONS),
        lambda: [t / mpf(f) for t, f in zip(powers(1e4), LONG, strict=True)],
    ),
    "resonance": (1e4, Resonance(), lambda: as_fractions(powers(1e4))),
    "resonance_yarn": (
        1e4,
        nn.Sequential(YaRN(16, **OPTIONS), Resonance()),
        lambda: as_fractions(blend(powers(1e4), 16, by_index(1e4, 32, 1))),
    ),
    "resonance_ntk": (1e4, nn.Sequential(NTKAware(4), Resonance()), lambda: as_fractions(ntk(powers(1e4), 4))),
    "proportional": (
        1e6,
        Proportional(0.25),
        lambda: [t if j < PAIRS // 4 else mpf(0) for j, t in enumerate(powers(1e6))],
    ),
}


def exact_table(theta: Theta, position: int) -> tuple[torch.Tensor, torch.Tensor]:
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
        expected = exact_table(formula(), position)
    for got, right in zip(table, expected, strict=True):
        off = (got[0].double() / gain - right).abs().max().item()
        assert off < (3e-7 if position <= 10**8 else 2e-6)


@pytest.mark.parametrize("position", [2**17, 2**21, 10**8, 2**31 - 1])
def test_a_base_a_head(position):
    rope = RoPE(DIM, scaling=nn.Sequential(MultiScale(3), PositionInterpolation(2)))
    cos, _ = rope.table(torch.tensor([position]))
    with mpmath.workdps(50):
        for head, base in enumerate(MultiScale(3).bases()):
            expected, _ = exact_table([t / 2 for t in powers(base)], position)
            assert (cos[head, 0].double() - expected).abs().max() < (3e-7 if position <= 10**8 else 2e-6)


def test_a_frequency_is_right_to_a_few_roundings():
    """What the angles at 2³¹ − 1 rest on."""
    for name, (base, scaling, formula) in METHODS.items():
        with mpmath.workdps(50):
            expected = torch.tensor([float(t) for t in formula()], dtype=torch.float64)
        theta = RoPE(DIM, base=base, scaling=scaling).spectrum().theta
        assert torch.allclose(theta, expected, rtol=6 * math.ulp(1.0), atol=0), name
