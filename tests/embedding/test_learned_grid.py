"""Learned embedding of grids: rows, what lies between them, prefix rows, other sizes, tables of checkpoints."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from posenc import LearnedGrid
from posenc.positions import NO_POSITION, aligned, grid
from tests.samples import gap


def random_grid(size, *, dim=3, prefix=0, dtype=torch.float64, **options):
    torch.manual_seed(0)
    return LearnedGrid(dim, size=size, prefix=prefix, init_std=1.0, **options).to(dtype)


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize(("old", "new"), [((5,), (8,)), ((7,), (3,)), ((4, 9), (6, 6)), ((3, 5), (2, 11))])
def test_resizing_and_reading_between_rows_agree(old, new, mode):
    encoding = random_grid(old, interpolation=mode)
    positions = aligned(grid(*new).double(), new, old)  # of a new grid, in patches of the old one
    read = encoding.encode(positions.squeeze(-1) if len(old) == 1 else positions)
    assert gap(read, encoding.resized(new).table) < 1e-12
    if len(old) == 2:
        image = encoding.table.T.reshape(1, 3, *old)
        expected = F.interpolate(image, new, mode=mode, align_corners=False).flatten(2)[0].T
        assert gap(read, expected) < 1e-12


@pytest.mark.parametrize("size", [(5,), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_whole_coordinates_read_rows(size, mode):
    encoding, positions = random_grid(size, prefix=1, interpolation=mode), grid(*size)
    positions = positions.squeeze(-1) if len(size) == 1 else positions
    for dtype in (torch.int64, torch.int32, torch.int16, torch.float32, torch.float64):
        assert torch.equal(encoding.encode(positions.to(dtype)), encoding.table[1:]), dtype
    order = torch.randperm(len(positions))
    assert torch.equal(encoding.encode(positions[order]), encoding.table[1:][order])


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_rows_count_on_past_the_border(mode):
    encoding = random_grid((3, 4), interpolation=mode)
    corners = torch.tensor([[-0.5, -0.5], [2.5, 3.5]])
    if mode == "bilinear":
        assert gap(encoding.encode(corners), encoding.table[[0, -1]]) < 1e-12
    same = LearnedGrid.from_table(torch.ones(12, 3), (3, 4), interpolation=mode)
    assert gap(same.encode(corners), torch.ones(2, 3)) < 1e-6, "weights sum to 1 there too"


@pytest.mark.parametrize("floating", [False, True])
def test_prefix_rows(floating):
    encoding = random_grid((2, 2), prefix=2)
    positions = torch.cat([torch.tensor([[NO_POSITION, c] for c in (1, 0, 2, 7)]), grid(2, 2)])
    out = encoding.encode(positions.double() if floating else positions)
    assert torch.equal(out[:2], encoding.table[[1, 0]])
    assert not out[2:4].any(), "registers have no rows"
    assert torch.equal(out[4:], encoding.table[2:])
    out[2:4].sum().backward()
    assert not encoding.table.grad.any()


@pytest.mark.parametrize("floating", [False, True])
def test_no_prefix_rows_means_that_nothing_is_added(floating):
    encoding, x = random_grid((2, 2), dtype=torch.float32), torch.randn(2, 2, 3)
    positions = torch.tensor([[NO_POSITION, 0], [1, 1]])
    out = encoding(x, positions.float() if floating else positions)
    assert torch.equal(out[:, 0], x[:, 0])
    assert torch.equal(out[:, 1], x[:, 1] + encoding.table[3])


@pytest.mark.parametrize("prefix", [0, 1])
def test_one_axis_has_at_most_one_prefix_row(prefix):
    encoding = random_grid((4,), prefix=prefix)
    out = encoding.encode(torch.tensor([NO_POSITION, 2]))
    assert torch.equal(out[0], encoding.table[0] if prefix else torch.zeros(3, dtype=torch.float64))
    assert torch.equal(out[1], encoding.table[prefix + 2])


OUTSIDE = [(0, 5), (4, 0), (-1, 0), (NO_POSITION, -1), (0.0, 4.6), (-0.6, 0.0), (0.0, float("nan"))]


@pytest.mark.parametrize("wrong", OUTSIDE)
def test_no_place_outside_is_read(wrong):
    with pytest.raises(ValueError, match="positions"):
        random_grid((4, 5), prefix=1)(torch.zeros(1, 1, 3).double(), torch.tensor([wrong]))


@pytest.mark.parametrize(
    "wrong", [pytest.param(wrong, marks=[] if wrong in ((0, 5), (0.0, 4.6)) else pytest.mark.slow) for wrong in OUTSIDE]
)
def test_no_compiled_code_reads_a_neighbouring_row(wrong):
    """(0, 5) lies where row (1, 0) begins: compiled, where no value may be looked at, the lookup refuses it."""
    encoding = random_grid((4, 5), prefix=1)
    x, positions = torch.zeros(1, 1, 3).double(), torch.tensor([wrong])
    torch._dynamo.reset()
    with pytest.raises(IndexError):
        torch.compile(encoding, fullgraph=True, backend="eager")(x, positions)
    torch._dynamo.reset()


def test_initial_table():
    torch.manual_seed(0)
    encoding = LearnedGrid(64, size=(20, 20), prefix=2, init_std=0.1)
    assert encoding.table.shape == (402, 64)
    assert 0.095 < encoding.table.std() < 0.105


class TestResized:
    def test_same_size_is_a_copy_and_the_old_one_stays(self):
        encoding = random_grid((3, 4), prefix=2, interpolation="bilinear").eval()
        before = encoding.table.clone()
        same = encoding.resized((3, 4))
        assert torch.equal(same.table, before)
        assert same.table.data_ptr() != encoding.table.data_ptr()
        assert (same.size, same.prefix, same.interpolation) == ((3, 4), 2, "bilinear")
        assert (same.init_std, same.training, same.table.dtype) == (1.0, False, torch.float64)
        encoding.resized((9, 9)).table.data.zero_()
        assert torch.equal(encoding.table, before)

    def test_options(self):
        encoding = random_grid((4, 4))
        ends = encoding.resized((7, 7), mode="bilinear", align_corners=True)
        assert gap(ends.table.view(7, 7, 3)[::2, ::2], encoding.table.view(4, 4, 3)) < 1e-12
        assert ends.interpolation == "bicubic"
        assert gap(encoding.resized((2, 2)).table, encoding.resized((2, 2), antialias=True).table) > 1e-3


class TestFromTable:
    def test_copies(self):
        rows = torch.randn(1, 17, 3).bfloat16().requires_grad_()
        encoding = LearnedGrid.from_table(rows, interpolation="bilinear")
        assert (encoding.size, encoding.prefix, encoding.interpolation) == ((4, 4), 1, "bilinear")
        assert torch.equal(encoding.table, rows[0])
        assert encoding.table.is_leaf
        assert encoding.table.dtype == torch.bfloat16
        encoding.table.data.zero_()
        assert rows.any()

    def test_sizes_are_kept_where_the_table_shows_them(self):
        rows = torch.randn(1, 4, 9, 3)
        assert torch.equal(LearnedGrid.from_table(rows).encode(grid(4, 9)).view(1, 4, 9, 3), rows)
        with pytest.raises(ValueError, match=r"has size \(4, 9\)"):
            LearnedGrid.from_table(rows, (6, 6))

    def test_registers_take_no_rows(self):
        encoding = LearnedGrid.from_table(torch.randn(1, 17, 3))  # DINOv2 with four registers
        special = torch.tensor([[NO_POSITION, c] for c in range(5)])
        out = encoding.encode(torch.cat([special, grid(4, 4)]))
        assert torch.equal(out[[0, *range(5, 21)]], encoding.table)
        assert not out[1:5].any()
