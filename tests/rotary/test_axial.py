"""Rotations by several coordinates: tokens without a place, learned angles, layouts, one coordinate."""

from __future__ import annotations

import pytest
import torch

from posenc import AxialRoPE, MRoPE, YaRN
from posenc.positions import NO_POSITION, grid, with_prefix, with_suffix
from posenc.rotary import MixedRoPE, VJEPARoPE
from tests.samples import gap, qkv


def test_a_shift_of_fractional_positions_keeps_their_digits():
    """Llama-4 counts from 1: a float32 fraction plus 1 has more digits than float32."""
    axial, x = AxialRoPE(8, convention="llama-4"), torch.randn(1, 1, 50, 8, dtype=torch.float64)
    places = torch.rand(50, 2) - 0.5
    got, expected = (axial.rotate(x, axial.table(p, like=x)) for p in (places, places.double()))
    assert gap(got, expected) < 1e-14


def test_learned_angles_belong_to_tokens_that_have_a_number():
    """Of three tokens without a place two have a row; with one coordinate there is one such token."""
    rope, still = AxialRoPE(8, prefix=2), AxialRoPE(8)
    places = torch.stack([with_prefix(grid(2, 2), 3), with_suffix(grid(2, 2), 3)])
    cos, sin = rope.table(places)
    assert torch.equal(cos[1, 4:6], rope.angles.double().cos().float())
    assert torch.equal(sin[0, :2], rope.angles.double().sin().float())
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[0, :2] = mask[1, 4:6] = False
    assert torch.equal(cos[mask], still.table(places)[0][mask])
    line = AxialRoPE(4, axes=1, prefix=1)
    assert torch.equal(line.table(torch.tensor([3, NO_POSITION]))[1][1], line.angles[0].double().sin().float())


def test_half_by_axis_is_a_permutation_of_half():
    rope, half = (AxialRoPE(24, axes=3, convention="qwen-vl", layout=layout) for layout in ("half-by-axis", "half"))
    order = torch.arange(24).view(3, 2, 4).transpose(0, 1).flatten()  # axis by axis, as halves of all
    for dtype, tokens in ((torch.float64, 24), (torch.bfloat16, 24), (torch.float32, 6000)):
        x, places = torch.randn(2, 2, tokens, 24).to(dtype).requires_grad_(), torch.randint(0, 99, (tokens, 3))
        expected = half.rotate(x[..., order], half.table(places, like=x))
        actual = rope.rotate(x, rope.table(places, like=x))
        assert actual.dtype == dtype
        assert gap(actual[..., order], expected) < 1e-6
        actual.float().pow(3).sum().backward()
        assert torch.isfinite(x.grad).all()


HEADS, DIM = 4, 12


def test_no_gain_without_a_place():
    """Beside a gain on all others."""
    rope = MRoPE(12, sections=(2, 2, 2), scaling=YaRN(4.0, original_length=64))
    cos, _ = rope.table(torch.tensor([[NO_POSITION, 0, 0], [0, 0, 0]]))
    assert torch.equal(cos[0], torch.ones(6))
    assert (cos[1] > 1.1).all()


@pytest.mark.parametrize("kind", ["axial", "mixed"])
def test_one_coordinate_with_its_axis(kind):
    """(tokens, 1) is not a batch of single tokens: read so, it broadcast to tokens × tokens."""
    rope = AxialRoPE(DIM, axes=1) if kind == "axial" else MixedRoPE(DIM, num_heads=HEADS, axes=1)
    at = torch.arange(6)
    q, k, _ = qkv(2, HEADS, 6, head_dim=DIM, num_kv_heads=HEADS)
    expected = rope(q, k, at, at)
    for positions in (at[:, None], at[None], at[None, :, None], at.expand(2, 6)[..., None]):
        for x, y in zip(rope(q, k, positions, positions), expected, strict=True):
            assert torch.equal(x, y)
    assert gap(rope(q[:, :, 2:], k, at[2:, None], at[:, None])[0], expected[0][:, :, 2:]) < 1e-6
    step = torch.tensor([[3], [5]])  # the next token of each row
    rotated = rope(q[:, :, :1], k[:, :, :1], step, step)[0]
    assert gap(rotated[1], rope(q[1:, :, :1], k[1:, :, :1], step[1], step[1])[0][0]) < 1e-6
    with pytest.raises(ValueError, match="positions"):
        rope.table(torch.zeros(2, 6, 2))


@pytest.mark.parametrize("head_dim", [6, 8, 64, 80])
def test_the_fixed_form_of_v_jepa_is_axial_rope_by_its_convention(head_dim):
    rope, axial = VJEPARoPE(head_dim), AxialRoPE(head_dim, axes=3, convention="v-jepa-2")
    x, positions = torch.randn(1, 2, 24, head_dim), grid(2, 3, 4)
    assert torch.equal(rope.rotate(x, rope.table(positions)), axial.rotate(x, axial.table(positions)))
