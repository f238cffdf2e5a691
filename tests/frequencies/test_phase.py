"""Angles at positions where float32 products have lost all digits."""

from __future__ import annotations

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.frequencies import phase
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
