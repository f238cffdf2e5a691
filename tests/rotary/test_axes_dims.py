"""Axial RoPE with axes of unequal width: their scalings, and what is refused; RIFLEx and DyPE."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from posenc import AxialRoPE, DynamicNTK, NTKAware, RoPE, YaRN
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"axes_dims": (16, 56)}, "axes_dims must be even and add up to head_dim = 128, or give rotary_dim"),
        ({"axes_dims": (15, 57, 56)}, "axes_dims must be even"),
        ({"axes_dims": (16, 56, 56), "axes": 3}, "give axes or axes_dims, not both"),
        ({"axes_dims": (16, 56, 56), "rotary_dim": 96}, "add up to rotary_dim = 96"),
        ({"axes_dims": 3}, "axes_dims must be a list or tuple"),
        ({"axes": 3, "rotary_dim": 100}, "multiple of 2 * axes"),
        ({"axes_dims": (64, 64), "convention": "pixtral"}, "pairs of its own"),
        ({"axes_dims": (64, 64), "base": (10.0, 20.0, 30.0)}, "one for each of 2 axes"),
        ({"axes_dims": (64, 64), "base": 0.5}, "base must be a finite number above 1"),
        ({"axes_dims": (64, 64), "scaling": (None,)}, "one or None for each of 2"),
        ({"axes_dims": (64, 64), "scaling": DynamicNTK(original_length=64)}, "must follow no length"),
        ({"axes_dims": (64, 64), "scaling": (3, None)}, "must be a Scaling"),
        ({"axes_dims": (64, 64), "frequencies": [1.0] * 32}, "go with a base"),
        ({"base": (10.0, 20.0)}, "base must be one number"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as error:
        AxialRoPE(128, **arguments)
    assert words in str(error.value)


def test_riflex_slows_one_pair_down() -> None:
    unscaled = RoPE(16, base=256.0).spectrum().theta
    theta = RoPE(16, base=256.0, scaling=RIFLEx(4, length=66)).spectrum().theta
    assert theta[3] == pytest.approx(0.9 * 2 * math.pi / 66)
    assert theta[3] * 66 < 2 * math.pi < unscaled[3] * 66
    assert gap(theta[[0, 1, 2, 4, 5, 6, 7]], unscaled[[0, 1, 2, 4, 5, 6, 7]]) == 0
    with pytest.raises(ValueError, match="k must be one of the 8 pairs"):
        RoPE(16, scaling=RIFLEx(9, length=66))


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
    for arguments, word in [
        ({"timestep": 1.5}, "timestep"),
        ({"method": "pi"}, "method"),
        ({"original_length": 0}, "original"),
    ]:
        with pytest.raises(ValueError, match=word):
            DyPE(128, **arguments)
