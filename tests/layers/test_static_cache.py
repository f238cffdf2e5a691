"""Caches of fixed size: every encoding decodes as it does without one, and all steps are one graph."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from posenc import ALiBi, AxialRoPE, ForgetGate, RoPE
from posenc.catalogue import CATALOGUE
from posenc.layers import FoXPro, SelfAttention, StaticKVCache
from posenc.layers.cache import static
from posenc.positions import grid
from posenc.testing import Case
from posenc.testing.cases import tokens_of
from posenc.testing.decoding import Layer
from tests.samples import few_spectra, gap, mostly_slow

DIM, HEADS, LENGTH, WINDOW = 32, 4, 12, 4
CLOSE = 2e-5
TEXTS = [n for n, entry in CATALOGUE.items() if not entry.own_positions and Case.from_catalogue(n).axes == 1]


def layer(*encodings, **options) -> SelfAttention:
    torch.manual_seed(0)
    return SelfAttention(DIM, HEADS, encodings=encodings, **{"causal": True, **options}).requires_grad_(False)


def tokens(length=LENGTH, seed=1) -> torch.Tensor:
    return torch.randn(2, length, DIM, generator=torch.Generator().manual_seed(seed))


def in_pieces(module, x, sizes, cache, **options) -> torch.Tensor:
    cut = {name: tensor.split(sizes, -1) for name, tensor in options.items()}
    parts = enumerate(x.split(sizes, 1))
    return torch.cat([module(part, cache=cache, **{name: cut[name][i] for name in cut}) for i, part in parts], 1)


@pytest.mark.parametrize(("window", "way"), [(None, "by number"), (None, "by slot"), (WINDOW, "by slot")])
@pytest.mark.parametrize("name", few_spectra(TEXTS))
def test_every_encoding_of_texts(name, window, way, monkeypatch):
    if way == "by slot":  # as under a compiler and on a GPU
        monkeypatch.setattr(static, "stand_ins", lambda: True)
    case = Case.from_catalogue(name)
    full, x = Layer(case).requires_grad_(False), tokens_of(case, LENGTH, batch=2)
    for embedding in full.embeddings:
        x = embedding(x, torch.arange(LENGTH))
    module, sizes = full.attend, [4, 1, 1, 1, 3, 1, 1]
    length = {"length": LENGTH} if case.length_dependent else {}
    if name in ("path", "selective_rope", "grape_context") and window:
        with pytest.raises(ValueError, match="window"):
            module.static_cache(2, 9, window=window)
        return
    cache = module.static_cache(2, WINDOW + 5 if window else LENGTH + 3, window=window, **length)
    actual = torch.cat([module(part, cache=cache, **length) for part in x.split(sizes, 1)], 1)
    expected = module(x, window=window, **length)
    assert gap(actual, expected) < 1e-9


def test_left_padding_with_a_window():
    module, x = layer(RoPE(8), ALiBi(HEADS)), tokens()
    real = torch.arange(5) >= torch.tensor([[0], [3]])
    cache = module.static_cache(2, 8, window=WINDOW)
    first = module(x[:, :5], cache=cache, attention_mask=real)
    out = torch.cat([first, in_pieces(module, x[:, 5:], [1] * 7, cache)], 1)
    expected = module(x[1:, 3:], window=WINDOW)
    assert gap(out[1:, 3:], expected) < CLOSE
    for late in (torch.tensor([[True] * 2, [False, True]]), torch.tensor([[True, False]] * 2)):
        with pytest.raises(ValueError, match="attention_mask"):
            module(x[:, :2], cache=cache, attention_mask=late)
    assert int(cache.seen) == LENGTH


@pytest.mark.parametrize("float_positions", [False, True])
def test_positions_of_several_coordinates(float_positions):
    module, x = layer(AxialRoPE(8)), tokens()
    places = grid(3, 4) * 0.5 if float_positions else grid(3, 4)
    cache = module.static_cache(2, 16, position_dtype=torch.float32 if float_positions else torch.int64)
    out = [module(x[:, i : i + 1], places[i : i + 1], cache=cache) for i in range(LENGTH)]
    assert gap(torch.cat(out, 1), module(x, places)) < CLOSE
    with pytest.raises(ValueError, match="position_dtype"):
        module(x, places.float(), cache=module.static_cache(2, 16))


@torch.no_grad()
def test_several_crops_reach_no_further_back_than_one():
    module, x = layer(RoPE(8), window=WINDOW), tokens()
    cache = module.static_cache(2, WINDOW + 3)
    in_pieces(module, x, [3] * 4, cache)
    cache.crop(3)
    with pytest.raises(ValueError, match="at most 1"):
        cache.crop(2)
    cache.crop(1)
    assert gap(in_pieces(module, x[:, 8:], [1, 3], cache), module(x)[:, 8:]) < CLOSE
    cache.clear()
    assert gap(in_pieces(module, x[:, :4], [4], cache), module(x)[:, :4]) < CLOSE
    cache.crop(4)


class Counter:
    """A backend that counts graphs."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph.forward


@pytest.mark.parametrize(
    ("name", "window"),
    mostly_slow(
        [("rope", None), ("rope_layout", WINDOW), ("t5", None), ("fire", WINDOW), ("fox", None), ("xpos", None),
         ("stick-breaking", WINDOW), ("learned", None)],
        ("rope", None), ("stick-breaking", WINDOW),
    ),
)  # fmt: skip
def test_all_steps_are_one_graph(name, window):
    case = Case.from_catalogue(name.removesuffix("_layout"), {"layout": "interleaved"} if "_" in name else None)
    module, x = Layer(case).requires_grad_(False).attend, tokens_of(case, LENGTH, batch=2)
    expected = module(x, window=window)
    cache, counter = module.static_cache(2, LENGTH, window=window), Counter()
    module(x[:, :4], cache=cache)
    torch._dynamo.reset()
    step = torch.compile(module, fullgraph=True, backend=counter)
    with torch.no_grad():
        for at in range(4, LENGTH):
            assert gap(step(x[:, at : at + 1], cache=cache), expected[:, at : at + 1]) < 1e-9
    torch._dynamo.reset()
    assert counter.graphs == 1


class Step(nn.Module):
    """A layer with a cache of its own, to be exported."""

    def __init__(self, module, cache):
        super().__init__()
        self.layer, self.cache = module, cache

    def forward(self, token):
        return self.layer(token, cache=self.cache)


def test_a_step_can_be_exported():
    module, x = layer(RoPE(8), ALiBi(HEADS)), tokens()
    expected, step = module(x), Step(module, module.static_cache(2, LENGTH))
    assert not [name for name in step.state_dict() if name.startswith("cache")]
    program = torch.export.export(step, (x[:, :1],)).module()
    for at in range(LENGTH):
        assert gap(program(x[:, at : at + 1]), expected[:, at : at + 1]) < CLOSE


@pytest.mark.slow
def test_inductor_makes_the_same_steps():
    module, x = layer(RoPE(8)), tokens()
    expected, cache = module(x), module.static_cache(2, LENGTH)
    torch._dynamo.reset()
    step = torch.compile(module, fullgraph=True)
    with torch.no_grad():
        for at in range(LENGTH):
            assert gap(step(x[:, at : at + 1], cache=cache), expected[:, at : at + 1]) < CLOSE
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, c, x: m.static_cache(0, 8), "batch_size"),
        (lambda m, c, x: m.static_cache(2, 0), "capacity"),
        (lambda m, c, x: m.static_cache(2, 4, window=5), "capacity"),
        (lambda m, c, x: m(x, cache=c), "capacity"),
        (lambda m, c, x: m(x[:, :4], cache=c), "capacity"),
        (lambda m, c, x: m(x[:1, :1], cache=c), "cache"),
        (lambda m, c, x: m(x[:, :1], cache=c, window=3), "window"),
        (lambda m, c, x: m(x[:, :1], cache=c, length=8), "length"),
        (lambda m, c, x: FoXPro(DIM, HEADS)(x, cache=c), "cache"),
        (lambda m, c, x: m(x[:, :1], cache=c, mask=torch.ones(1, 6).bool()), "mask"),
        (lambda m, c, x: m(x[:, :1], cache=c, segments=torch.zeros(1)), "segments"),
        (lambda m, c, x: m(x[:, :1].requires_grad_(), cache=c), "static cache"),
        (lambda m, c, x: layer(ForgetGate(DIM, num_heads=HEADS))(x[:, :1], cache=c), "cache"),
        (lambda m, c, x: FoXPro(DIM, HEADS).static_cache(2, 8), "FoXPro"),
        (lambda m, c, x: c.crop(6), "tokens"),
        (lambda m, c, x: c.select(torch.tensor([0])), "rows"),
    ],
)
def test_refusals_name_the_argument_and_change_nothing(call, words):
    module, x = layer(RoPE(8)), tokens()
    expected, cache = module(x), module.static_cache(2, 8)
    assert isinstance(cache, StaticKVCache)
    module(x[:, :5], cache=cache)
    with pytest.raises(ValueError) as error:
        call(module, cache, x.clone())
    assert words in str(error.value)
    assert gap(module(x[:, 5:8], cache=cache), expected[:, 5:8]) < CLOSE
