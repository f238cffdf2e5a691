"""Embeddings of tokens without positions: counted from 0 where a token has one coordinate, else asked for."""

from __future__ import annotations

import pytest
import torch

from posenc import Learned, LearnedGrid, Sinusoidal
from posenc.embedding import Abacus, RandomFourier, SinusoidalGrid

X = torch.randn(2, 5, 8)


@pytest.mark.parametrize(
    "encoding",
    [Sinusoidal(8), Learned(8, max_length=9), LearnedGrid(8, size=(9,)), SinusoidalGrid(8, axes=1)],
    ids=lambda encoding: type(encoding).__name__,
)
def test_positions_are_counted_from_0(encoding):
    assert torch.equal(encoding(X), encoding(X, torch.arange(5) if encoding.axes == 1 else torch.arange(5)[:, None]))


@pytest.mark.parametrize(
    "encoding",
    [LearnedGrid(8, size=(3, 3)), SinusoidalGrid(8), RandomFourier(8, axes=2), Abacus(8, max_length=9)],
    ids=lambda encoding: type(encoding).__name__,
)
def test_places_that_their_number_does_not_tell_are_asked_for(encoding):
    with pytest.raises(ValueError, match=r"\bpositions\b"):
        encoding(X)
