"""Frequencies on the host, against 50 digits."""

from __future__ import annotations

import mpmath
import pytest
import torch

from posenc import RoPE, create_encoding
from posenc.catalogue import CATALOGUE
from posenc.frequencies.host import geometric, turns
from posenc.frequencies.spectrum import host_float64


@pytest.mark.parametrize("base", [10_000.0, 500_000.0, 1e6, 1.5, 123.456])
@pytest.mark.parametrize("dim", [2, 7, 64, 128])
def test_geometric_is_correctly_rounded(dim, base):
    with mpmath.workdps(50):
        exact = [float(mpmath.mpf(base) ** (mpmath.mpf(-2 * j) / dim)) for j in range((dim + 1) // 2)]
    assert geometric(dim, base) == exact


def test_denominator():
    theta = geometric(8, 10_000.0, denominator=6)
    assert theta[0] == 1.0
    assert theta[-1] == pytest.approx(1e-4, rel=1e-15), "the last one reaches the base exactly"


def test_fractions_of_a_full_turn_are_fixed_point():
    for theta in (1.0, 1e-4, 3.3, 6.283185307179586, 7.0, -0.5):
        with mpmath.workdps(60):
            fraction = mpmath.mpf(theta) / (2 * mpmath.pi)
            exact = int(mpmath.nint(fraction * 2**64))
        (got,) = turns([theta])
        assert -(2**63) <= got < 2**63
        assert (got - exact) % 2**64 == 0


def test_the_host_keeps_its_digits():
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("meta"):
            values = host_float64([1 / 3])
            spectrum = RoPE(8).spectrum()
    finally:
        torch.set_default_dtype(before)
    assert (values.dtype, values.device.type, values.item()) == (torch.float64, "cpu", 1 / 3)
    assert spectrum.theta.tolist() == geometric(8, 10_000.0)


@pytest.mark.parametrize("name", [n for n, entry in CATALOGUE.items() if isinstance(entry.scaling, type)])
def test_the_gain_is_always_a_tensor(name):
    """Without axes for one length, like the lengths for several, whatever the scaling does."""
    rope = create_encoding(name, head_dim=16, num_heads=4, train_length=8)
    assert isinstance(rope, RoPE)
    for length in (None, 4, 100):
        gain = rope.spectrum(length).gain
        assert (gain.dtype, gain.device.type, gain.ndim) == (torch.float64, "cpu", 0)
