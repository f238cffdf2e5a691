"""Where a tile lies, and how distances lie in it: views against plain loops."""

from __future__ import annotations

import pytest
import torch

from posenc.backends.tiled.tile import Tile, by_distance, diagonals, hidden_future, room, spread
from tests.samples import gap

SHAPES = [(1, 1), (1, 7), (5, 1), (4, 4), (3, 8), (8, 3)]


def tile(queries=7, keys=11, start=2, stop=6, near=1, far=9) -> Tile:
    return Tile(slice(0, 2), slice(2, 4), slice(1, 2), start, stop, near, far, queries, keys)


@pytest.mark.parametrize(("queries", "keys"), [(7, 11), (11, 7), (9, 9)])
def test_offset_is_the_distance_of_the_first_query_and_the_newest_key(queries, keys):
    part = tile(queries, keys, near=1, far=min(6, keys))
    for c in range(part.rows):
        for x in range(part.columns):
            own_key, key = part.start + c + keys - queries, keys - 1 - (part.near + x)
            assert part.offset + c + x == own_key - key


@pytest.mark.parametrize("heads", [1, 3])
def test_diagonals(heads):
    part = tile()
    row = torch.randn(heads, part.queries + part.keys - 1)
    result = diagonals(row, part)
    assert result.shape == (heads, part.rows, part.columns)
    for c in range(part.rows):
        for x in range(part.columns):
            n = part.offset + c + x
            assert torch.equal(result[:, c, x], row[:, n + part.queries - 1]), "row begins at n = −(queries − 1)"


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_by_distance(rows, columns):
    scores = torch.randn(2, 3, rows, columns)
    lying = room(scores)
    assert lying.shape == scores.shape
    lying.copy_(scores)
    for entries in range(1, rows + columns):
        actual = by_distance(lying, entries)
        expected = torch.zeros(2, 3, rows, entries)
        for c in range(rows):
            for x in range(columns):
                if c + x < entries:
                    expected[..., c, c + x] = scores[..., c, x]
        assert torch.equal(actual, expected)


def test_by_distance_demands_room():
    with pytest.raises(RuntimeError, match="room"):
        by_distance(torch.randn(2, 3, 4), 6)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_spread(rows, columns, transposed):
    for width in range(1, rows + columns):
        entries = torch.randn(2, 3, rows, width)
        scores = torch.randn(2, 3, rows, columns)
        expected = scores.clone()
        for c in range(rows):
            for x in range(columns):
                if c + x < width:
                    expected[..., c, x] += entries[..., c, c + x]
        spread(scores, entries.mT.contiguous().mT if transposed else entries)
        assert torch.equal(scores, expected)


@pytest.mark.parametrize("offset", [-9, -3, -1, 0, 2])
def test_hidden_future(offset):
    result = hidden_future(offset, 4, 6, like=torch.zeros((), dtype=torch.float64))
    assert result.dtype == torch.float64
    for c in range(4):
        for x in range(6):
            assert result[c, x] == (-torch.inf if offset + c + x < 0 else 0.0)


@pytest.mark.parametrize(("batch", "heads"), [(3, 5), (1, 5), (3, 1), (1, 1)])
def test_parts_of_the_whole_and_sums_over_what_is_shared(batch, heads):
    part = tile()
    full = torch.randn(batch, heads, 11)
    assert torch.equal(part.of(full), full[0 : min(batch, 2), 2:4] if heads > 1 else full[0:2])
    total, added = torch.zeros(batch, heads, 11), torch.randn(2, 2, 8)
    part.add_to(total, added, slice(part.near, part.far))
    expected = torch.zeros(3, 5, 11)
    expected[0:2, 2:4, 1:9] = added
    expected = expected.sum(0, keepdim=True) if batch == 1 else expected
    expected = expected.sum(1, keepdim=True) if heads == 1 else expected
    assert gap(total, expected) < 1e-6
