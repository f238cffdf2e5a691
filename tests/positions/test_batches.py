"""Rows of different contents, padded into a batch or packed into a row."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.positions import grid, packed, padded
from tests.samples import bounded

lengths = st.lists(st.integers(0, 6), min_size=1, max_size=4)


@bounded
@given(lengths, st.sampled_from(["left", "right"]), st.booleans())
def test_padded_rows_come_back(sizes, side, coordinates):
    rows = [grid(n, 2)[:n] + 3 if coordinates and n else torch.zeros(n, *[2] * coordinates).long() for n in sizes]
    filled, mask = padded(rows, side=side)
    assert filled.shape[:2] == mask.shape == (len(rows), max(sizes))
    assert not filled[~mask].any(), "padding is at 0"
    for row, got, here in zip(rows, filled, mask, strict=True):
        assert torch.equal(got[here], row)
        padding = here if side == "left" else here.flip(0)
        assert torch.equal(padding, padding.sort().values), f"padding lies on the {side}"


@bounded
@given(lengths)
def test_packed_documents(sizes):
    documents = [torch.arange(n) for n in sizes]
    row, segments = packed(documents)
    assert row.tolist() == [p for n in sizes for p in range(n)]
    assert segments.tolist() == [i for i, n in enumerate(sizes) for _ in range(n)]


def test_packed_grids():
    row, segments = packed([grid(2, 3), grid(1, 2)])
    assert row.tolist() == [*grid(2, 3).tolist(), [0, 0], [0, 1]]
    assert segments.tolist() == [0] * 6 + [1] * 2


def test_rows_of_two_dtypes_keep_their_positions():
    counted, measured = torch.arange(3), torch.tensor([0.5, 1.5])
    assert padded([counted, measured])[0].tolist() == [[0.0, 1.0, 2.0], [0.0, 0.5, 1.5]]
    assert packed([counted.int(), counted + 2**40])[0].tolist() == [0, 1, 2, 2**40, 2**40 + 1, 2**40 + 2]
