"""Positions in time: frames of a video, at their numbers or their seconds, and frames of sound."""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.arguments import MOST_AXES, shown
from posenc.positions.checking import check_dtype
from posenc.positions.grids import grid
from posenc.positions.validation import FARTHEST, check_fits, check_rows, count_of, number_of


def seconds(frames: int, rate: float, *, start: float = 0.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """When frames begin, ``(frames,)``: start, start + 1 / rate, …, each rounded once.

    Args:
        frames: how many.
        rate: frames per second, above 0: of a video after its frames are merged (Qwen-VL merges two), or of sound
            (25 audio tokens per second in Qwen2.5-Omni).
        start: of the first one.
        dtype: float32 or float64.

    >>> seconds(4, rate=2.0)
    tensor([0.0000, 0.5000, 1.0000, 1.5000])
    """
    frames, start = count_of("frames", frames), number_of("start", start, least=-FARTHEST)
    rate = number_of("rate", rate, above=0)
    if not any(dtype is float_type for float_type in (torch.float32, torch.float64)):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, got {shown(dtype)}")
    return (torch.arange(frames, dtype=torch.float64) / rate + start).to(dtype)


def video(frames: int, height: int, width: int, *, times: Tensor | None = None) -> Tensor:
    """Coordinates ``(frames · height · width, 3)`` of a video: (time, row, column), frame by frame, row by row.

    Args:
        frames, height, width: tokens along time, rows and columns.
        times: where each frame lies in time, ``(frames,)``: its number in a video of which frames were dropped, or its
            seconds, as from `seconds`. Default 0, 1, …, frames − 1. Integers make integer coordinates, floats floats.

    >>> video(2, 1, 2, times=torch.tensor([0, 25])).tolist()
    [[0, 0, 0], [0, 0, 1], [25, 0, 0], [25, 0, 1]]
    >>> video(2, 1, 2, times=seconds(2, rate=2.0))[:, 0]
    tensor([0.0000, 0.0000, 0.5000, 0.5000])
    """
    frames, height, width = count_of("frames", frames), count_of("height", height), count_of("width", width)
    check_fits("frames, height and width", 3, frames, height, width)
    counted = grid(frames, height, width)
    if times is None:
        return counted
    check_dtype("times", times)
    if times.shape != (frames,):
        raise ValueError(f"times must be (frames,) = ({frames},), got {tuple(times.shape)}")
    counted = counted.to(times.device)
    return torch.cat([times[counted[:, 0], None], counted[:, 1:]], -1)


def on_all_axes(positions: Tensor, axes: int = 3) -> Tensor:
    """The same number on each axis, ``(*batch, tokens, axes)``: how M-RoPE (arXiv 2409.12191) places text and sound.

    Args:
        positions: ``(*batch, tokens)``, one coordinate.
        axes: number of coordinates.

    >>> on_all_axes(torch.arange(2)).tolist()
    [[0, 0, 0], [1, 1, 1]]
    """
    check_rows("positions", positions, "(tokens,) or (batch, tokens)")
    axes = count_of("axes", axes, most=MOST_AXES)
    check_dtype("positions", positions)
    return positions[..., None].expand(*positions.shape, axes)
