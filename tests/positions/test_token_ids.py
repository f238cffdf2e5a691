"""Position ids from what a model is fed: padded and packed."""

from __future__ import annotations

import pytest
import torch

from posenc import positions
from posenc.positions import Image, Text, Video, from_token_ids, stream

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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"image_grid_thw": None}, "image_grid_thw"),
        ({"image_grid_thw": [[1, 2, 6]]}, "expected 3"),
        ({"image_grid_thw": [[1, 2, 2]]}, "image_grid_thw"),
        ({"image_grid_thw": [[1, 2, 4], [1, 2, 4]]}, "image_grid_thw"),
        ({"video_grid_thw": [[1, 2, 4]]}, "video_grid_thw"),
        ({"image_grid_thw": [[1, 2, 3]]}, "image_grid_thw"),
        ({"image_grid_thw": [[2, 2, 2]]}, "image_grid_thw"),
        ({"seconds_per_grid": [1.0]}, "seconds_per_grid"),
        ({"video_grid_thw": [[10**18, 2, 4]], "family": "qwen3-vl"}, "video_grid_thw"),
    ],
)
def test_refusals_name_the_argument(options, words):
    keywords = {"ids": [[T, I, I, T]], "image_grid_thw": [[1, 2, 4]], **options}
    with pytest.raises(ValueError) as error:
        call(**keywords)
    assert words in str(error.value)
