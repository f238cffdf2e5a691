"""Class and register tokens before and behind a grid."""

from __future__ import annotations

import pytest
import torch

from posenc import positions
from posenc.positions import NO_POSITION, checking, grid, with_prefix, with_suffix


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64, torch.float32, torch.float64], ids=str)
def test_nowhere(dtype):
    marked = with_prefix(grid(1, 2, 2).to(dtype), 3)
    assert marked.dtype == (dtype if dtype.is_floating_point else torch.int64)
    assert marked[:3].tolist() == [[NO_POSITION, 0, 0], [NO_POSITION, 0, 1], [NO_POSITION, 0, 2]]
    assert torch.equal(marked[3:], grid(1, 2, 2).to(marked.dtype))
    assert checking.has_no_position(marked, axes=3).tolist() == [True] * 3 + [False] * 4


def test_rows_of_a_batch():
    rows = torch.stack([grid(2, 3), grid(2, 3) + 4])
    assert torch.equal(with_prefix(rows, 2)[1], with_prefix(grid(2, 3) + 4, 2))
    assert with_prefix(rows, at="centre")[:, 0].tolist() == [[0.5, 1.0], [4.5, 5.0]]
    assert torch.equal(with_prefix(rows, 0), rows)


def test_stated_places():
    assert with_prefix(grid(2, 3), at="origin")[0].tolist() == [0, 0]
    assert with_prefix(grid(2, 3), at=(7, -1))[0].tolist() == [7, -1]
    assert with_prefix(grid(2, 3), at=(7, -1)).dtype == torch.int64
    half = with_prefix(grid(2, 3), 2, at=0.5)
    assert half[:2].tolist() == [[0.5, 0.5]] * 2
    assert half.dtype == torch.float32
    assert with_prefix(grid(2, 3).double(), at=(0.1, 0.2))[0].tolist() == [0.1, 0.2]


def test_the_centre_ignores_tokens_without_a_place():
    registers = with_prefix(grid(3, 4), 2)
    assert with_prefix(registers, at="centre")[0].tolist() == [1.0, 1.5]
    assert with_prefix(positions.signed(grid(3, 4), (3, 4)), at="centre")[0].tolist() == [0, 0]


def test_tokens_behind():
    assert with_suffix(grid(1, 2), 2).tolist() == [[0, 0], [0, 1], [NO_POSITION, 0], [NO_POSITION, 1]]
    assert with_suffix(grid(2, 3), at="centre")[-1].tolist() == [0.5, 1.0]
    rows = torch.stack([grid(2, 3), grid(2, 3) + 4])
    assert torch.equal(with_suffix(rows, 3)[1], with_suffix(grid(2, 3) + 4, 3))


def test_tokens_without_a_place_are_counted_on():
    both = with_suffix(with_prefix(grid(1, 1, 2), 2), 2)
    assert both[:, 0].tolist() == [NO_POSITION, NO_POSITION, 0, 0, NO_POSITION, NO_POSITION]
    assert both[:, 2].tolist() == [0, 1, 0, 1, 2, 3]
    rows = torch.stack([with_prefix(grid(1, 2)), torch.tensor([[0, 0], [0, 1], [0, 2]])])
    assert with_suffix(rows)[:, -1].tolist() == [[NO_POSITION, 1], [NO_POSITION, 0]]
