"""Position designs of vision-language models: what each promises."""

from __future__ import annotations

import re

import pytest
import torch

from posenc.diffusion import latents
from posenc.positions import (
    HOPE_STRIDES,
    Circle,
    Image,
    Text,
    Video,
    multimodal,
    stream,
)
from posenc.positions.designs import Design
from tests.samples import gap

ROW = [Text(3), Image(2, 5), Text(1), Image(3, 1), Text(2)]
COUNTED: tuple[Design, ...] = ("mrope", "mrope-i", "mhrope", "omnirope", "ilrope", "mm-rope", "videorope", "hope")
ALL: tuple[Design, ...] = (*COUNTED, "circlerope", "v2pe")


@pytest.mark.parametrize("design", ALL)
@pytest.mark.parametrize("reset", [False, True])
def test_each_design_with_and_without_a_spatial_reset(design, reset):
    """A reset takes the start of a picture off rows and columns, moves no text, and leaves time."""
    if (design in ("omnirope", "ilrope") and not reset) or (design == "v2pe" and reset):
        with pytest.raises(ValueError, match="reset must not be"):
            multimodal(ROW, design=design, reset=reset)
        return
    ids = multimodal(ROW, design=design, reset=None if design == "v2pe" else reset)
    unreset = {"omnirope": "mrope", "ilrope": "mrope"}.get(design, design)
    expected = multimodal(ROW, design=unreset).double()
    for pictures, start in ((slice(3, 13), 3), (slice(14, 17), expected[13, 0] + 1)):
        if reset:
            expected[pictures, 1:] -= start
    assert gap(ids.double(), expected) < 1e-12


def test_frames_apart():
    """The stride acts on a video that is one block; with text between its frames each is a picture of its own."""
    video = multimodal([Text(1), Video(3, 1, 2), Text(1)], design="videorope")
    assert video[:, 0].tolist() == [0, 1, 1, 3, 3, 5, 5, 6]
    assert video[1:7, 1].tolist() == [1, 1, 3, 3, 5, 5]
    assert video[1:7, 2].tolist() == [1, 2, 3, 4, 5, 6]
    for stride in HOPE_STRIDES:
        row = multimodal([Text(1), Video(3, 1, 2), Text(1)], design="hope", stride=stride)
        assert row[:, 0].tolist() == [0.0, *[1 + frame * stride for frame in (0, 0, 1, 1, 2, 2)], 2 + 2 * stride]
        assert row.dtype == (torch.int64 if stride == 1 else torch.float64)
    frames = [Image(1, 2), Text(3), Image(1, 2), Text(0), Image(1, 2)]
    for design in COUNTED:
        split = multimodal([Text(1), Video(3, 1, 2, between=(3, 0)), Text(1)], design=design, stride=2)
        assert torch.equal(split, multimodal([Text(1), *frames, Text(1)], design=design))
    both = multimodal([Video(2, 1, 1), Text(1), Video(2, 1, 1)], design="mrope", stride=[0.5, 3])
    assert both[:, 0].tolist() == [0, 0.5, 1.5, 2.5, 5.5]


def test_mm_rope_counts_in_pixels_and_frames_of_the_video():
    ids = multimodal([Text(1), Video(2, 2, 2), Text(1)], design="mm-rope")
    assert ids[[1, 2, 3, 5]].tolist() == [[1, 1, 1], [1, 1, 9], [1, 9, 1], [5, 1, 1]]
    assert ids[-1].tolist() == [10, 10, 10]
    unscaled = multimodal([Text(1), Video(2, 2, 2), Text(1)], design="mm-rope", scale=(1, 1, 1))
    assert torch.equal(unscaled, multimodal([Text(1), Video(2, 2, 2), Text(1)], design="mrope"))


@pytest.mark.parametrize("circle", [Circle(), Circle(radius=3.0, alpha=0.0), Circle("auto", 0.2, centred=False)])
def test_text_is_as_far_from_each_token_on_a_circle(circle):
    """CircleRoPE's promise: the points are equally far from the line of text and from one another along it."""
    ids = multimodal([Text(4), Image(4, 6), Text(2)], design="circlerope", circle=circle)
    line = torch.full((3,), 1 / 3**0.5, dtype=torch.float64)
    picture = ids[4:28] - 4
    radius = 5.0 if circle.radius == "auto" else circle.radius
    assert gap(picture @ line, torch.zeros(24, dtype=torch.float64)) < 1e-12
    assert gap(picture.norm(dim=-1), torch.full((24,), radius, dtype=torch.float64)) < 1e-12
    for text in (*ids[:4], *ids[28:]):
        distance = (ids[4:28] - text).norm(dim=-1)
        assert distance.max() - distance.min() < 1e-12


def test_a_circle_laid_flat_and_moved_up_and_frames_stacked():
    flat = multimodal([Image(2, 3)], design="circlerope", circle=Circle(plane=1.0))
    x, y = torch.meshgrid(torch.tensor([-0.5, 0.5]).double(), torch.tensor([-1.0, 0, 1]).double(), indexing="ij")[::-1]
    assert gap(flat[:, 1] - flat[:, 2], 2**0.5 * x.flatten()) < 1e-12
    assert gap(flat[:, 0], (2 / 3) ** 0.5 * y.flatten()) < 1e-12
    up = multimodal([Image(2, 3)], design="circlerope", circle=Circle(positive=2.0))
    assert abs(float(up.min()) - 2) < 1e-12
    frames = multimodal([Video(3, 2, 2)], design="circlerope", stride=5).view(3, 4, 3)
    assert gap(frames[2] - frames[0], torch.full((4, 3), 10.0).double()) < 1e-12


def test_what_the_comparison_takes_as_its_default_circle_puts_tokens_on_one_another():
    """−1 is used as a number: of the four tokens of a picture, three then stand at one position."""
    mirrored = multimodal([Image(2, 2)], design="circlerope", circle=Circle(-1, -1, centred=False))
    released = multimodal([Image(2, 2)], design="circlerope")
    assert len(mirrored.mul(1e6).round().unique(dim=0)) == 2
    assert len(released.mul(1e6).round().unique(dim=0)) == 4


def test_v2pe_stays_apart_in_a_long_row_where_float32_does_not():
    ids = multimodal([Text(1 << 17), Image(16, 16)], design="v2pe", span=1)[1 << 17 :, 0]
    assert len(ids.unique()) == 256
    assert len(ids.float().unique()) < 256
    after = multimodal([Text(2), Image(1, 3), Text(2)], design="v2pe", span=0.5)
    assert after[-2:, 0].tolist() == [3, 4]


def test_a_name_of_another_builder_is_told_so():
    wrong = {
        "multimodal(parts, design='v2pe')": [
            lambda: stream([Text(1)], family="v2pe"),
            lambda: latents([], model="v2pe"),
        ],
        "stream(parts, family='qwen2-vl')": [
            lambda: multimodal([Text(1)], design="qwen2-vl"),
            lambda: latents([Text(1)], model="qwen2-vl"),
        ],
    }
    for words, calls in wrong.items():
        for call in calls:
            with pytest.raises(ValueError, match=re.escape(words)):
                call()
