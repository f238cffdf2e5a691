"""Coordinates of grids, by their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from posenc import positions
from posenc.positions import checking, grid
from tests.samples import bounded, gap

sizes = st.tuples(st.integers(1, 9), st.integers(1, 9))
MAPPED = (
    lambda c, s: positions.centred(c, s),
    lambda c, s: positions.signed(c, s, per="min"),
    lambda c, s: positions.spaced(c, s, trained=(3, 5)),
    lambda c, s: positions.rescaled(c, s, onto=(3, 5)),
    lambda c, s: positions.aligned(c, s, onto=(3, 5), offset=0.1),
    lambda c, s: positions.signed(c, s, corners=True),
    lambda c, s: positions.cropped(c, offset=(2, 3), scale=0.5),
)


def test_grid_runs_row_by_row():
    coordinates = grid(2, 3, 4)
    assert coordinates.shape == (24, 3)
    flat = coordinates @ torch.tensor([12, 4, 1])
    assert torch.equal(flat, torch.arange(24))


@bounded
@given(sizes)
def test_corners_are_linspace(size):
    """Perceiver's coordinates."""
    got = positions.signed(grid(*size).double(), size, corners=True).view(*size, 2)
    rows, columns = (torch.linspace(-1, 1, n, dtype=torch.float64) for n in size)
    assert gap(got[:, 0, 0], rows) < 1e-15
    assert gap(got[0, :, 1], columns) < 1e-15


@bounded
@given(sizes, sizes)
def test_nearest_is_interpolates(size, old):
    table = torch.arange(math.prod(old)).double().view(1, 1, *old)
    for dtype in (torch.int32, torch.float64):
        at = positions.nearest(grid(*size).to(dtype), size, onto=old)
        assert torch.equal(at @ torch.tensor([old[1], 1]), F.interpolate(table, size=size).flatten().long())
    marked = positions.nearest(positions.with_prefix(grid(*size), 2), size, onto=old)
    assert torch.equal(marked, positions.with_prefix(at, 2))


@bounded
@given(sizes, sizes)
def test_aligned_reads_a_table_as_interpolate_does(size, old):
    table = torch.randn(1, 1, *old, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    at = positions.aligned(grid(*size).double(), size, onto=old)
    at = at.clamp(torch.zeros(2), torch.tensor(old) - 1)
    low = at.floor().long()
    high, share = torch.minimum(low + 1, torch.tensor(old) - 1), at - low
    read = sum(
        table[0, 0, (high if i else low)[:, 0], (high if j else low)[:, 1]]
        * (share if i else 1 - share)[:, 0] * (share if j else 1 - share)[:, 1]
        for i in (0, 1) for j in (0, 1)
    )  # fmt: skip
    assert gap(read, F.interpolate(table, size=size, mode="bilinear", align_corners=False).flatten()) < 1e-12
    assert gap(positions.cropped(grid(*size).double(), 0, [o / s for o, s in zip(old, size, strict=True)]),
               positions.aligned(grid(*size).double(), size, onto=old)) < 1e-14  # fmt: skip


def test_rescaled_as_eva():
    got = positions.rescaled(grid(6, 5), (6, 5), onto=4).view(6, 5, 2)
    assert gap(got[:, 0, 0], torch.arange(6) / 6 * 4) < 1e-6
    assert gap(got[0, :, 1], torch.arange(5) / 5 * 4) < 1e-6


def test_a_crop_lies_in_the_whole():
    """Rows 2 … 4 and columns 1 … 5 of an 8 × 8 grid, and the same crop at twice its resolution."""
    full = grid(8, 8).view(8, 8, 2)[2:5, 1:6].flatten(0, 1)
    assert torch.equal(positions.cropped(grid(3, 5), offset=(2, 1)), full.float())
    finer = positions.cropped(grid(6, 10), offset=(2, 1), scale=0.5).view(3, 2, 5, 2, 2).mean((1, 3))
    assert gap(finer.flatten(0, 1), full) < 1e-6, "four quarters of a patch lie around its centre"
    crop = positions.centred(positions.cropped(grid(3, 5), offset=(2, 1)), 8)
    assert gap(crop, positions.centred(full, 8)) < 1e-7


@pytest.mark.parametrize("mapped", MAPPED)
def test_precision_device_and_tokens_without_a_place(mapped):
    counted, size = positions.with_prefix(grid(4, 7), 2), (4, 7)
    for dtype, expected in ((torch.int16, torch.float32), (torch.int64, torch.float32), (torch.float64, torch.float64)):
        assert mapped(grid(4, 7).to(dtype), size).dtype == expected
    both = mapped(counted, size)
    assert checking.has_no_position(both, axes=2).tolist() == [True, True, *[False] * 28]
    assert both[:2, 1].tolist() == [0, 1]
    assert torch.equal(both[2:], mapped(grid(4, 7), size))
    assert gap(both[2:], mapped(grid(4, 7).double(), size)) < 1e-6
    rows = torch.stack([grid(4, 7), grid(4, 7) + 1])
    assert torch.equal(mapped(rows, size)[1], mapped(grid(4, 7) + 1, size))


@pytest.mark.parametrize("mapped", MAPPED)
def test_compiles(mapped):
    compiled = torch.compile(lambda c: mapped(c, (4, 7)), fullgraph=True, backend="eager", dynamic=True)
    for coordinates in (grid(4, 7), grid(9, 3), grid(5, 5)[:7]):
        assert torch.equal(compiled(coordinates), mapped(coordinates, (4, 7)))
