"""Builders of positions: counts of any kind, and sizes that stay open where they are traced."""

from __future__ import annotations

import numpy
import torch

from posenc import positions
from posenc.positions import Image, Video, checking, grid


def test_counts_of_numpy_and_of_tensors():
    three, pair = numpy.int64(3), torch.tensor([2, 3])
    assert torch.equal(grid(*pair), grid(2, 3))
    assert torch.equal(grid(three, numpy.int32(2)), grid(3, 2))
    assert torch.equal(positions.after(three, three), torch.arange(3, 6))
    assert torch.equal(positions.centred(grid(2, 3), pair), positions.centred(grid(2, 3), (2, 3)))
    assert torch.equal(
        positions.cropped(grid(2, 3), pair, numpy.float32(0.5)), positions.cropped(grid(2, 3), (2, 3), 0.5)
    )
    assert torch.equal(positions.seconds(three, torch.tensor(2.0)), positions.seconds(3, 2.0))
    parts = [Image(*pair), Video(three, 1, 1, torch.tensor(0.5), between=numpy.array([1, 2]))]
    expected = positions.stream([Image(2, 3), Video(3, 1, 1, 0.5, between=(1, 2))], family="qwen3-vl")
    assert torch.equal(positions.stream(parts, family="qwen3-vl"), expected)


class Builds(torch.nn.Module):
    """What a model may build of the sizes of its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        here = positions.after(0, x.shape[1])
        checking.check("here", here, x.shape[1], x.shape[0])
        there = checking.wide(positions.from_mask(x[..., 0] > 0))
        lost = checking.has_no_position(positions.on_all_axes(there, 2), axes=2)
        return x + (here + checking.span(there) + lost)[..., None]


def test_sizes_stay_open_where_they_are_traced():
    tokens, x = torch.export.Dim("tokens"), torch.randn(2, 9, 3)
    exported = torch.export.export(Builds(), (x,), dynamic_shapes=({1: tokens},)).module()
    compiled = torch.compile(Builds(), fullgraph=True, backend="eager", dynamic=True)
    for result in (exported, compiled):
        for length in (9, 13):
            x = torch.randn(2, length, 3)
            assert torch.equal(result(x), Builds()(x))
