"""Coordinates of grids, by their formulas: mapped, in blocks, behind a prefix, perturbed."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from posenc import positions
from posenc.positions import (
    NO_POSITION,
    augmented,
    block_order,
    centred,
    checking,
    grid,
    perturbed,
    signed,
    windows,
    with_prefix,
    with_suffix,
)
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


# Blocks and windows of grids: numbered row by row, with tokens without a place, compiled.


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


def test_compiles_of_blocks():
    compiled = torch.compile(lambda c: windows(c, (9, 7), 4), fullgraph=True, backend="eager", dynamic=True)
    for coordinates in (grid(9, 7), grid(9, 3), grid(5, 5)[:7]):
        assert torch.equal(compiled(coordinates), windows(coordinates, (9, 7), 4))


# Class and register tokens before and behind a grid.


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


# Positions drawn in training: their ranges, and what they may not touch.


@bounded
@given(st.integers(1, 40), st.integers(0, 60), st.none() | st.integers(1, 3), st.integers(0, 2**31))
def test_randomised_positions_rise_within_range(tokens, more, batch, seed):
    max_length, source = tokens + more, torch.Generator()
    samples = positions.randomised(tokens, max_length, batch=batch, generator=source.manual_seed(seed))
    assert samples.dtype == torch.int64
    assert samples.shape == ((tokens,) if batch is None else (batch, tokens))
    assert (samples.diff(dim=-1) > 0).all(), "in order, none twice"
    assert samples.min() >= 0
    assert samples.max() < max_length
    again = positions.randomised(tokens, max_length, batch=batch, generator=source.manual_seed(seed))
    assert torch.equal(samples, again)


def test_randomised_positions_are_equally_likely():
    source = torch.Generator().manual_seed(0)
    samples = positions.randomised(3, 10, batch=20_000, generator=source)
    share = (
        samples.flatten().bincount(minlength=10) / 20_000
    )  # of draws that hold a position; standard deviation 0.0032
    assert (share - 0.3).abs().max() < 0.015
    pairs = (samples[:, 0] * 100 + samples[:, 1] * 10 + samples[:, 2]).unique(return_counts=True)[1]
    assert len(pairs) == 120, "each set of 3 out of 10"
    assert ((pairs - 20_000 / 120) ** 2 / (20_000 / 120)).sum() < 180  # chi squared, 119 degrees: mean 119, std 15.4


def test_randomised_rows_differ_and_reach_far():
    source = torch.Generator().manual_seed(0)
    samples = positions.randomised(512, 100_000, batch=4, generator=source)
    assert len(samples.unique(dim=0)) == 4
    assert (samples[:, -1] > 95_000).all()


def test_perturbed_stays_in_its_patch():
    source = torch.Generator().manual_seed(0)
    video = with_prefix(grid(3, 4, 5), 2)
    for _ in range(5):
        moved = perturbed(video, (3, 4, 5), intensity=3.0, generator=source)
        assert torch.equal(moved[:2], video[:2].float()), "no place, none taken"
        apart = (moved[2:] - centred(grid(3, 4, 5), (3, 4, 5))) * torch.tensor([3.0, 4.0, 5.0])
        assert not apart[:, 0].any(), "frames do not tremble"
        assert 0.4 < apart.abs().max() <= 0.5 + 1e-5
    everything = perturbed(grid(3, 4, 5), (3, 4, 5), still_axes=(), generator=source)
    assert (everything - centred(grid(3, 4, 5), (3, 4, 5)))[:, 0].any()


def test_perturbed_rows_draw_for_themselves():
    rows = grid(2, 2).expand(3, 4, 2)
    moved = perturbed(rows, 2, offset=1.0, generator=torch.Generator().manual_seed(0))
    assert len(moved.unique(dim=0)) == 3
    apart = perturbed(rows, 2, intensity=0.0, offset=1.0, generator=torch.Generator().manual_seed(0)) - centred(rows, 2)
    assert gap(apart, apart[:, :1].expand_as(apart)) < 1e-6, "one offset a row"
    assert perturbed(rows.double(), 2).dtype == torch.float64


def test_augmented_leaves_tokens_without_a_place():
    counted = with_prefix(signed(grid(4, 4), 4), 3)
    changed = augmented(counted, shift=0.5, jitter=2.0, rescale=2.0, generator=torch.Generator().manual_seed(0))
    assert torch.equal(changed[:3], counted[:3])
    assert (changed[3:] != counted[3:]).all()
    assert torch.equal(augmented(counted), counted)
    assert augmented(counted.double(), rescale=2.0).dtype == torch.float64
