"""How a call is cut into tiles: each pair of a query and a key that it sees lies in one tile, and tiles are small."""

from __future__ import annotations

import pkgutil

import pytest
import torch

from posenc.backends import tiled
from posenc.backends.inputs.visibility import VisibilityMask
from posenc.backends.tiled.gradients import add_transposed
from posenc.backends.tiled.softmax import Softmax
from posenc.backends.tiled.tiled_call import TiledCall, blocks, mask_of, parts
from tests.backends.tiled.compare import SITUATIONS, expect_dense
from tests.samples import gap, qkv

LISTS = ("t5", "fox", "shaw far", "xl", "cope separate", "fire", "sticks vector", "everything")


def work(queries, keys, *, causal=True, window=None, elements=1 << 12, batch=3) -> TiledCall:
    q, k, v = qkv(batch, 4, queries, keys, head_dim=2, num_kv_heads=2)
    visibility = VisibilityMask(causal, window, None, None, torch.arange(queries), torch.arange(keys))
    return TiledCall(q, k, v, [], Softmax(), visibility, 1.0, elements=elements)


@pytest.mark.parametrize("elements", [1, 1 << 12, 1 << 20])
@pytest.mark.parametrize(("causal", "window"), [(True, None), (False, None), (True, 7), (False, 7)])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (130, 130), (70, 150), (150, 70)])
def test_each_pair_lies_in_one_tile(queries, keys, causal, window, elements):
    call = work(queries, keys, causal=causal, window=window, elements=elements)
    seen = torch.zeros(3, 4, queries, keys, dtype=torch.long)
    for part in parts(call):
        assert part.k.shape[0] == (part.batch.stop - part.batch.start) * (part.kv.stop - part.kv.start)
        for tile in blocks(call, part):
            assert tile.heads == slice(2 * tile.kv.start, 2 * tile.kv.stop)
            assert tile.columns > 0
            keys_of_tile = slice(keys - tile.far, keys - tile.near)
            seen[tile.batch, tile.heads, tile.start : tile.stop, keys_of_tile] += 1
    visible = call.visibility.rows(0, queries, queries, keys)
    assert (seen.masked_select(visible.expand_as(seen)) == 1).all()
    assert seen.max() == 1, "no pair is looked at twice"


def test_tiles_are_no_larger_than_asked_for():
    call = work(512, 512, elements=64 * 512 * 2)
    for part in parts(call):
        for tile in blocks(call, part):
            assert (tile.batch.stop - tile.batch.start) * 2 * (tile.kv.stop - tile.kv.start) * tile.rows * 512 <= 65536


@pytest.mark.parametrize("situation", SITUATIONS)
def test_masks_of_tiles(situation):
    options = {"causal": True, "window": None, "mask": None, "segments": None, "q_pos": None, "k_pos": None}
    options |= SITUATIONS[situation](70, 80)
    if options["mask"] is not None:
        mask = options["mask"]
        options["mask"] = mask.view(*[1] * (4 - mask.ndim), *mask.shape)
    if options["segments"] is not None:
        rows = options["segments"].view(-1, 80)
        options["segments"] = rows[:, 10:], rows
    for side, tokens in (("q_pos", 70), ("k_pos", 80)):
        options[side] = torch.arange(tokens) if options[side] is None else options[side]
    call = work(70, 80, batch=2)._replace(visibility=VisibilityMask(**options))
    full = call.visibility.rows(0, 70, 70, 80)
    for part in parts(call):
        for tile in blocks(call, part):
            actual, expected = mask_of(call, tile), tile.of(full)[:, :, tile.start : tile.stop].flip(-1)
            expected = expected[..., tile.near : tile.far]
            assert actual is None or torch.equal(actual.exp() == 1, expected)
            assert actual is None or ((actual == 0) | (actual == -torch.inf)).all()
            assert actual is not None or expected.all() or call.visibility.causal is True


def test_add_transposed():
    total, left, right = torch.randn(4, 5, 6), torch.randn(2, 6, 7, 5), torch.randn(2, 6, 7, 6)
    expected = total + (left.mT @ right).view(2, 2, 3, 5, 6).sum(2).flatten(0, 1)
    add_transposed(total, left, right)
    assert gap(total, expected) < 1e-5


@pytest.mark.parametrize("elements", [1 << 8, 1 << 13])
@pytest.mark.parametrize("name", LISTS)
def test_parts_of_heads_and_of_the_batch_add_up(name, elements, monkeypatch):
    """One key head of one row at a time, and some: what heads share must be gathered over all of them."""
    modules = [getattr(tiled, result.name) for result in pkgutil.iter_modules(tiled.__path__)]
    for module in (module for module in modules if hasattr(module, "ELEMENTS")):
        monkeypatch.setattr(module, "ELEMENTS", elements)
    for options in ({}, SITUATIONS["mask of keys"](70, 80)):
        expect_dense(name, 70, 80, **options)
