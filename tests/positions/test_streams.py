"""Position ids of mixed streams, by their own promises."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc import positions
from posenc.positions import Audio, Image, Text, Video, following, stream
from tests.samples import bounded

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
