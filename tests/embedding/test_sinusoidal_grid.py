"""Sinusoids of grids: concatenated, of videos, far away."""

from __future__ import annotations

import mpmath
import pytest
import torch

from posenc.embedding import SinusoidalGrid
from posenc.positions import grid, signed, with_prefix
from tests.samples import gap, refusals

FAMILIES = ("mae", "simplevit", "interleaved", "timm")


def both(encoding, positions):
    """The encoding in float64, which that in float32 must equal."""
    wide = encoding.encode(positions, torch.float64)
    assert gap(encoding.encode(positions), wide) < 3e-7
    return wide


def test_perceiver_appends_positions_to_tokens():
    encoding = SinusoidalGrid(258, family="perceiver", resolution=224, combine="concat")
    x, places = torch.randn(2, 7, 3), with_prefix(signed(grid(2, 3), (2, 3), corners=True))
    out = encoding(x, places)
    assert torch.equal(out[..., :3], x)
    assert torch.equal(out[..., 3:5][:, 1:], places[1:].expand(2, 6, 2))
    assert not out[:, 0, 3:].any()
    baseline = SinusoidalGrid(8, combine="concat")
    assert torch.equal(baseline(x, grid(1, 7))[..., 3:], baseline.encode(grid(1, 7)).expand(2, 7, 8))


def test_videos_put_the_last_axis_first():
    """vit-pytorch's posemb_sincos_3d: column, row, frame; sine and cosine of each."""
    positions = grid(2, 3, 4)
    theta = 10_000.0 ** -(torch.arange(3, dtype=torch.float64) / 2)
    expected = torch.cat(
        [wave(positions[:, axis, None] * theta) for axis in (2, 1, 0) for wave in (torch.sin, torch.cos)], -1
    )
    assert gap(both(SinusoidalGrid(18, axes=3, family="simplevit"), positions), expected) < 1e-12


@pytest.mark.parametrize("position", [(2**17, -(2**21)), (10**8, 2**31 - 1)])
@pytest.mark.parametrize("family", FAMILIES)
def test_exact_far_away(family, position):
    dim, pairs = 32, 8
    below = pairs - 1 if family == "simplevit" else pairs
    with mpmath.workdps(50):
        theta = [mpmath.mpf(10_000) ** (mpmath.mpf(-i) / below) for i in range(pairs)]
        sin, cos = (
            torch.tensor([[float(f(p * t)) for t in theta] for p in position]) for f in (mpmath.sin, mpmath.cos)
        )
    order = {
        "timm": torch.cat([sin.flatten(), cos.flatten()]),
        "interleaved": torch.stack([sin, cos], -1).flatten(),
    }.get(family, torch.cat([sin[1], cos[1], sin[0], cos[0]]))
    encoding = SinusoidalGrid(dim, family=family)
    assert gap(encoding.encode(torch.tensor([position]))[0], order) < 3e-7
    assert torch.equal(encoding.bfloat16().encode(torch.tensor([position])), encoding.encode(torch.tensor([position])))


test_refusals = refusals(
    {
        "dim": [
            lambda: SinusoidalGrid(10),
            lambda: SinusoidalGrid(8, axes=3, family="timm"),
            lambda: SinusoidalGrid(4, family="simplevit"),
            lambda: SinusoidalGrid(8, family="perceiver", resolution=9),
        ],
        "base": [lambda: SinusoidalGrid(8, base=1.0)],
        "resolution": [
            lambda: SinusoidalGrid(8, resolution=9),
            lambda: SinusoidalGrid(10, family="perceiver"),
            lambda: SinusoidalGrid(10, family="perceiver", resolution=9, base=9.0),
            lambda: SinusoidalGrid(10, family="perceiver", resolution=(9, 0)),
            lambda: SinusoidalGrid(10, family="perceiver", resolution=(9,)),
        ],
        "x": [lambda: SinusoidalGrid(8)(torch.zeros(1, 4, 6), grid(2, 2))],
        "positions": [
            lambda: SinusoidalGrid(8)(torch.zeros(1, 4, 8), torch.arange(4)),
            lambda: SinusoidalGrid(8)(torch.zeros(1, 4, 8), grid(2, 2, 1)),
            lambda: SinusoidalGrid(8)(torch.zeros(1, 4, 8), grid(2, 3)),
            lambda: SinusoidalGrid(8).encode(grid(2, 2, 1)),
            lambda: SinusoidalGrid(8).encode(grid(2, 2).half()),
        ],
    }
)
