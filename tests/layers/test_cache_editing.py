"""What is done to a cache between calls: rows chosen, tokens forgotten, copies, capacity, other modes of autograd."""

from __future__ import annotations

import copy

import pytest
import torch

from posenc import ALiBi, DynamicNTK, ForgetGate, RoPE
from posenc.layers import FoXPro, KVCache, SelfAttention
from posenc.score import CoPE
from tests.layers.contents import contents, same
from tests.samples import gap

DIM, HEADS, LENGTH = 32, 4, 14
CLOSE = 1e-5


def layer(learns=False) -> SelfAttention:
    torch.manual_seed(0)
    encodings = [RoPE(8), ALiBi(HEADS), ForgetGate(DIM, num_heads=HEADS)]
    return SelfAttention(DIM, HEADS, encodings=encodings, num_kv_heads=2).requires_grad_(learns)


def tokens(batch=3, length=LENGTH, seed=1) -> torch.Tensor:
    return torch.randn(batch, length, DIM, generator=torch.Generator().manual_seed(seed))


def filled(module, x, **options) -> KVCache:
    cache = KVCache(**options)
    module(x, cache=cache)
    return cache


@pytest.mark.parametrize("sinks", [0, 2])
def test_slack_lets_a_window_be_cropped(sinks):
    module, x = layer(), tokens()
    index = torch.arange(LENGTH)
    expected = module(x, mask=(index[:, None] - index < 4) | (index < sinks))
    cache = KVCache(window=4, slack=3, sinks=sinks)
    wrong = tokens(seed=2)
    for step in range(LENGTH - 1):
        guess = min(3, LENGTH - step)
        module(wrong[:, step : step + guess], cache=cache)
        cache.crop(guess)
        assert gap(module(x[:, step : step + 1], cache=cache), expected[:, step : step + 1]) < CLOSE
    with pytest.raises(ValueError, match="slack=4"):
        cache.crop(4)
    bare = filled(module, x, window=4)
    before = contents(bare)
    with pytest.raises(ValueError, match="slack=1"):
        bare.crop(1)
    assert same(contents(bare), before)


def test_capacity():
    module, x = layer(), tokens()
    full, cache = module(x), KVCache(capacity=10)
    module(x[:, :9], cache=cache)
    memory = cache.k.untyped_storage().data_ptr()
    module(x[:, 9:10], cache=cache)
    before = contents(cache)
    with pytest.raises(ValueError, match="capacity"):
        module(x[:, 10:11], cache=cache)
    assert same(contents(cache), before)
    cache.clear()
    assert gap(module(x[:, :4], cache=cache), full[:, :4]) < CLOSE
    assert cache.k.untyped_storage().data_ptr() == memory, "made once"
    cache.clear()
    module(tokens(batch=1), cache=KVCache(capacity=LENGTH))
    with pytest.raises(ValueError, match="capacity"):
        module(x, cache=cache)
    windowed = KVCache(capacity=6, window=4, sinks=2)
    index = torch.arange(LENGTH)
    expected = module(x, mask=(index[:, None] - index < 4) | (index < 2))
    assert gap(torch.cat([module(part, cache=windowed) for part in x.split([12, 1, 1], 1)], 1), expected) < CLOSE


def test_a_step_writes_where_the_past_lies():
    module, x = layer(), tokens()
    cache = filled(module, x[:, :8])
    remaining = cache.k.untyped_storage().data_ptr(), cache.token_states[2].untyped_storage().data_ptr()
    for step in range(8, LENGTH):
        module(x[:, step : step + 1], cache=cache)
    assert remaining == (cache.k.untyped_storage().data_ptr(), cache.token_states[2].untyped_storage().data_ptr())
    assert (cache.k.shape, cache.token_states[2].shape) == ((3, 2, LENGTH, 8), (3, HEADS, LENGTH))


@pytest.mark.parametrize("sizes", [[8, 1, 5], [1] * LENGTH], ids=str)
def test_training_through_a_cache(sizes):
    module, x = layer(learns=True), tokens().requires_grad_()
    expected = torch.autograd.grad(module(x).square().sum(), [x, *module.parameters()])
    cache = KVCache()
    out = torch.cat([module(part, cache=cache) for part in x.split(sizes, 1)], 1)
    for actual, exact in zip(torch.autograd.grad(out.square().sum(), [x, *module.parameters()]), expected, strict=True):
        assert gap(actual, exact) < 1e-4 * exact.abs().max()


def test_only_what_learns_decides():
    """Frozen projections of keys, a query that learns: what autograd keeps of the keys may not be written over."""
    module, x = layer(), tokens()
    module.q_proj.requires_grad_(True)
    expected = torch.autograd.grad(module(x).square().sum(), list(module.q_proj.parameters()))[0]
    cache = KVCache()
    out = torch.cat([module(part, cache=cache) for part in x.split(1, 1)], 1)
    assert gap(torch.autograd.grad(out.square().sum(), list(module.q_proj.parameters()))[0], expected) < 1e-4


@pytest.mark.parametrize("sizes", [[10], [8, 2]], ids=str)
def test_what_autograd_keeps_is_not_written_over_after_a_crop(sizes):
    module, x = SelfAttention(DIM, HEADS, encodings=[RoPE(8)]), tokens()
    expected = torch.autograd.grad(module(x[:, :10]).square().sum(), list(module.parameters()))
    cache = KVCache()
    out = torch.cat([module(part, cache=cache) for part in x[:, :10].split(sizes, 1)], 1)
    cache.crop(2)
    with torch.no_grad():
        module(tokens(seed=2)[:, :1], cache=cache)
    for actual, exact in zip(torch.autograd.grad(out.square().sum(), list(module.parameters())), expected, strict=True):
        assert gap(actual, exact) < 1e-4 * exact.abs().max()


@torch.no_grad()
def test_a_copy_keeps_its_positions_when_rows_of_the_original_change():
    """One row of positions serves all rows of a batch, and both caches."""
    module, x, at = layer(), tokens(), 3 * torch.arange(LENGTH)
    cache = KVCache()
    module(x[:, :8], at[:8], cache=cache)
    fork = copy.copy(cache)
    cache.select(torch.tensor([2, 1, 0]))
    cache.crop(4)
    module(x.flip(0)[:, 4:6], at[4:6] + 1, cache=cache)
    assert torch.equal(fork.positions, at[None, :8])
    assert gap(module(x[:, 8:9], at[8:9], cache=fork), module(x, at)[:, 8:9]) < CLOSE


def test_fox_pro_follows_its_rows_and_refuses_to_forget_its_newest():
    torch.manual_seed(0)
    module, x = FoXPro(DIM, HEADS, encodings=[RoPE(8)], init_std=0.4).requires_grad_(False), tokens()
    full, rows = module(x), torch.tensor([2, 0, 0, 1])
    cache = filled(module, x[:, :9])
    cache.select(rows)
    assert gap(module(x[rows, 9:], cache=cache), full[rows, 9:]) < CLOSE
    with pytest.raises(ValueError, match="FoXPro"):
        cache.crop(1)
    cache.crop(LENGTH)
    assert gap(module(x, cache=cache), full) < CLOSE


def test_precisions_and_layers_do_not_mix():
    module, x = layer(), tokens()
    cache = filled(module, x[:, :5])
    before = contents(cache)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="cache"):
        module(x[:, 5:], cache=cache)
    gate = ForgetGate(DIM, num_heads=HEADS)
    for encodings in ([RoPE(8)], [RoPE(8), gate, ALiBi(HEADS)], [RoPE(8), ALiBi(HEADS), gate, ALiBi(HEADS)]):
        other = SelfAttention(DIM, HEADS, encodings=encodings, num_kv_heads=2).requires_grad_(False)
        with pytest.raises(ValueError, match="cache"):
            other(x[:, 5:], cache=cache)
    with pytest.raises(ValueError, match="cache"):
        SelfAttention(DIM, HEADS, encodings=list(module.encodings)).requires_grad_(False)(x[:, 5:], cache=cache)
    assert same(contents(cache), before)


def test_tables_of_a_length_dependent_rotation_need_a_declared_length_with_content() -> None:
    """Encodings that read unrotated keys keep them, so that a table of one call says nothing of the next."""
    rope = RoPE(8, scaling=DynamicNTK(2.0, original_length=4))
    module, x = SelfAttention(32, 4, encodings=[rope, CoPE(8, max_position=4)]), torch.randn(1, 5, 32)
    with pytest.raises(ValueError, match="tables"):
        module(x, tables=[rope.table(torch.arange(5))], cache=KVCache())
