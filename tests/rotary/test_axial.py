"""Axial RoPE: the tables and rotations of each family of models."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

from posenc import AxialRoPE, RoPE, attention
from posenc.positions import NOWHERE, grid, rescaled, with_prefix, with_suffix
from tests.rotary.test_axes import golden, vision
from tests.samples import gap, refusals

CLS = torch.tensor([[NOWHERE, 0]])
SHIFTED = ("llama-4", "efficient-loftr")  # whose coordinates count from 1


def frequencies_of(rope):
    """Radians per unit of each axis, float64 ``(axes, pairs)``, read off tokens a 64th of a unit along one axis."""
    origin = torch.full((rope.axes, rope.axes), -float(rope.convention in SHIFTED), dtype=torch.float64)
    cos, sin = rope.table(origin + torch.eye(rope.axes, dtype=torch.float64) / 64, like=origin)
    return torch.stack([angle[angle != 0] * 64 for angle in torch.atan2(sin, cos)])


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
    for of_axis in frequencies_of(rope):
        assert gap(2 * math.pi / of_axis, arrays["periods"]) < 1e-6 * arrays["periods"].max()
    assert gap(rope.rotate(arrays["x"], rope.table(positions)), arrays["x_rot"]) < 1e-5


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
        rotated = RoPE(dim, layout=layout).rotate(x, rope.table(positions))
        assert torch.equal(rope.rotate(x, rope.table(positions)), rotated)


@pytest.mark.parametrize("axes", [2, 3, 4])
def test_far_coordinates_are_exact(axes):
    far = [2**17, 10**8, -(2**31) + 1, 3][:axes]
    rope = AxialRoPE(4 * axes, axes=axes, convention="qwen-vl")
    with mpmath.workdps(50):
        angle = [p * mpmath.mpf(10_000) ** (mpmath.mpf(-t) / 2) for p in far for t in range(2)]
        expected = [[float(f(a)) for a in angle] for f in (mpmath.cos, mpmath.sin)]
    for actual, exact in zip(rope.table(torch.tensor([far])), expected, strict=True):
        assert gap(actual[0], torch.tensor(exact)) < 3e-7


test_refusals = refusals(
    {
        "head_dim": [
            lambda: AxialRoPE(10),
            lambda: AxialRoPE(8, axes=3),
            lambda: AxialRoPE(4, axes=3, convention="v-jepa-2"),
            lambda: AxialRoPE(9, axes=3, convention="v-jepa-2"),
        ],
        "base": [
            lambda: AxialRoPE(8, base=1.0),
            lambda: AxialRoPE(8, convention="dinov3", min_period=1.0, max_period=2.0, base=3.0),
        ],
        "convention": [lambda: AxialRoPE(8, min_period=1.0, max_period=2.0)],
        "min_period": [
            lambda: AxialRoPE(8, convention="dinov3", min_period=1.0),
            lambda: AxialRoPE(8, convention="dinov3", min_period=0.0, max_period=2.0),
        ],
    }
)


def test_a_shift_of_fractional_positions_keeps_their_digits():
    """Llama-4 counts from 1: a float32 fraction plus 1 has more digits than float32."""
    axial, x = AxialRoPE(8, convention="llama-4"), torch.randn(1, 1, 50, 8, dtype=torch.float64)
    places = torch.rand(50, 2) - 0.5
    got, expected = (axial.rotate(x, axial.table(p, like=x)) for p in (places, places.double()))
    assert gap(got, expected) < 1e-14


@pytest.mark.parametrize(
    ("name", "convention"),
    [("gemma4__d24_3x5", "gemma-4"), ("kimi_k25__d24_3x5", "kimi-k2.5"), ("llama4__d24_4x4", "llama-4"),
     ("efficientloftr__d48_3x5", "efficient-loftr")],
)  # fmt: skip
def test_models_of_transformers(name, convention):
    arrays, meta = vision(f"rope2d_{name}")
    x, expected = arrays["x"].transpose(1, 2), arrays["x_rot"].transpose(1, 2)
    places = grid(*meta["sizes"])
    places = with_suffix(places) if convention == "llama-4" else places
    rope = AxialRoPE(x.shape[-1], convention=convention)
    assert gap(rope.rotate(x, rope.table(places)), expected) < 2e-6
    assert gap(rope(x, x, places, places)[1], expected) < 2e-6


def test_sam_2_leaves_pointers_as_they_are():
    """Its memory: the tokens of several pictures, and the pointers behind them."""
    arrays, meta = vision("rope2d_sam2__d16_3x5")
    rope, places = AxialRoPE(16, convention="sam-2"), grid(*meta["sizes"])
    memory = with_suffix(places.repeat(meta["frames"], 1), meta["pointers"])
    got = rope(arrays["q"], arrays["k"], places, memory)
    assert max(gap(got[0], arrays["q_rot"]), gap(got[1], arrays["k_rot"])) < 2e-6
    assert torch.equal(got[1][..., -4:, :], arrays["k"][..., -4:, :])


def mlcd():
    arrays, meta = vision("rope2d_mlcd__d16_3x5")
    rope = AxialRoPE(16, convention="qwen-vl", prefix=1)
    rope.angles.data = arrays["angles"]
    return rope, arrays, meta


def test_the_class_token_of_mlcd_has_angles_of_its_own():
    rope, arrays, meta = mlcd()
    x, places = arrays["x"].transpose(1, 2), with_prefix(grid(*meta["sizes"]))
    assert gap(rope.rotate(x, rope.table(places)), arrays["x_rot"].transpose(1, 2)) < 2e-6
    assert list(rope.state_dict()) == ["angles"]


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
    assert torch.equal(line.table(torch.tensor([3, NOWHERE]))[1][1], line.angles[0].double().sin().float())


def test_visionllama_deals_out_complex_numbers_column_first():
    """The authors' formula: x and y alternate, neighbouring channels pair up; `rescaled` is their auto-scaling."""
    places, dim = rescaled(grid(3, 5).double(), (3, 5), 14), 16
    theta = 10_000.0 ** (-torch.arange(0, dim, 4, dtype=torch.float64) / dim)
    y, x = (torch.outer(coordinate, theta) for coordinate in places.unbind(-1))
    angle = torch.stack([x, y], -1).flatten(-2)
    rope, q = AxialRoPE(dim, convention="visionllama"), torch.randn(1, 2, 15, dim, dtype=torch.float64)
    expect_angles(rope, places, angle)
    rotated = torch.view_as_complex(q.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angle), angle)
    assert gap(rope.rotate(q, rope.table(places, like=q)), torch.view_as_real(rotated).flatten(-2)) < 1e-12


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


test_refusals_of_frequencies_and_layouts = refusals(
    {
        "frequencies": [
            lambda: AxialRoPE(8, frequencies=[1.0] * 3),
            lambda: AxialRoPE(8, frequencies=[[1.0, 2.0], [1.0]]),
            lambda: AxialRoPE(8, frequencies=[[1.0, 2.0], 3.0]),
            lambda: AxialRoPE(8, frequencies=[[[1.0, 2.0]]]),
            lambda: AxialRoPE(8, frequencies=[1.0, math.nan]),
            lambda: AxialRoPE(8, frequencies=3.0),
            lambda: AxialRoPE(8, frequencies=torch.tensor(3.0)),
            lambda: AxialRoPE(8, frequencies=[1.0, 2.0], base=3.0),
            lambda: AxialRoPE(8, frequencies=[1.0, 2.0], convention="dinov3", min_period=1.0),
        ],
    }
)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"axes": 2, "convention": "v-jepa-2"}, "axes"),
        ({"convention": "kimi-k2.5", "layout": "half-by-axis"}, "layout"),
        ({"layout": "diagonal"}, "layout"),
        ({"frequencies": [[1.0, 2.0]], "base": 10.0}, "frequencies|base"),
    ],
)
def test_options_that_contradict_the_convention(options: dict[str, object], argument: str) -> None:
    with pytest.raises(ValueError, match=argument):
        AxialRoPE(24, **options)  # type: ignore[arg-type]
