"""Blocks and windows of grids: numbered row by row, with tokens without a place, compiled."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.positions import block_order, grid, windows, with_prefix
from tests.samples import bounded

sides = st.integers(1, 9)
edges = st.integers(1, 4)


@bounded
@given(sides, sides, edges, edges)
def test_windows_are_numbered_row_by_row(height, width, rows, columns):
    across = -(-width // columns)
    expected = [[row // rows * across + column // columns for column in range(width)] for row in range(height)]
    for dtype in (torch.int64, torch.int16, torch.float32):
        got = windows(grid(height, width).to(dtype), (height, width), (rows, columns))
        assert got.view(height, width).tolist() == expected
    order = block_order(height, width, block=(rows, columns), partial=True)
    assert sorted(order.tolist()) == list(range(height * width))
    assert torch.equal(got[order], got.sort().values)
    if height % rows == width % columns == 0:
        assert torch.equal(block_order(height, width, block=(rows, columns)), order)


def test_tokens_without_a_place_share_a_window():
    assert windows(with_prefix(grid(1, 4), 2), (1, 4), 2).tolist() == [-1, -1, 0, 0, 1, 1]
    rows = torch.stack([grid(2, 3), grid(2, 3).flip(0)])
    assert torch.equal(windows(rows, (2, 3), 2)[1], windows(grid(2, 3), (2, 3), 2).flip(0))
    assert windows(grid(5), 5, 2).tolist() == [0, 0, 1, 1, 2]


def test_compiles():
    compiled = torch.compile(lambda c: windows(c, (9, 7), 4), fullgraph=True, backend="eager", dynamic=True)
    for coordinates in (grid(9, 7), grid(9, 3), grid(5, 5)[:7]):
        assert torch.equal(compiled(coordinates), windows(coordinates, (9, 7), 4))
