"""Vectors of the distance: products with queries, products with weights, and what a table does past its ends."""

from __future__ import annotations

import pytest
import torch

from tests.backends.tiled.compare import OF_INDICES, SITUATIONS, errors, expect_dense
from tests.samples import mostly_slow

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
