"""The cache: what it keeps, and that it grows only as a whole."""

from __future__ import annotations

import pytest
import torch

from posenc import RoPE
from posenc.layers import KVCache, SelfAttention
from tests.samples import gap


def tokens(n, batch=2, start=0):
    k = torch.arange(start, start + n, dtype=torch.float32).view(1, 1, n, 1).expand(batch, 2, n, 4)
    return k, -k


def grow(cache, n, batch=2, features=(), **options):
    draft = cache.extended(*tokens(n, batch, cache.seen), list(features), **options)
    assert draft.k.shape == draft.v.shape
    cache.take(draft)
    return cache


def test_keys_and_values_lie_end_to_end():
    cache = KVCache()
    assert len(cache) == 0
    for n in (3, 1, 2):
        grow(cache, n)
    assert len(cache) == 6
    assert cache.k[1, 0, :, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert torch.equal(cache.v, -cache.k)
    assert cache.positions is cache.attention_mask is cache.segments is None


def test_what_was_not_given_counts_on_or_is_real():
    cache = grow(KVCache(), 2)
    grow(cache, 2, positions=torch.tensor([9, 10]), attention_mask=torch.tensor([[True, True], [False, True]]))
    grow(cache, 1, positions=torch.tensor([4]))
    assert cache.positions.tolist() == [[0, 1, 9, 10, 4]]
    assert cache.attention_mask.tolist() == [[True] * 5, [True, True, False, True, True]]
    with pytest.raises(ValueError, match="positions"):
        grow(cache, 1)


def test_rows_may_come_to_differ():
    cache = grow(KVCache(), 2, positions=torch.tensor([0, 1]), segments=torch.tensor([0, 0]))
    grow(cache, 1, positions=torch.tensor([[2], [7]]), segments=torch.tensor([[0], [1]]))
    assert cache.positions.tolist() == [[0, 1, 2], [0, 1, 7]]
    assert cache.segments.tolist() == [[0, 0, 0], [0, 0, 1]]


def test_positions_of_several_coordinates():
    cache = KVCache()
    grow(cache, 2, positions=torch.tensor([[0, 1], [0, 2]]), axes=2)
    grow(cache, 1, positions=torch.tensor([[[1, 0]], [[5, 7]]]), axes=2)
    assert cache.positions.tolist() == [[[0, 1], [0, 2], [1, 0]], [[0, 1], [0, 2], [5, 7]]]
    bare = grow(KVCache(), 2)
    for remaining, value in ((cache, None), (KVCache(), None), (bare, torch.tensor([[0, 1]]))):
        with pytest.raises(ValueError, match="positions"):
            grow(remaining, 1, positions=value, axes=2)


def test_features_of_encodings_are_kept():
    cache = KVCache()
    for n in (2, 1):
        grow(cache, n, features=[None, torch.full((2, 4, n), float(n))])
    assert cache.features[0] is None
    assert cache.features[1][0, 0].tolist() == [2, 2, 1]


def test_a_draft_leaves_the_cache_alone():
    cache = grow(KVCache(), 2)
    for _ in range(2):
        draft = cache.extended(*tokens(1, start=5), [])
        assert draft.k[0, 0, :, 0].tolist() == [0, 1, 5]
        assert cache.k[0, 0, :, 0].tolist() == [0, 1]
    grow(cache, 1)
    assert cache.k[0, 0, :, 0].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="pending"):
        cache.take(draft)


@pytest.mark.parametrize(
    ("options", "batch", "words"),
    [
        ({"segments": torch.zeros(1)}, 2, "segments"),
        ({}, 3, "batch"),
    ],
)
def test_refusals_name_the_argument(options, batch, words):
    cache = grow(KVCache(), 2)
    with pytest.raises(ValueError) as error:
        cache.extended(*tokens(1, batch), [], **options)
    assert words in str(error.value)


def test_steps_count_on():
    """Also after a crop, a chunk, and a step in inference mode."""
    layer, x = SelfAttention(16, 2, encodings=[RoPE(8)]).eval(), torch.randn(1, 150, 16)
    cache = KVCache()
    with torch.no_grad():
        full = layer(x)
        for at in range(70):
            assert gap(layer(x[:, at : at + 1], cache=cache), full[:, at : at + 1]) < 1e-5
        cache.crop(10)
        for at in [60, 61]:
            assert gap(layer(x[:, at : at + 1], cache=cache), full[:, at : at + 1]) < 1e-5
        layer(x[:, 62:148], cache=cache)
        assert gap(layer(x[:, 148:149], cache=cache), full[:, 148:149]) < 1e-5
        with torch.inference_mode():
            layer(x[:, 149:], cache=cache)
    assert cache.next == 150
