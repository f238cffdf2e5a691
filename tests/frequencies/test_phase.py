"""Angles at positions where float32 products have lost all digits."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.frequencies import phase
from posenc.frequencies.phase import Frequencies, TensorFrequencies, angles
from posenc.frequencies.spectrum import geometric
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
    assert error(torch.tensor(positions), torch.float32) < 5e-7
    assert error(torch.tensor(positions, dtype=torch.float64), torch.float64) < 1e-9


def test_whole_floats_equal_integers():
    integers = torch.tensor([-7, 0, 3, 2**23])
    assert torch.equal(
        angles(integers, FREQUENCIES, torch.float32), angles(integers.float(), FREQUENCIES, torch.float32)
    )


@pytest.mark.parametrize("kind", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_every_integer_type_counts(kind):
    positions = torch.tensor([0, 1, 100], dtype=kind)
    assert torch.equal(
        angles(positions, FREQUENCIES, torch.float32), angles(positions.long(), FREQUENCIES, torch.float32)
    )


def test_angles_of_integers_stay_within_a_turn():
    got = angles(torch.randint(-(2**62), 2**62, (100,)), FREQUENCIES, torch.float32)
    assert got.abs().max() <= math.pi + 1e-6


def test_derivative_is_the_frequency():
    positions = torch.tensor([0.5, -3.25, 1000.75], dtype=torch.float64, requires_grad=True)
    jacobian = torch.autograd.functional.jacobian(lambda p: angles(p, FREQUENCIES, torch.float64).sum(0), positions)
    assert torch.allclose(jacobian, torch.tensor(THETA, dtype=torch.float64)[:, None].expand(-1, 3))


def test_frequencies_beyond_a_turn_wrap():
    fast = Frequencies([7.0, 100.25, -2.5])
    got = angles(torch.tensor([3]), fast, torch.float64)[0]
    cos, _ = exact(3, fast.theta)
    assert torch.allclose(got.cos(), torch.tensor(cos, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("reach", [2**10, 2**31, 2**40, 2**61])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_halves_give_what_wrapping_gives(reach, dtype):
    """The form for compilers, in which nothing overflows, against the wrapping product."""
    fractions = Frequencies(geometric(64, 10_000.0)).fractions(torch.device("cpu"))
    positions = torch.randint(-reach, reach, (500,), generator=torch.Generator().manual_seed(0))
    edges = torch.tensor([0, 1, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1])
    positions = torch.cat([positions, edges]).unsqueeze(-1)
    wrapped, halves = (f(positions, fractions, dtype) for f in (phase._whole_angles, phase._angles_by_halves))
    tolerance = 1e-14 if dtype == torch.float64 else 5e-7
    assert (wrapped.cos() - halves.cos()).abs().max() < tolerance
    assert (wrapped.sin() - halves.sin()).abs().max() < tolerance


def test_gradient_of_learned_frequencies_between_positions():
    """d angle / d theta is the position, its fraction counted once."""
    theta = torch.tensor([0.3, 0.01], dtype=torch.float64, requires_grad=True)
    positions = torch.tensor([0.5, 3.25, -2.75], dtype=torch.float64)
    angles(positions, TensorFrequencies(theta), torch.float64).sum().backward()
    assert torch.allclose(theta.grad, positions.sum().expand(2))
