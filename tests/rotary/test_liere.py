"""LieRE: its first values."""

from __future__ import annotations

import math

from posenc.rotary import LieRE


def test_first_generators_are_uniform():
    liere = LieRE(64, num_heads=8).requires_grad_(False)
    assert liere.generators.shape == (2, 8, 1, 64 * 63 // 2)
    assert 0 <= float(liere.generators.min()) < 0.1
    assert 2 * math.pi - 0.1 < float(liere.generators.max()) <= 2 * math.pi
    assert LieRE(16, num_heads=2, init_scale=0.5).generators.max().item() <= 0.5
    assert not LieRE(16, num_heads=2, init_scale=0.0).generators.any()
