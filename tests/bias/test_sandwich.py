"""Sandwich: appendix E, far distances, and the index that its sum starts at."""

from __future__ import annotations

import mpmath
import pytest
import torch

from posenc.bias import Sandwich
from tests.samples import refusals


@pytest.mark.parametrize("start", [0, 1])
def test_a_million_tokens_away(start):
    actual = Sandwich(1, dim=8, start=start)(torch.tensor([2**20]), torch.tensor([0]))[0, 0, 0]
    with mpmath.workdps(40):
        waves = [mpmath.mpf(10_000) ** (mpmath.mpf(-2 * k) / 8) for k in range(start, start + 4)]
        expected = float(sum(mpmath.cos(2**20 * wave) for wave in waves) / 8)
    assert abs(actual.item() - expected) < 1e-6


test_refusals = refusals(
    {
        "dim": [lambda: Sandwich(2, dim=7)],
    }
)
