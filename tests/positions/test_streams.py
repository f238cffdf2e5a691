"""Position ids of mixed streams, by their own promises: parts, videos, what a model is fed, designs, diffusion."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc import attention, positions
from posenc.diffusion import MODELS, latents, rotation
from posenc.frequencies import RIFLEx
from posenc.positions import (
    HOPE_STRIDES,
    NO_POSITION,
    Audio,
    Circle,
    Image,
    Text,
    Video,
    following,
    from_token_ids,
    grid,
    multimodal,
    on_all_axes,
    seconds,
    stream,
    video,
)
from posenc.positions.designs import Design
from tests.golden import config, load
from tests.samples import bounded, gap

FAMILIES = ("qwen2-vl", "qwen2.5-vl", "qwen2.5-omni", "qwen3-vl")
parts = st.lists(
    st.one_of(
        st.builds(Text, st.integers(0, 5)),
        st.builds(Audio, st.integers(0, 5)),
        st.builds(Image, st.integers(1, 4), st.integers(1, 4)),
        st.builds(Video, *[st.integers(1, 4)] * 3, st.sampled_from([0.0, 0.3, 2.0]), st.just(0)),
    ),
    max_size=6,
)  # fmt: skip


VIDEOS = {"short": 3, "long": 5}


def a_video(name: str, seconds: float = 1.0) -> list[positions.Text | positions.Video]:
    return [Text(2), Video(VIDEOS[name], 2, 2, seconds), Text(3)]


@pytest.mark.parametrize(
    ("seconds", "rate", "expected"),
    [
        (0.5, 2.0, [0, 1, 2, 3, 4]),
        (0.7, 2.0, [0, 1, 2, 4, 5]),
        (0.25, 2.0, [0, 0, 1, 1, 2]),
        (1 / 3, 3.0, [0, 1, 2, 3, 4]),
        (0.0833, 25.0, [0, 2, 4, 6, 8]),
        (1.0, 25.0, [0, 25, 50, 75, 100]),
        (0.0, 25.0, [0, 0, 0, 0, 0]),
    ],
)
def test_frame_rates(seconds, rate, expected):
    row = stream([Video(5, 1, 1, seconds), Text(1)], family="qwen2.5-vl", tokens_per_second=rate)
    assert row[:5, 0].tolist() == expected
    assert row[5].tolist() == [expected[-1] + 1] * 3


@bounded
@given(parts, st.sampled_from(FAMILIES))
def test_parts_begin_where_all_before_them_ends(parts, family):
    full = stream(parts, family=family)
    assert full.dtype == torch.int64
    assert len(full) == sum(part.tokens if isinstance(part, Text | Audio) else _size(part) for part in parts)
    for cut in range(1, len(parts)):
        before, after = stream(parts[:cut], family=family), stream(parts[cut:], family=family)
        start = following(before)[0] if len(before) else 0
        assert torch.equal(full, torch.cat([before, after + start]))
    if len(full):
        assert torch.equal(stream([*parts, Text(2)], family=family)[-2:], following(full, 2))


def _size(part) -> int:
    return part.height * part.width * getattr(part, "frames", 1)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_batch_of_different_rows(side):
    rows = [stream(a_video("short"), family="qwen2-vl"), stream([Text(2), Image(3, 1)], family="qwen2-vl")]
    batch, mask = positions.padded(rows, side=side)
    assert batch.shape == (2, 17, 3)
    for row, got, here in zip(rows, batch, mask, strict=True):
        assert torch.equal(got[here], row)
    assert following(batch, 2).tolist() == [[[8] * 3, [9] * 3], [[5] * 3, [6] * 3]], "padding does no harm"


# Positions in time.


def test_a_video_is_a_grid_whose_frames_have_times():
    assert torch.equal(video(3, 2, 4), grid(3, 2, 4))
    dropped = video(3, 2, 4, times=torch.tensor([0, 7, 9]))
    assert dropped.dtype == torch.int64
    assert torch.equal(dropped[:, 1:], grid(3, 2, 4)[:, 1:])
    assert dropped[::8, 0].tolist() == [0, 7, 9]


@pytest.mark.parametrize("rate", [0.5, 1.0, 2.0, 12.5, 24.0, 29.97, 30.0])
def test_seconds_of_frames(rate):
    """The same moment has the same coordinate at whatever rate frames were taken."""
    exact = [frame / rate + 1.5 for frame in range(20)]
    times = seconds(20, rate, start=1.5)
    assert times.tolist() == torch.tensor(exact, dtype=torch.float64).float().tolist(), "rounded once"
    assert seconds(20, rate, start=1.5, dtype=torch.float64).tolist() == exact
    slow, fast = (video(int(3 * r), 1, 2, times=seconds(int(3 * r), r)) for r in (rate * 2, rate * 4))
    assert torch.equal(fast.view(-1, 2, 3)[::2][: len(slow) // 2], slow.view(-1, 2, 3))


def test_sound_with_a_video():
    frames, sound = video(4, 1, 1, times=seconds(4, 2.0)), on_all_axes(seconds(50, 25.0))
    assert sound.shape == (50, 3)
    assert sound[[0, 25]].tolist() == [[0, 0, 0], [1, 1, 1]]
    assert frames[2, 0] == sound[25, 0], "one second"


def test_on_all_axes():
    rows = torch.tensor([[0, 1], [5, 6]])
    assert on_all_axes(rows, 2).tolist() == [[[0, 0], [1, 1]], [[5, 5], [6, 6]]]


# Position ids from what a model is fed: padded and packed.


IMAGE, VIDEO = 1, 2
T, I, V = 3, IMAGE, VIDEO  # noqa: E741


def call(ids, family="qwen2-vl", **options):
    return from_token_ids(torch.as_tensor(ids), family=family, image_token=IMAGE, video_token=VIDEO, **options)


ROWS = ([T, T, I, I, I, I, I, I, T], [I, I, I, T, V, V, V, V, T, V, V])  # 2 × 3; 1 × 3, then 2 frames 1 × 2 and 1 × 2
GRIDS = {
    "image_grid_thw": [[1, 4, 6], [1, 2, 6]],
    "video_grid_thw": [[2, 2, 4], [1, 2, 4]],
    "seconds_per_grid": [1.5, 1],
}
PARTS = ([Text(2), Image(2, 3), Text(1)], [Image(1, 3), Text(1), Video(2, 1, 2, 1.5), Text(1), Video(1, 1, 2)])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["qwen2-vl", "qwen2.5-vl", "qwen3-vl"])
def test_padded_rows(side, family):
    ids, mask = positions.padded([torch.tensor(row) for row in ROWS], side=side)
    ids = torch.where(mask, ids, IMAGE)  # padding may look like anything
    expected, _ = positions.padded([stream(parts, family=family) for parts in PARTS], side=side)
    for real in (mask, mask.long()):
        assert torch.equal(call(ids, family, mask=real, **GRIDS), expected)


@pytest.mark.parametrize("family", ["qwen2-vl", "qwen2.5-vl"])
def test_packed_rows(family):
    expected, segments = positions.packed([stream(parts, family=family) for parts in PARTS])
    ids = torch.tensor([*ROWS[0], *ROWS[1]])
    assert torch.equal(call(ids, family, segments=segments, **GRIDS), expected)
    assert torch.equal(call(ids[None], family, segments=segments[None], **GRIDS), expected[None])
    padded = torch.cat([torch.tensor([7, 7]), ids]), torch.cat([torch.tensor([-1, -1]), segments])
    mask = torch.arange(len(padded[0])) >= 2
    got = call(padded[0], family, segments=padded[1], mask=mask, **GRIDS)
    assert torch.equal(got, torch.cat([torch.zeros(2, 3).long(), expected]))


def test_sights_side_by_side():
    """Two pictures without a token between them, and frames of Qwen3-VL without their times."""
    got = call([I, I, I, T], image_grid_thw=[[1, 2, 4], [1, 2, 2]])
    assert torch.equal(got, stream([Image(1, 2), Image(1, 1), Text(1)], family="qwen2-vl"))
    got = call([V, V, V, V, T, V, V], "qwen3-vl", video_grid_thw=[[3, 2, 4]])
    assert torch.equal(got, stream([Image(1, 2), Image(1, 2), Text(1), Image(1, 2)], family="qwen3-vl"))


def test_frames_of_ernie_merge_by_two():
    got = call([T, *[V] * 4, T], "ernie-4.5-vl", video_grid_thw=[[4, 2, 4]])
    assert torch.equal(got, stream([Text(1), Video(2, 1, 2), Text(1)], family="qwen2-vl"))
    assert torch.equal(got, stream([Text(1), Video(2, 1, 2), Text(1)], family="ernie-4.5-vl"))
    with pytest.raises(ValueError, match="video_grid_thw"):
        call([V, V], "ernie-4.5-vl", video_grid_thw=[[3, 2, 4]])


def test_text_and_empty_rows():
    assert torch.equal(call([[T, T], [9, 9]])[1], positions.on_all_axes(torch.arange(2)))
    nothing = call([[T, T], [T, T]], mask=torch.tensor([[1, 1], [0, 0]]))
    assert nothing[1].tolist() == [[0] * 3] * 2
    without = from_token_ids(torch.tensor([1, 2, 3]), family="qwen2-vl")
    assert torch.equal(without, positions.on_all_axes(torch.arange(3))), "no token is special unless named"


# Position designs of vision-language models: what each promises.


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


# Positions of diffusion transformers: equal to what their pipelines and position modules count.


DIFFUSION = {
    "flux_d128_text5_img4x6": ("flux-1", [Text(5), Image(4, 6)]),
    "flux2_d128_text7_img3x4_refs": ("flux-2", [Text(7), Image(3, 4), Image(2, 3), Image(2, 2)]),
    "flux_d16_kontext": ("flux-1", [Text(2), Image(2, 5), Image(3, 2)]),
    "flux2_d24_unequal": ("flux-2", [Text(3), Image(3, 4), Image(2, 3), Image(2, 2)]),
    "flux2_d16_text3_img2x5": ("flux-2", [Text(3), Image(2, 5)]),
    "qwen_d128_even6x4_text5": ("qwen-image", [Image(6, 4), Text(5)]),
    "qwen_d128_odd5x7_text3": ("qwen-image", [Image(5, 7), Text(3)]),
    "wan_d128_3x4x6": ("wan", [Video(3, 4, 6)]),
    "wan_d40_2x3x5": ("wan", [Video(2, 3, 5)]),
    "hunyuan_d128_3x4x5": ("hunyuan-video", [Video(3, 4, 5)]),
    "lumina2_d96_caps5_3_row0": ("lumina-2", [Text(5), Image(3, 4)]),
    "lumina2_d96_caps5_3_row1": ("lumina-2", [Text(3), Image(3, 4)]),
    "zimage_d128_cap5_4x6": ("z-image", [Text(5), Image(4, 6)]),
    "zimage_d16_cap3_2x3": ("z-image", [Text(3), Image(2, 3)]),
}


@pytest.mark.parametrize("name", DIFFUSION)
def test_positions_and_rotation_of_the_model(name):
    model, parts = DIFFUSION[name]
    expected, settings = load(f"diffusion/{name}", None), config(f"diffusion/{name}")
    positions = latents(parts, model=model)
    sampled = positions[:: max(1, len(positions) // 24)]  # as many rows as the file has
    assert torch.equal(sampled.double(), expected["positions"])
    rope = rotation(model)
    if settings["head_dim"] == rope.head_dim:
        cos, sin = rope.table(sampled, like=expected["cos"])
        assert gap(cos, expected["cos"]) < 1e-11
        assert gap(sin, expected["sin"]) < 1e-11


def test_kontext_references_and_pictures_of_an_edit():
    assert latents([Text(1), Image(1, 1), Image(1, 2), Image(1, 1)], model="flux-1").tolist() == [
        [0, 0, 0], [0, 0, 0], [1, 0, 0], [1, 0, 1], [1, 0, 0],
    ]  # fmt: skip
    same = Image(2, 2)
    edit = latents([same, same, Text(2)], model="qwen-image")
    assert edit[:, 0].tolist() == [0] * 4 + [1] * 4 + [1, 2]
    assert edit[0].tolist() == [0, -1, -1]


def test_texts_count_on_and_unrotated_text_has_no_place():
    assert latents([Text(2), Image(1, 1), Text(1)], model="flux-2")[:, 3].tolist() == [0, 1, 0, 2]
    assert latents([Text(2), Video(1, 1, 1)], model="wan").tolist() == [[NO_POSITION] * 3] * 2 + [[0, 0, 0]]
    rope = rotation("hunyuan-video")
    positions = latents([Video(1, 2, 2), Text(3)], model="hunyuan-video")
    q, k, v = torch.randn(3, 1, 1, 7, 128)
    assert torch.equal(rope(q, k, positions, positions)[0][:, :, 4:], q[:, :, 4:])
    assert attention(q, k, v, [rope], q_pos=positions, causal=False).shape == q.shape


def test_models_have_positions_and_an_encoding_with_as_many_axes():
    for name, model in MODELS.items():
        if model.axes_dims and model.has_preset:
            assert rotation(name).axes == len(model.axes)
    longer = rotation("wan", scaling=(RIFLEx(6, length=41), None, None))
    assert "RIFLEx(6, length=41)" in str(longer)
