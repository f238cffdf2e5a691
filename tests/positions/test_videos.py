"""Positions in time."""

from __future__ import annotations

import pytest
import torch

from posenc.positions import grid, on_all_axes, seconds, video


def test_a_video_is_a_grid_whose_frames_have_times():
    assert torch.equal(video(3, 2, 4), grid(3, 2, 4))
    dropped = video(3, 2, 4, times=torch.tensor([0, 7, 9]))
    assert dropped.dtype == torch.int64
    assert torch.equal(dropped[:, 1:], grid(3, 2, 4)[:, 1:])
    assert dropped[::8, 0].tolist() == [0, 7, 9]


@pytest.mark.parametrize("rate", [0.5, 1.0, 2.0, 12.5, 24.0, 29.97, 30.0])
def test_frame_rates(rate):
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
