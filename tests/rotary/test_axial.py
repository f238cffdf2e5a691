"""Rotations by several coordinates: axes, layouts, sections, learned angles, tokens without a place."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from posenc import AxialRoPE, DynamicNTK, LongRoPE, MRoPE, NTKAware, RoPE, YaRN, attention
from posenc.encoding import RotaryEncoding
from posenc.frequencies import CLEX, DyPE, MultiScale, PartNTK, RIFLEx
from posenc.hf import rope_to_config
from posenc.positions import NO_POSITION, Image, Text, grid, multimodal, with_prefix, with_suffix
from posenc.rotary import MHRoPE, MixedRoPE, VJEPARoPE, pair_order
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


# Axial RoPE with axes of unequal width, and their scalings; RIFLEx and DyPE.


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


# A class token without a place stands at the origin of a rotation; in the middle of the picture it moves with it.


ROPES = {"axial": lambda: AxialRoPE(16), "mixed": lambda: MixedRoPE(16, num_heads=2)}


@pytest.mark.parametrize("rope", ROPES.values(), ids=list(ROPES))
def test_a_shift_of_all_patches_changes_what_the_class_token_sees_unless_it_stands_in_the_middle(rope: Any) -> None:
    torch.manual_seed(0)
    encoding: RotaryEncoding = rope()
    q, k, v = torch.randn(3, 1, 2, 1 + 4 * 5, 16).double()

    def outputs(shift: int, **where: Any) -> tuple[Tensor, Tensor]:
        at = with_prefix(grid(4, 5) + shift, **where)
        out = attention(q, k, v, [encoding], q_pos=at, k_pos=at, causal=False)
        without = attention(q[:, :, 1:], k[:, :, 1:], v[:, :, 1:], [encoding], q_pos=at[1:], k_pos=at[1:], causal=False)
        return out[:, :, 0], without

    token, patches = outputs(0)
    moved, moved_patches = outputs(20)
    assert gap(patches, moved_patches) < 1e-5
    assert gap(token, moved) > 1e-2
    assert gap(token, outputs(0, at="origin")[0]) < 1e-6  # no place is the place 0
    assert gap(outputs(0, at="centre")[0], outputs(20, at="centre")[0]) < 1e-5


# M-RoPE: text that is rotated as under RoPE, and orders of pairs.


SECTIONS = (4, 6, 6)
PAIRS = sum(SECTIONS)
SCALINGS = {
    "none": lambda: None,
    "yarn": lambda: YaRN(8.0, original_length=64),
    "dynamic": lambda: DynamicNTK(2.0, original_length=16),
    "longrope": lambda: LongRoPE([1.0] * PAIRS, [1.5] * PAIRS, original_length=16, factor=4.0),
    "clex": lambda: CLEX(PAIRS, original_length=16, max_factor=4),
    "multiscale": lambda: MultiScale(4, num_kv_heads=2),
    "start": lambda: LongRoPE([1.0] * PAIRS, [2.0] * PAIRS, original_length=16, factor=4.0),
}


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("options", [{}, {"interleaved": True}, {"time_last": True}, {"layout": "interleaved"}])
def test_text_is_rotated_as_under_rope(kind, options):
    """Bit for bit, under every scaling, in rows of their own lengths, whole and fractional."""
    torch.manual_seed(0)
    scaling = SCALINGS[kind]()
    rope = RoPE(40, rotary_dim=32, base=1e6, scaling=scaling, layout=options.get("layout", "half"))
    mrope = MRoPE(40, sections=SECTIONS, rotary_dim=32, scaling=scaling, **options)
    q, k, _ = qkv(2, 4, 7, head_dim=40, num_kv_heads=2)
    for positions in (torch.arange(7), torch.stack([torch.arange(7), 30 + 5 * torch.arange(7)]), torch.rand(7) * 70):
        text = positions.unsqueeze(-1).expand(*positions.shape, 3)
        for length in (None, 9, 300):
            for actual, expected in zip(mrope.table(text, length), rope.table(positions, length), strict=True):
                assert torch.equal(actual, expected)
            assert mrope.cacheable(length) == rope.cacheable(length)
        for actual, expected in zip(mrope(q, k, text, text), rope(q, k, positions, positions), strict=True):
            assert torch.equal(actual, expected)


def test_a_length_dependent_scaling_spans_the_largest_coordinate():
    mrope = MRoPE(32, sections=SECTIONS, scaling=DynamicNTK(2.0, original_length=16))
    positions = torch.tensor([[[0, 0, 0], [1, 70, 3]], [[0, 0, 0], [1, 2, 99]]])
    for row, length in enumerate((71, 100)):
        expected = mrope.table(positions[row], length)
        assert all(torch.equal(a[row], b) for a, b in zip(mrope.table(positions), expected, strict=True))
    q, k, _ = qkv(2, 4, 2, head_dim=32)
    spans = torch.tensor([[71], [100]])
    assert torch.equal(mrope(q, k, positions, positions)[0], mrope.rotate(q, mrope.table(positions, spans)))


def test_qwen_2_takes_sections_modulo_the_axes():
    twice = MRoPE(32, sections=(2, 3, 3, 2, 3, 3))
    assert twice.order() == 2 * ([0] * 2 + [1] * 3 + [2] * 3)
    assert MRoPE(8, sections=(1, 1, 1, 1), axes=4).order() == [0, 1, 2, 3]
    assert MRoPE(8, sections=(3, 1), axes=2).order() == [0, 0, 0, 1]


def test_qwen_3_gives_time_what_the_others_leave():
    order = MRoPE(128, sections=(24, 20, 20), interleaved=True).order()
    assert order == [0, 1, 2] * 20 + [0] * 4
    short = MRoPE(24, sections=(2, 6, 4), interleaved=True).order()  # rows would go on past the last pair
    assert short == [0, 1, 2] * 4


def test_pairs_that_rest_and_orders_that_are_refused():
    rope = MRoPE(16, order=[0, -1, 1, 2, -1, 0, 0, 1])
    positions = torch.tensor([[5, 7, 9], [8, 1, 2]])
    cos, sin = rope.table(positions)
    assert torch.equal(cos[:, [1, 4]], torch.ones(2, 2))
    assert torch.equal(sin[:, [1, 4]], torch.zeros(2, 2))
    again = rope.replace(base=5e5)
    assert again.order() == rope.order()
    assert again.rope.base == 5e5
    assert rope.replace(sections=(4, 2, 2)).order() == [0, 0, 0, 0, 1, 1, 2, 2]
    assert "order=(0, -1, 1" in str(rope)
    with pytest.raises(ValueError, match="no other order of the pairs"):
        rope_to_config(rope, model_type="qwen2_vl")


def test_orders_of_the_authors_of_videorope_and_hope():
    """Their loops: 48 pairs alternate between row and column, the last 16 read time, or rest."""
    assert pair_order("videorope", (16, 24, 24), code="authors") == [1, 2] * 24 + [0] * 16
    assert pair_order("hope", (16, 24, 24), code="authors") == [1, 2] * 24 + [-1] * 16
    ernie = MRoPE(128, sections=(24, 24, 16), time_last=True)
    assert ernie.order() == pair_order("videorope", (16, 24, 24), code="authors")
    differ = zip(ernie.order(), pair_order("videorope", (16, 24, 24)), strict=True)
    assert sum(ernie_pair != videorope_pair for ernie_pair, videorope_pair in differ) == 48


def test_orders_of_designs_by_name():
    for design in ("mrope", "omnirope", "circlerope"):
        assert pair_order(design, (1, 2, 3)) == [0, 1, 1, 2, 2, 2]
    for design in ("mrope-i", "ilrope"):
        assert pair_order(design, (24, 20, 20)) == MRoPE(128, sections=(24, 20, 20), interleaved=True).order()
    for design, words in {"mhrope": "MHRoPE", "v2pe": "RoPE", "rope": "mm-rope"}.items():
        with pytest.raises(ValueError, match=f"design.*{words}"):
            pair_order(design, (1, 1, 1))


# MHRoPE: pictures as under mixed RoPE, and what a scaling spans.


def test_a_picture_is_rotated_as_by_mixed_rope_with_one_axis_a_head():
    at = multimodal([Text(3), Image(2, 3), Text(1)], design="mhrope", reset=True)
    rope = MHRoPE(16, num_heads=8, num_kv_heads=4, heads=(1, 2, 1))
    theta = torch.zeros(4, 3, 8)
    for head, axis in enumerate(rope.order()):
        theta[head, axis] = rope.spectrum().theta
    mixed = MixedRoPE(
        16, num_heads=8, num_kv_heads=4, axes=3, frequencies=theta.double(), learned=False, layout="half"
    )  # fmt: skip
    q, k, v = qkv(2, 8, 10, head_dim=16, num_kv_heads=4)
    actual, expected = (attention(q, k, v, [encoding], q_pos=at, k_pos=at, causal=True) for encoding in (rope, mixed))
    assert gap(actual, expected) < 1e-5


def test_text_under_a_length_dependent_scaling_is_rotated_as_under_rope():
    """Undeclared, its plain positions span its last key."""
    scaling, at = DynamicNTK(2.0, original_length=8), torch.arange(12)
    rope, heads = RoPE(16, base=1e6, scaling=scaling), MHRoPE(16, num_heads=2, heads=(1, 1), scaling=scaling)
    q, k, _ = qkv(1, 2, 12, head_dim=16)
    for actual, expected in zip(heads(q, k, at, at), rope(q, k, at, at), strict=True):
        assert torch.equal(actual, expected)


def test_a_length_dependent_scaling_of_heads_spans_the_largest_coordinate():
    rope = MHRoPE(16, num_heads=2, heads=(1, 1), scaling=DynamicNTK(2.0, original_length=8))
    at = torch.tensor([[0, 0], [3, 40]])
    for actual, expected in zip(rope.table(at), rope.table(at, 41), strict=True):
        assert torch.equal(actual, expected)
    assert not rope.cacheable()
    assert rope.cacheable(41)


# Mixed RoPE: random frames, directions that nothing draws, and given frequencies.


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
