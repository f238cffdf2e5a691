"""Axial RoPE: conventions by their formulas, far coordinates, learned angles and layouts."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

from posenc import AxialRoPE, RoPE
from posenc.positions import NO_POSITION, grid, rescaled, with_prefix, with_suffix
from tests.samples import gap, refusals


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
