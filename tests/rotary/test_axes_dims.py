"""Axial RoPE with axes of unequal width, and their scalings; RIFLEx and DyPE."""

from __future__ import annotations

import math

import pytest
import torch

from posenc import AxialRoPE, NTKAware, RoPE, YaRN
from posenc.frequencies import DyPE, PartNTK, RIFLEx
from posenc.positions import NO_POSITION, grid
from tests.samples import gap


@pytest.mark.parametrize("convention", ["rope-vit", "qwen-vl", "llama-4", "gemma-4"])
def test_conventions_keep_their_order_and_layout(convention: str) -> None:
    positions = grid(4, 5)
    q = torch.randn(1, 2, 20, 32, dtype=torch.float64)
    equal, by_dims = AxialRoPE(32, convention=convention), AxialRoPE(32, axes_dims=(16, 16), convention=convention)
    assert (
        gap(by_dims.rotate(q, by_dims.table(positions, like=q)), equal.rotate(q, equal.table(positions, like=q)))
        < 1e-13
    )


def test_a_scaling_for_one_axis_and_its_gain() -> None:
    yarn = YaRN(4.0, original_length=64)
    rope = AxialRoPE(32, axes_dims=(8, 24), scaling=(None, yarn), base=(256.0, 10_000.0))
    cos, sin = rope.table(
        torch.tensor([[3, 100], [NO_POSITION, NO_POSITION]]), like=torch.zeros(1, dtype=torch.float64)
    )
    times, columns = RoPE(8, base=256.0).spectrum().theta, RoPE(24, scaling=yarn).spectrum()
    assert gap(cos[0, :4], (3 * times).cos()) < 1e-13
    assert gap(sin[0, 4:], columns.gain * (100 * columns.theta).sin()) < 1e-12
    assert torch.equal(cos[1], torch.ones(16, dtype=torch.float64))  # no gain without a place
    one_for_all = AxialRoPE(32, axes_dims=(8, 24), scaling=NTKAware(2.0))
    assert one_for_all.scaling is not None
    assert len(one_for_all.scaling) == 2


def test_riflex_slows_one_pair_down() -> None:
    unscaled = RoPE(16, base=256.0).spectrum().theta
    theta = RoPE(16, base=256.0, scaling=RIFLEx(4, length=66)).spectrum().theta
    assert theta[3] == pytest.approx(0.9 * 2 * math.pi / 66)
    assert theta[3] * 66 < 2 * math.pi < unscaled[3] * 66
    assert gap(theta[[0, 1, 2, 4, 5, 6, 7]], unscaled[[0, 1, 2, 4, 5, 6, 7]]) == 0


def test_dype_at_the_ends_of_denoising() -> None:
    unscaled = RoPE(56).spectrum().theta
    part = RoPE(56, scaling=PartNTK(4.0, original_length=64)).spectrum().theta
    first, last = (RoPE(56, scaling=DyPE(256, timestep=timestep)).spectrum() for timestep in (1.0, 0.0))
    assert gap(first.theta, part) < 1e-15
    assert gap(last.theta, unscaled) == 0
    assert float(first.gain) == float(last.gain) == pytest.approx(0.1 * math.log(4) + 1)
    within = RoPE(56, scaling=DyPE(64, timestep=0.5)).spectrum()
    assert gap(within.theta, unscaled) == 0
    assert float(within.gain) == 1
