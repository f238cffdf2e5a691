"""Caches that forget: under a window, with or without sinks and padding, each encoding decodes as a mask has it."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, Learned, RoPE, T5Bias
from posenc.catalogue import CATALOGUE
from posenc.layers import FoXPro, KVCache, SelfAttention
from posenc.score import PaTH, Shaw
from posenc.testing import Case
from posenc.testing.decoding import Layer
from tests.layers.contents import contents, same
from tests.samples import few_spectra, gap

DIM, HEADS, LENGTH, WINDOW, SINKS = 32, 4, 23, 5, 2
CLOSE = 2e-5
PIECES = [1] * LENGTH, [9, 1, 1, 1, 4, 1, 6], [2, 1, 20]
SIZES = pytest.mark.parametrize("sizes", PIECES, ids=str)


def layer(*encodings, **options) -> SelfAttention:
    torch.manual_seed(0)
    return SelfAttention(DIM, HEADS, encodings=encodings, **options).requires_grad_(False)


def tokens(batch=2, length=LENGTH) -> torch.Tensor:
    return torch.randn(batch, length, DIM, generator=torch.Generator().manual_seed(1))


def sight(window=WINDOW, sinks=0, length=LENGTH) -> torch.Tensor:
    """The same as a mask: the last tokens, and the first ones."""
    index = torch.arange(length)
    return (index[:, None] - index < window) | (index < sinks)


def in_pieces(module, x, sizes, cache, **options) -> torch.Tensor:
    out, start = [], 0
    for size in sizes:
        here = slice(start, start + size)
        out.append(module(x[:, here], cache=cache, **{name: t[..., here] for name, t in options.items()}))
        start += size
    assert cache.seen == start
    return torch.cat(out, 1)


BY_ALL = ("path", "selective_rope", "grape_context")  # the queries of a call depend on one another
TEXTS = [n for n, entry in CATALOGUE.items() if not entry.own_positions and Case.from_catalogue(n).axes == 1]


@pytest.mark.parametrize("sinks", [0, SINKS])
@pytest.mark.parametrize("name", few_spectra(TEXTS))
def test_every_encoding_of_texts_decodes_as_the_mask_has_it(name, sinks):
    case = Case.from_catalogue(name)
    module = Layer(case).requires_grad_(False)
    x = torch.randn(2, LENGTH, case.dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    length = {"length": LENGTH} if case.length_dependent else {}
    if name in BY_ALL and sinks:
        with pytest.raises(ValueError, match="sinks"):
            module(x, cache=KVCache(window=WINDOW, sinks=sinks))
        return
    outer = module.attend
    here = case.positions(torch.arange(LENGTH))
    for embedding in module.embeddings:
        x = embedding(x, here)
    full = outer(x, mask=sight(sinks=sinks), **length) if sinks or name not in BY_ALL else outer(x, window=WINDOW)
    for sizes in PIECES:
        cache = KVCache(window=WINDOW, sinks=sinks)
        result = torch.cat([outer(part, cache=cache, **length) for part in x.split(sizes, 1)], 1)
        if name in BY_ALL:  # what its window shows depends on which queries are in a call: `Scope.by_rows`
            assert len(cache) == LENGTH, "nothing is forgotten"
        else:
            assert len(cache) == WINDOW - 1 + sinks, sizes
            assert gap(result, full) < 1e-9, sizes


@SIZES
def test_the_window_of_the_call_forgets_too(sizes):
    module, x = layer(RoPE(8)), tokens()
    cache, out = KVCache(), []
    for part in x.split(sizes, 1):
        out.append(module(part, cache=cache, window=WINDOW))
        assert len(cache) == min(cache.seen, WINDOW - 1)
    assert gap(torch.cat(out, 1), module(x, window=WINDOW)) < CLOSE


def test_memory_is_bounded_by_the_window():
    module, x, cache = layer(RoPE(8)), tokens(length=40), KVCache(window=WINDOW)
    for _ in range(20):
        for token in x.split(1, 1):
            module(token, cache=cache)
    assert cache.seen == 800
    assert cache.next == 800
    assert cache.k.untyped_storage().nbytes() == 64 * cache.k[..., :1, :].numel() * cache.k.element_size()


COUNTED = (
    list,
    lambda: [RoPE(8)],
    lambda: [T5Bias(HEADS, init_std=1.0)],
    lambda: [Shaw(8, max_distance=3, init_std=1.0), Learned(DIM, max_length=99, init_std=1.0)],
)


@SIZES
@pytest.mark.parametrize("sinks", [0, SINKS])
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("build", COUNTED)
def test_a_window_counts_real_tokens(build, learns, sinks, sizes):
    module, x = layer(*build()).requires_grad_(learns), tokens()
    real = torch.ones(2, LENGTH, dtype=torch.bool)
    real[1, [0, 1, 2, 8, 9, 10, 11, 20, 21]] = False
    out = in_pieces(module, x, sizes, KVCache(window=WINDOW, sinks=sinks), attention_mask=real)
    once = module(x, attention_mask=real, window=WINDOW)
    for row in range(2):
        alone = x[row : row + 1, real[row]]
        expected = module(alone, mask=sight(sinks=sinks, length=alone.shape[1]))
        assert gap(out[row : row + 1, real[row]], expected) < CLOSE
        assert gap(once[row : row + 1, real[row]], module(alone, window=WINDOW)) < CLOSE


def test_a_mask_may_cover_what_is_kept_or_all():
    module, x = layer(RoPE(8)), tokens()
    mask = torch.rand(LENGTH, LENGTH, generator=torch.Generator().manual_seed(2)) < 0.7
    expected = module(x, mask=mask & sight(sinks=SINKS))
    for over_all in (True, False):
        cache, out = KVCache(window=WINDOW, sinks=SINKS), []
        for step in range(LENGTH):
            row = mask[step : step + 1, : step + 1]
            if not over_all and cache.detached_sinks:
                row = torch.cat([row[:, :SINKS], row[:, len(row[0]) - (len(cache) + 1 - SINKS) :]], 1)
            out.append(module(x[:, step : step + 1], cache=cache, mask=row))
        assert gap(torch.cat(out, 1), expected) < CLOSE


def test_a_window_that_forgot_cannot_widen():
    module, x, cache = layer(RoPE(8)), tokens(), KVCache()
    module(x[:, :4], cache=cache, window=5)
    module(x[:, 4:8], cache=cache, window=8)
    module(x[:, 8:9], cache=cache, window=5)
    before = contents(cache)
    for window in (6, None):
        with pytest.raises(ValueError, match="window"):
            module(x[:, 9:10], cache=cache, window=window)
    assert same(contents(cache), before)
    module(x[:, 9:10], cache=cache, window=3)
    with pytest.raises(ValueError, match="window"):
        module(x[:, 9:10], cache=cache, window=5)
    with pytest.raises(ValueError, match="window"):
        module(x, cache=KVCache(window=4), window=5)


def test_orders_of_given_positions_forget_nothing():
    module, x = layer(ALiBi(HEADS), causal="positions"), tokens()
    order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(3))
    cache = KVCache(window=WINDOW)
    for at in range(LENGTH):
        out = module(x[:, at : at + 1], order[at : at + 1], cache=cache)
    assert len(cache) == LENGTH
    assert gap(out, module(x, order, window=WINDOW)[:, -1:]) < CLOSE
    counted = in_pieces(module, x, [1] * LENGTH, KVCache(window=WINDOW))
    assert gap(counted, layer(ALiBi(HEADS))(x, window=WINDOW)) < CLOSE


def test_sinks_with_documents_and_unknown_neighbours_are_refused():
    x = tokens()
    with pytest.raises(ValueError, match="sinks"):
        layer()(x, segments=torch.zeros(LENGTH), cache=KVCache(window=4, sinks=1))
    with pytest.raises(ValueError, match="sinks"):
        layer(PaTH(DIM, head_dim=8, num_kv_heads=HEADS))(x, cache=KVCache(window=4, sinks=1))


def test_fox_pro_forgets():
    torch.manual_seed(0)
    module, x = FoXPro(DIM, HEADS, encodings=[RoPE(8)], init_std=0.4).requires_grad_(False), tokens()
    cache = KVCache(window=WINDOW)
    assert gap(in_pieces(module, x, [1] * LENGTH, cache), module(x, window=WINDOW)) < CLOSE
    assert len(cache) == WINDOW - 1


@pytest.mark.parametrize("sinks", [0, SINKS])
def test_gradients_flow_through_a_cache_that_forgets(sinks):
    module, x = layer(RoPE(8)).requires_grad_(True), tokens().requires_grad_()
    full = module(x, mask=sight(sinks=sinks))
    expected = torch.autograd.grad(full.square().sum(), [x, *module.parameters()])
    steps = in_pieces(module, x, [4, 1, 1, 5, 1, 11], KVCache(window=WINDOW, sinks=sinks))
    actual = torch.autograd.grad(steps.square().sum(), [x, *module.parameters()])
    for a, b in zip(actual, expected, strict=True):
        assert gap(a, b) < 1e-3 * b.abs().max()
