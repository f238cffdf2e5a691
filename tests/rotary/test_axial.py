"""Axial RoPE: the tables and rotations of each family of models."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

from posenc import AxialRoPE, RoPE, attention
from posenc.positions import NOWHERE, grid
from posenc.rotary.axial import CONVENTIONS
from tests.rotary.test_axes import golden, vision
from tests.samples import gap

CLS = torch.tensor([[NOWHERE, 0]])


def expect_rotated(rope, positions, arrays, tolerance, pairs=("q", "k")):
    for name in pairs:
        x = arrays[name]
        assert gap(rope.rotate(x, rope.table(positions)), arrays[f"{name}_rot"]) < tolerance


@golden("rope2d_axial__*")
def test_rope_vit(name):
    arrays, meta = vision(name)
    rope = AxialRoPE(meta["head_dim"], base=meta["theta"])
    positions = torch.stack([arrays["t_y"], arrays["t_x"]], -1).long()
    assert torch.equal(positions, grid(meta["end_y"], meta["end_x"]))
    cos, sin = rope.table(positions)
    assert max(gap(cos, arrays["cis_re"]), gap(sin, arrays["cis_im"])) < meta["tol"]
    expect_rotated(rope, positions, arrays, 1e-5)


@golden("rope2d_attention__*axial*")
def test_a_layer_of_rope_vit_with_a_class_token(name):
    arrays, meta = vision(name)
    rope = AxialRoPE(meta["dim"] // meta["heads"], base=meta["theta"])
    assert gap(layer(rope, arrays, meta), arrays["y"]) < meta["tol"]


def layer(rope, arrays, meta):
    """The layer of rope-vit's demonstration: one class token before the grid."""
    positions = torch.cat([CLS, grid(meta["grid"], meta["grid"])])
    q, k, v = (arrays["x"] @ arrays["qkv_w"].mT).unflatten(-1, (3, meta["heads"], -1)).permute(2, 0, 3, 1, 4)
    out = attention(q, k, v, [rope], q_pos=positions, k_pos=positions, causal=False)
    return out.transpose(1, 2).flatten(2) @ arrays["proj_w"].mT + arrays["proj_b"]


@golden("rope2d_qwen_vision__*")
def test_qwen_vision(name):
    arrays, meta = vision(name)
    rope = AxialRoPE(meta["head_dim"], convention="qwen-vl", base=meta["theta"])
    cos, sin = rope.table(arrays["position_ids"])
    assert max(gap(cos, arrays["cos"].chunk(2, -1)[0]), gap(sin, arrays["sin"].chunk(2, -1)[0])) < meta["tol"]
    arrays = {key: x.transpose(0, 1)[None] if key in ("q", "k", "q_rot", "k_rot") else x for key, x in arrays.items()}
    expect_rotated(rope, arrays["position_ids"], arrays, 5e-5)


@golden("rope2d_dinov3__*")
def test_dinov3(name):
    arrays, meta = vision(name)
    sizes = torch.tensor([meta["H"], meta["W"]])
    by = {"min": sizes.min(), "max": sizes.max()}.get(meta.get("normalize_coords"), sizes)
    places = 2 * (grid(meta["H"], meta["W"]) + 0.5) / by - 1
    positions = torch.cat([torch.tensor([[NOWHERE, 0.0], [NOWHERE, 1.0]]), places])
    periods = {word: meta[word] for word in ("min_period", "max_period") if word in meta}
    rope = AxialRoPE(meta["head_dim"], convention="dinov3", base=meta["base"], **periods)
    cos, sin = rope.table(places)
    assert max(gap(cos, arrays["cos"].chunk(2, -1)[0]), gap(sin, arrays["sin"].chunk(2, -1)[0])) < meta["tol"]
    found = torch.as_tensor(rope._frequencies.theta, dtype=torch.float64)
    assert gap(2 * math.pi / found, arrays["periods"]) < 1e-6 * arrays["periods"].max()
    assert gap(rope.rotate(arrays["x"], rope.table(positions)), arrays["x_rot"]) < 1e-5
    assert "periods=" in repr(rope) if periods else "base=100" in repr(rope)


@golden("rope2d_eva_timm__*")
def test_eva(name):
    arrays, meta = vision(name)
    size, trained = torch.tensor(meta["feat_shape"]), torch.tensor(meta["ref_feat_shape"])
    positions = grid(*meta["feat_shape"]) / size * trained
    rope = AxialRoPE(meta["head_dim"], convention="eva-02", base=meta["temperature"])
    cos, sin = rope.table(positions)
    assert max(gap(cos, arrays["cos"][:, ::2]), gap(sin, arrays["sin"][:, ::2])) < meta["tol"]
    assert gap(rope.rotate(arrays["x"], rope.table(positions)), arrays["x_rot"]) < 1e-5


def expect_angles(rope, positions, angle):
    cos, sin = rope.table(positions, like=angle)
    assert max(gap(cos, angle.cos()), gap(sin, angle.sin())) < 1e-12


def test_pixtral_deals_out_one_list():
    """transformers' and mistral-inference's formula: even frequencies for rows, odd ones for columns."""
    positions, dim = grid(3, 5), 16
    theta = 10_000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    row, column = positions.double().unbind(-1)
    angle = torch.cat([row[:, None] * theta[::2], column[:, None] * theta[1::2]], -1)
    for layout in ("half", "interleaved"):
        rope = AxialRoPE(dim, convention="pixtral", layout=layout)
        expect_angles(rope, positions, angle)
        x = torch.randn(1, 1, 15, dim)
        turned = RoPE(dim, layout=layout).rotate(x, rope.table(positions))
        assert torch.equal(rope.rotate(x, rope.table(positions)), turned)


def test_llama_4_counts_from_one():
    """transformers' formula; its class token comes last and has the angle 0."""
    positions, dim = grid(3, 5), 16
    theta = 10_000.0 ** (-torch.arange(0, dim // 2, 2, dtype=torch.float64) / (dim // 2))
    row, column = (positions.double() + 1).unbind(-1)
    angle = torch.cat([column[:, None] * theta, row[:, None] * theta], -1)
    angle = torch.cat([angle, torch.zeros_like(angle[:1])])
    expect_angles(AxialRoPE(dim, convention="llama-4"), torch.cat([positions, CLS]), angle)


def test_sam_2_is_rope_vit_with_another_base():
    one, other = AxialRoPE(16, convention="sam-2"), AxialRoPE(16, base=10_000.0)
    assert all(torch.equal(a, b) for a, b in zip(one.table(grid(3, 5)), other.table(grid(3, 5)), strict=True))
    assert one.layout == other.layout == "interleaved"


@pytest.mark.parametrize("convention", [c for c in CONVENTIONS if c not in ("llama-4", "dinov3", "v-jepa-2")])
def test_one_axis_is_rope(convention):
    layout = CONVENTIONS[convention].layout
    axial, rope = AxialRoPE(16, axes=1, convention=convention, base=500.0), RoPE(16, base=500.0, layout=layout)
    positions, x = torch.tensor([[0, 7, 2**40], [-3, 5, 1]]), torch.randn(2, 3, 3, 16)
    assert torch.equal(axial.rotate(x, axial.table(positions)), rope.rotate(x, rope.table(positions)))


@pytest.mark.parametrize("axes", [2, 3, 4])
def test_far_coordinates_are_exact(axes):
    far = [2**17, 10**8, -(2**31) + 1, 3][:axes]
    rope = AxialRoPE(4 * axes, axes=axes, convention="qwen-vl")
    with mpmath.workdps(50):
        angle = [p * mpmath.mpf(10_000) ** (mpmath.mpf(-t) / 2) for p in far for t in range(2)]
        wanted = [[float(f(a)) for a in angle] for f in (mpmath.cos, mpmath.sin)]
    for found, exact in zip(rope.table(torch.tensor([far])), wanted, strict=True):
        assert gap(found[0], torch.tensor(exact)) < 3e-7


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: AxialRoPE(10), "head_dim must be a multiple of 2 * axes = 4 for 'rope-vit' with 2 axes, got 10"),
        (lambda: AxialRoPE(8, axes=3), "head_dim must be a multiple of 2 * axes = 6"),
        (lambda: AxialRoPE(4, axes=3, convention="v-jepa-2"), "head_dim must be even and at least 6"),
        (lambda: AxialRoPE(9, axes=3, convention="v-jepa-2"), "head_dim must be even and at least 6"),
        (lambda: AxialRoPE(12, convention="v-jepa-2"), "axes must be 3 for 'v-jepa-2', got 2"),
        (lambda: AxialRoPE(12, axes=0), "axes must be at least 1"),
        (lambda: AxialRoPE(8, convention="vit"), "convention must be one of"),
        (lambda: AxialRoPE(8, layout="neox"), "layout must be one of"),
        (lambda: AxialRoPE(8, base=1.0), "base must be"),
        (lambda: AxialRoPE(8, min_period=1.0, max_period=2.0), "belong to convention='dinov3'"),
        (lambda: AxialRoPE(8, convention="dinov3", min_period=1.0), "both of them"),
        (lambda: AxialRoPE(8, convention="dinov3", min_period=1.0, max_period=2.0, base=3.0), "without a base"),
        (lambda: AxialRoPE(8, convention="dinov3", min_period=0.0, max_period=2.0), "min_period must be"),
        (lambda: AxialRoPE(8, convention="dinov3", min_period=1.0, max_period=math.inf), "max_period must be"),
    ],
)
def test_refusals_name_the_argument(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


def test_a_shift_of_fractional_positions_keeps_their_digits():
    """Llama-4 counts from 1: a float32 fraction plus 1 has more digits than float32."""
    axial, x = AxialRoPE(8, convention="llama-4"), torch.randn(1, 1, 50, 8, dtype=torch.float64)
    places = torch.rand(50, 2) - 0.5
    got, wanted = (axial.rotate(x, axial.table(p, like=x)) for p in (places, places.double()))
    assert gap(got, wanted) < 1e-14
