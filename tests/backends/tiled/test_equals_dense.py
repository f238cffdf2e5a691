"""Every list of encodings by tiles equals the definition: at borders of blocks, across lengths, under every mask."""

from __future__ import annotations

import pytest

from tests.backends.tiled.compare import BORDERS, CROSS, SITUATIONS, expect_dense
from tests.samples import mostly_slow

COUNTS = (
    "cope", "cope scaled", "cope separate", "cope relative", "rope+cope", "rope+cope rotated", "cope+alibi+sticks",
)  # fmt: skip
STICKS = ("sticks", "sticks current", "sticks own", "sticks vector")
DISTANCES = ("alibi", "t5", "t5 both ways", "one row for all heads", "t5+fox", "alibi+per key")
KEYS = ("per key", "per key, one batch", "fox", "fox bias", "data_alibi", "fox+sticks")
VECTORS = ("shaw", "shaw far", "shaw keys", "xl", "xl clamped", "rope+xl", "shaw+sticks")
LISTS = (*COUNTS, *STICKS, *DISTANCES, *KEYS, *VECTORS, "fire", "t5+fire", "everything")
WITHOUT_POSITIONS = ("cope", "cope separate", *STICKS, *KEYS)  # which read no positions, so that these may be given


@pytest.mark.parametrize("length", mostly_slow(BORDERS, 1, 64, 65, 257))
@pytest.mark.parametrize("name", LISTS)
def test_borders_of_blocks(name, length):
    expect_dense(name, length)


@pytest.mark.parametrize(("queries", "keys"), CROSS)
@pytest.mark.parametrize("name", [name for name in LISTS if name not in ("t5+fire", "everything")])
def test_cross_lengths(name, queries, keys):
    expect_dense(name, queries, keys)
    expect_dense(name, queries, keys, causal=False)


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("name", LISTS)
def test_masks(name, situation):
    if situation != "by positions" or name in WITHOUT_POSITIONS:
        expect_dense(name, 70, 80, **SITUATIONS[situation](70, 80))
