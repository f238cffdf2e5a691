"""Every list by tiles equals the definition: at borders of blocks, across lengths, under masks, in narrow types."""

from __future__ import annotations

import pkgutil

import pytest
import torch

from posenc.backends import tiles
from tests.backends.tiles.compare import BORDERS, CROSS, HEADS, SITUATIONS, errors, expect_dense, situation
from tests.samples import mostly_slow

COUNTS = (
    "cope", "cope scaled", "cope separate", "cope relative", "rope+cope rotated", "cope+alibi+sticks",
    "two copes+sticks",
)  # fmt: skip
STICKS = ("sticks", "sticks current", "sticks own", "sticks vector")
DISTANCES = ("alibi", "t5", "one row for all heads", "t5+fox", "alibi+per key")
KEYS = ("per key", "per key, one batch", "fox", "fox bias", "fox+sticks")
VECTORS = ("shaw", "shaw far", "shaw keys", "xl", "xl clamped", "shaw+sticks", "shaw+sticks own",
           "shaw+sticks current own")  # fmt: skip
MIXING = ("dape", "dape over fire", "terms+dape")  # of few queries the definition is taken
LISTS = ("nope", *COUNTS, *STICKS, *DISTANCES, *KEYS, *VECTORS, "fire", "t5+fire", "everything", *MIXING)
WITHOUT_POSITIONS = ("nope", "cope", "cope separate", *KEYS[:-1])  # so that these may be given


@pytest.mark.parametrize("length", mostly_slow(BORDERS, 1, 64, 65, 257))
@pytest.mark.parametrize("name", LISTS)
def test_borders_of_blocks(name, length):
    expect_dense(name, max(length, 17) if name in MIXING else length)


@pytest.mark.parametrize(("queries", "keys"), mostly_slow(CROSS, *CROSS[1::2]))
@pytest.mark.parametrize("name", [name for name in LISTS if name not in ("t5+fire", "everything")])
def test_cross_lengths(name, queries, keys):
    queries = max(queries, 17) if name in MIXING else queries
    expect_dense(name, queries, keys)
    expect_dense(name, queries, keys, causal=False)


@pytest.mark.parametrize("called", SITUATIONS)
@pytest.mark.parametrize("name", LISTS)
def test_situations(name, called):
    if not SITUATIONS[called].placed or name in WITHOUT_POSITIONS:
        expect_dense(name, 70, 80, **situation(called, 70, 80))


SHARING = ("t5", "fox", "shaw far", "xl", "cope separate", "fire", "sticks vector", "everything")


@pytest.mark.parametrize("elements", [1 << 8, 1 << 13])
@pytest.mark.parametrize("name", SHARING)
def test_parts_of_heads_and_of_the_batch_add_up(name, elements, monkeypatch):
    """One key head of one row at a time, and some: what heads share must be gathered over all of them."""
    modules = [getattr(tiles, result.name) for result in pkgutil.iter_modules(tiles.__path__)]
    for module in (module for module in modules if hasattr(module, "ELEMENTS")):
        monkeypatch.setattr(module, "ELEMENTS", elements)
    for options in ({}, {"mask": torch.rand(2, HEADS, 1, 80, generator=torch.Generator().manual_seed(1)) > 0.3}):
        expect_dense(name, 70, 80, **options)


BY_DISTANCE_AND_KEY = ("t5", "per key", "fox", "t5+fox", "fox+sticks")
NARROW = {  # how long the text is, and how far a result and its gradients may be off in float32, bfloat16, float16
    "nope": (300, 2e-6, 1e-2, 2e-3),
    **dict.fromkeys(BY_DISTANCE_AND_KEY, (600, 3e-4, 3e-2)),
    **dict.fromkeys(COUNTS[:6], (300, 3e-4, 3e-2)),
    **dict.fromkeys(VECTORS[:6], (300, 1e-5, 3e-2)),
    **dict.fromkeys(STICKS, (600, 2e-6, 1e-2)),
    **dict.fromkeys(("fire", "dape"), (300, 1e-4, 3e-2)),
    **dict.fromkeys(("cope separate", "everything"), (300, 3e-4)),
}
WITHOUT_GRADIENT = {  # zero, as every key of a row gains the same
    "fire": "0 FIRE.outer.bias", "dape": "0 DAPE.outer.bias", "everything": "1 FIRE.outer.bias",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [
        (name, dtype, tolerance)
        for name, (_, *tolerances) in NARROW.items()
        for dtype, tolerance in zip((torch.float32, torch.bfloat16, torch.float16), tolerances, strict=False)
    ],
)
def test_narrow_types_against_float64(name, dtype, tolerance):
    for options in ({}, {"window": 40}) if name == "nope" else ({},):
        result = errors(name, dtype, NARROW[name][0], **options)
        result.pop(WITHOUT_GRADIENT.get(name, ""), None)
        assert max(result.values()) < tolerance, result
        if dtype == torch.float32 and name in BY_DISTANCE_AND_KEY:
            assert result["result"] < 5e-6
