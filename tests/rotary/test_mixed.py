"""Mixed RoPE: random frames, directions that nothing draws, and given frequencies."""

from __future__ import annotations

import math

import pytest
import torch

from posenc.positions import grid
from posenc.rotary import MixedRoPE
from tests.samples import gap


@pytest.mark.parametrize("axes", [1, 2, 3, 5])
def test_random_frames_are_frames_and_drawn_anew(axes):
    rope = MixedRoPE(2 * axes, num_heads=6, axes=axes).double()  # one pair for each vector of a frame
    rope.reset_parameters()
    frames = rope.theta.detach().mT
    assert gap(frames @ frames.mT, torch.eye(axes, dtype=torch.float64).expand(6, -1, -1)) < 1e-12
    rope = MixedRoPE(14, num_heads=4, axes=axes)  # 7 pairs: the last vector of a frame has fewer
    first = rope.theta.detach().clone()
    sizes = first.norm(dim=1)
    share = math.ceil(7 / axes)
    expected = torch.tensor([10.0 ** (-(j % share) / share) for j in range(7)]).expand(4, -1)
    assert gap(sizes, expected) < 1e-6
    torch.manual_seed(1)
    rope.reset_parameters()
    again = rope.theta.detach().clone()
    assert axes == 1 or gap(first, again) > 1e-2
    torch.manual_seed(1)
    assert torch.equal(MixedRoPE(14, num_heads=4, axes=axes).theta, again)


def nearest(directions):
    """The smallest angle between any two lines along ``directions`` (n, axes)."""
    cos = (directions @ directions.mT).abs() - torch.eye(len(directions), dtype=torch.float64)
    return cos.max().clamp(max=1).acos().item()


def test_golden_directions_in_the_plane():
    """The angles are multiples of π(√5 − 1)/2, and no two of many lie much closer than in an even spread."""
    rope = MixedRoPE(16, num_heads=8, directions="golden")
    theta = rope.theta.detach().double().transpose(1, 2).flatten(0, 1)  # (heads · pairs, axes)
    sizes = theta.norm(dim=-1)
    assert gap(sizes, torch.tensor([10.0 ** (-j / 8) for j in range(8)], dtype=torch.float64).repeat(8)) < 1e-6
    k = torch.arange(64, dtype=torch.float64) * math.pi * (math.sqrt(5) - 1) / 2
    assert gap(theta / sizes[:, None], torch.stack([k.sin(), k.cos()], -1)) < 1e-6
    assert nearest(theta / sizes[:, None]) > 0.38 * math.pi / 64


@pytest.mark.parametrize(("axes", "heads"), [(3, 16), (4, 128)])
def test_golden_directions_spread_over_the_sphere(axes, heads):
    rope = MixedRoPE(32, num_heads=heads, axes=axes, directions="golden", learned=False)
    assert not list(rope.parameters())
    ahead = torch.eye(axes, dtype=torch.float64)  # tokens one unit along each axis
    cos, sin = rope.table(ahead, like=ahead)  # (heads, axes, pairs); frequencies are at most 1
    theta = torch.atan2(sin, cos).mT.flatten(0, 1)
    directions = theta / theta.norm(dim=-1, keepdim=True)
    even = torch.eye(axes, dtype=torch.float64) / axes
    assert gap(directions.mT @ directions / len(directions), even) < 0.0035  # random ones: 0.026 and 0.009, or so
    again = MixedRoPE(32, num_heads=heads, axes=axes, directions="golden", learned=False)
    assert all(torch.equal(a, b) for a, b in zip(rope.table(ahead), again.table(ahead), strict=True))


def test_given_frequencies_are_kept_and_written_back():
    inputs = torch.randn(2, 2, 4, dtype=torch.float64)
    rope = MixedRoPE(8, num_heads=6, num_kv_heads=2, frequencies=inputs)
    assert torch.equal(rope.theta, inputs.float())
    with torch.no_grad():
        rope.theta.zero_()
    rope.reset_parameters()
    assert torch.equal(rope.theta, inputs.float())
    fixed = MixedRoPE(8, num_heads=6, num_kv_heads=2, frequencies=inputs.tolist(), learned=False)
    assert not list(fixed.parameters())
    q, places = torch.randn(1, 2, 24, 8, dtype=torch.float64), grid(4, 6)
    angle = torch.einsum("haj,ta->htj", inputs, places.double())
    rotated = torch.view_as_complex(q.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angle), angle)
    assert gap(fixed.rotate(q, fixed.table(places, like=q)), torch.view_as_real(rotated).flatten(-2)) < 1e-12
