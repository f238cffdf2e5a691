"""LieRE: relative only where generators commute; its first values."""

from __future__ import annotations

import math

import pytest
import torch

from posenc.rotary import LieRE
from tests.samples import gap, refusals


def whole_rotation(liere, position):
    """R(position) of each head, float64 ``(heads, head_dim, head_dim)``."""
    width = liere.head_dim
    x = torch.eye(width, dtype=torch.float64).expand(1, liere.num_heads, width, width)
    at = position.expand(width, -1) if liere.axes > 1 else position.expand(width)
    return liere.rotate(x, liere.table(at, like=x))[0].mT.detach()


@pytest.mark.parametrize("block", [4, 8, 64])
def test_not_relative_in_larger_blocks_over_two_axes(block):
    liere = LieRE(64, num_heads=1, block=block).double()
    x, y = torch.tensor([0.3, 0.9], dtype=torch.float64), torch.tensor([0.8, 0.1], dtype=torch.float64)
    of_x, of_y, between = (whole_rotation(liere, at) for at in (x, y, y - x))
    assert gap(of_x.mT @ of_y, between) > 0.1
    assert gap(of_x.mT @ of_x, torch.eye(64, dtype=torch.float64)[None]) < 1e-12


def test_first_generators_are_uniform():
    liere = LieRE(64, num_heads=8).requires_grad_(False)
    assert liere.generators.shape == (2, 8, 1, 64 * 63 // 2)
    assert 0 <= float(liere.generators.min()) < 0.1
    assert 2 * math.pi - 0.1 < float(liere.generators.max()) <= 2 * math.pi
    assert LieRE(16, num_heads=2, init_scale=0.5).generators.max().item() <= 0.5
    assert not LieRE(16, num_heads=2, init_scale=0.0).generators.any()


test_refusals = refusals(
    {
        "block": [lambda: LieRE(7, num_heads=2), lambda: LieRE(8, num_heads=2, block=16)],
        "num_kv_heads": [
            lambda: LieRE(8, num_heads=4, num_kv_heads=3),
            lambda: LieRE(8, num_heads=4).rotate(
                torch.zeros(1, 2, 3, 8), LieRE(8, num_heads=4).table(torch.rand(3, 2))
            ),
            lambda: LieRE(8, num_heads=4).rotate(
                torch.zeros(1, 8, 3, 8), LieRE(8, num_heads=4).table(torch.rand(3, 2))
            ),
        ],
        "params": [lambda: LieRE(8, num_heads=2).from_official(torch.zeros(2, 3, 8, 8))],
        "head_dim": [
            lambda: LieRE(8, num_heads=4).rotate(torch.zeros(1, 4, 3, 9), LieRE(8, num_heads=4).table(torch.rand(3, 2)))
        ],
        "positions": [lambda: LieRE(8, num_heads=4).table(torch.rand(3))],
    }
)
