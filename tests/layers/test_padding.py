"""Padding and documents without given positions: a row has the results that it would have alone."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, RoPE, Sinusoidal, T5Bias
from posenc.bias import FIRE
from posenc.catalogue import CATALOGUE
from posenc.embedding import Abacus
from posenc.layers import KVCache, SelfAttention
from posenc.positions import from_mask
from posenc.testing import Case
from posenc.testing.cases import tokens_of
from posenc.testing.decoding import Layer
from tests.samples import few_spectra, gap

DIM, HEADS, LENGTH = 32, 4, 12
CLOSE = 2e-5
HOLES = {"left": [(0, 4)], "middle": [(3, 5), (8, 10)]}


def layer(*encodings, **options) -> SelfAttention:
    torch.manual_seed(0)
    return SelfAttention(DIM, HEADS, encodings=encodings, **options).requires_grad_(False)


def tokens(length=LENGTH) -> torch.Tensor:
    return torch.randn(2, length, DIM, generator=torch.Generator().manual_seed(1))


def padded(where) -> torch.Tensor:
    real = torch.ones(2, LENGTH, dtype=torch.bool)
    for start, stop in HOLES[where]:
        real[1, start:stop] = False
    return real


def in_pieces(module, x, sizes, **options) -> torch.Tensor:
    cache, cut = KVCache(), {name: tensor.split(sizes, -1) for name, tensor in options.items()}
    parts = enumerate(x.split(sizes, 1))
    return torch.cat([module(part, cache=cache, **{name: cut[name][i] for name in cut}) for i, part in parts], 1)


TEXTS = [n for n, entry in CATALOGUE.items() if not entry.own_positions and Case.from_catalogue(n).axes == 1]


@pytest.mark.parametrize("where", HOLES)
@pytest.mark.parametrize("name", few_spectra(TEXTS))
def test_padding_alone_is_enough_for_every_encoding(name, where):
    case, real = Case.from_catalogue(name), padded(where)
    full, x = Layer(case).requires_grad_(False), tokens_of(case, LENGTH, batch=2)
    for embedding in full.embeddings:
        x = embedding(x, from_mask(real))
    module = full.attend
    length = {"length": LENGTH} if case.length_dependent else {}
    out = module(x, attention_mask=real, **length)
    steps = in_pieces(lambda part, **options: module(part, **options, **length), x, [1, 6, 1, 4], attention_mask=real)
    for row in range(2):
        actual = x[row : row + 1, real[row]]
        alone = module(actual, **length)
        assert gap(out[row : row + 1, real[row]], alone) < 1e-9
        assert gap(steps[row : row + 1, real[row]], alone) < 1e-9
        if length:  # undeclared: each row spans its own real tokens
            assert gap(module(x, attention_mask=real)[row : row + 1, real[row]], module(actual)) < 1e-9


@pytest.mark.parametrize("sizes", [[LENGTH], [1] * LENGTH, [5, 4, 3]], ids=str)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("hole", [False, True])
@pytest.mark.parametrize("build", [lambda: [Sinusoidal(DIM)], lambda: [FIRE(HEADS)], lambda: [RoPE(8), ALiBi(HEADS)]])
def test_documents_count_by_themselves(build, hole, shared, sizes):
    module, x = layer(*build()), tokens()
    segments = torch.tensor([7] * 4 + [3] + [9] * 5 + [2] * 2)
    segments = segments if shared else torch.stack([segments, torch.tensor([4] * 6 + [1] * 6)])
    remaining = {"segments": segments}
    real = torch.ones(2, LENGTH, dtype=torch.bool)
    if hole:
        real[:, [0, 6, 11]] = False
        remaining["attention_mask"] = real
    out = in_pieces(module, x, sizes, **remaining)
    once = module(x, **remaining)
    for row in range(2):
        of_row = segments if shared else segments[row]
        for number in of_row.unique():
            actual = (of_row == number) & real[row]
            alone = module(x[row : row + 1, actual])
            assert gap(out[row : row + 1, actual], alone) < CLOSE
            assert gap(once[row : row + 1, actual], alone) < CLOSE


def test_given_positions_are_taken_as_they_are():
    module, x, real = layer(Sinusoidal(DIM)), tokens(), padded("left")
    index = torch.arange(LENGTH)
    assert gap(module(x, index, attention_mask=real), module(x, attention_mask=real)) > 1e-2
    assert torch.equal(module(x, index + 3, attention_mask=real)[0], module(x, index + 3)[0])


def test_abacus_has_ids_instead_of_positions():
    """Its ids are the caller's to give, padded or not; see `Abacus`."""
    module, x, real = layer(Abacus(DIM, max_length=16)), tokens(), padded("left")
    ids = torch.tensor([[0, 0, 1, 2, 0, 1, 2, 3, 0, 0, 0, 1]]).expand(2, -1)
    out = module(x, ids, attention_mask=real)
    assert gap(out[1:, real[1]], module(x[1:, real[1]], ids[:1, 4:])) < CLOSE


@pytest.mark.slow
def test_a_compiler_looks_at_no_values():
    module, x, real = layer(T5Bias(HEADS, init_std=1.0), Sinusoidal(DIM)), tokens(), padded("middle")
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    for window in (None, 3):
        out = compiled(x, attention_mask=real, window=window)
        assert gap(out[real], module(x, attention_mask=real, window=window)[real]) < CLOSE
    torch._dynamo.reset()
