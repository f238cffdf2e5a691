"""The cache: what it keeps, and that it grows only as a whole."""

from __future__ import annotations

import pytest
import torch

from posenc.layers import KVCache
from posenc.layers.cache.keys import NewTokens


def tokens(n, batch=2, start=0):
    k = torch.arange(start, start + n, dtype=torch.float32).view(1, 1, n, 1).expand(batch, 2, n, 4)
    return k, -k


def grow(cache, n, batch=2, **options):
    given = options.get("positions") is not None
    draft = cache._extended(NewTokens(*tokens(n, batch, cache.seen), positions_from_caller=given, **options))
    assert draft.k.shape == draft.v.shape
    cache._take(draft)
    return cache


def test_what_was_not_given_counts_on_or_is_real():
    cache = grow(KVCache(), 2)
    grow(cache, 2, positions=torch.tensor([9, 10]), attention_mask=torch.tensor([[True, True], [False, True]]))
    grow(cache, 1, positions=torch.tensor([4]))
    assert cache.positions.tolist() == [[0, 1, 9, 10, 4]]
    assert cache.attention_mask.tolist() == [[True] * 5, [True, True, False, True, True]]
    with pytest.raises(ValueError, match="positions"):
        grow(cache, 1)


def test_positions_of_several_coordinates():
    cache = KVCache()
    grow(cache, 2, positions=torch.tensor([[0, 1], [0, 2]]), axes=2)
    grow(cache, 1, positions=torch.tensor([[[1, 0]], [[5, 7]]]), axes=2)
    assert cache.positions.tolist() == [[[0, 1], [0, 2], [1, 0]], [[0, 1], [0, 2], [5, 7]]]
    bare = grow(KVCache(), 2)
    for remaining, value in ((cache, None), (KVCache(), None), (bare, torch.tensor([[0, 1]]))):
        with pytest.raises(ValueError, match="positions"):
            grow(remaining, 1, positions=value, axes=2)


def test_a_draft_leaves_the_cache_alone():
    cache = grow(KVCache(), 2)
    for _ in range(2):
        draft = cache._extended(NewTokens(*tokens(1, start=5)))
        assert draft.k[0, 0, :, 0].tolist() == [0, 1, 5]
        assert cache.k[0, 0, :, 0].tolist() == [0, 1]
    grow(cache, 1)
    assert cache.k[0, 0, :, 0].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="keys"):
        cache._take(draft)
