"""Vectors of the distance: products with queries, products with weights, and what a table does past its ends."""

from __future__ import annotations

import pytest
import torch

from posenc.backends.tiled.tile import Tile, room
from posenc.backends.tiled.vectors import add_products, products, reach
from tests.backends.tiled.compare import OF_INDICES, SITUATIONS, errors, expect_dense
from tests.samples import gap, mostly_slow

LISTS = ("shaw", "shaw far", "shaw keys", "xl", "xl clamped", "rope+xl", "shaw+sticks")


@pytest.mark.parametrize("situation", mostly_slow(OF_INDICES, "window", "mask of all"))
@pytest.mark.parametrize("name", ["shaw+sticks own", "shaw+sticks current own"])
def test_values_of_the_distance_for_the_weight_that_is_left(name, situation):
    """What the own key gets reads the table's row of distance 0."""
    expect_dense(name, 70)
    expect_dense(name, 70, 80, **SITUATIONS[situation](70, 80))
    expect_dense(name, 3, 80)


@pytest.mark.parametrize("name", LISTS)
def test_narrow_types_against_float64(name):
    assert max(errors(name, torch.float32).values()) < 1e-5
    result = errors(name, torch.bfloat16)
    assert max(result.values()) < 3e-2, result


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("first", [-20, -3, 0])
@pytest.mark.parametrize("count", [1, 2, 6, 40])
@pytest.mark.parametrize("near", [0, 2, 6])
def test_products_against_loops(near, count, first, heads):
    """Distances before the first row take the first, those past the last take the last."""
    tile = Tile(slice(0, 2), slice(0, 2), slice(0, 2), 1, 5, near, 9, 7, 9)
    shape = (2, 2, tile.rows, tile.columns)
    left, rows = torch.randn(*shape[:3], 3, dtype=torch.float64), torch.randn(heads, count, 3, dtype=torch.float64)
    n = tile.offset + torch.arange(tile.rows)[:, None] + torch.arange(tile.columns)
    of_pairs = rows[:, (n - first).clamp(0, count - 1)]  # (heads, rows, columns, 3)
    scores = torch.randn(shape, dtype=torch.float64)
    expected = scores + torch.einsum("bhcw,hcxw->bhcx", left, of_pairs.expand(2, -1, -1, -1))
    at = reach(tile, first, count)
    actual = scores.clone()
    add_products(actual, left, rows, at)
    assert gap(actual, expected) < 1e-12
    lying, of_rows = room(scores).copy_(scores), torch.zeros_like(rows)
    actual = products(lying, rows, at, left, of_rows)
    assert gap(actual, torch.einsum("bhcx,hcxw->bhcw", scores, of_pairs.expand(2, -1, -1, -1))) < 1e-12
    expected = torch.zeros(2, count, 3, dtype=torch.float64)
    each = torch.einsum("bhcx,bhcw->hcxw", scores, left)
    for c in range(tile.rows):
        for x in range(tile.columns):
            expected[:, (n[c, x] - first).clamp(0, count - 1)] += each[:, c, x]
    assert gap(of_rows, expected.sum(0, keepdim=True) if heads == 1 else expected) < 1e-12
