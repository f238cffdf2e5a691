"""Sandwich: appendix E, far distances, and the index that its sum starts at."""

from __future__ import annotations

import mpmath
import pytest
import torch

from posenc import Sinusoidal
from posenc.bias import Sandwich
from tests.golden import load, names
from tests.samples import expect_golden, gap, refusals


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", names("sandwich_*"))
def test_bias_and_attention_of_appendix_e(name, dtype):
    arrays, tolerance = load(name, dtype), 1e-11 if dtype == torch.float64 else 1e-4
    sandwich = Sandwich(arrays["bias"].shape[1], dim=int(arrays["d_bar"]))
    positions = torch.arange(arrays["bias"].shape[-1]).to(dtype)
    assert gap(sandwich(positions, positions), arrays["bias"][0]) < tolerance
    expect_golden(arrays, [sandwich], tolerance, causal="mask_allowed" in arrays)


@pytest.mark.parametrize("start", [0, 1])
def test_a_million_tokens_away(start):
    actual = Sandwich(1, dim=8, start=start)(torch.tensor([2**20]), torch.tensor([0]))[0, 0, 0]
    with mpmath.workdps(40):
        waves = [mpmath.mpf(10_000) ** (mpmath.mpf(-2 * k) / 8) for k in range(start, start + 4)]
        expected = float(sum(mpmath.cos(2**20 * wave) for wave in waves) / 8)
    assert abs(actual.item() - expected) < 1e-6


def test_it_is_the_product_of_sinusoidal_embeddings():
    waves = Sinusoidal(16)(torch.zeros(1, 9, 16).double(), torch.arange(9))[0]
    positions = torch.arange(9).double()
    assert gap(Sandwich(8, dim=16)(positions, positions)[7], waves @ waves.T / 8) < 1e-12


test_refusals = refusals(
    {
        "dim": [lambda: Sandwich(2, dim=7)],
    }
)
