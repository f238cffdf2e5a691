"""The five places."""

from __future__ import annotations

import pytest
from torch import nn

from posenc import ALiBi, Learned, RoPE, Shaw, Sinusoidal, T5Bias, WeightEncoding
from posenc.encoding import PLACES, Encoding, place_of


@pytest.mark.parametrize(
    ("encoding", "place"),
    [
        (Sinusoidal(8), "embedding"),
        (Learned(8, max_length=4), "embedding"),
        (RoPE(8), "rotary"),
        (ALiBi(2), "bias"),
        (T5Bias(2), "bias"),
        (Shaw(8, max_distance=2), "score"),
        (WeightEncoding(), "weight"),
    ],
)
def test_place_of(encoding, place):
    assert place_of(encoding) == place


def test_a_place_is_the_folder_of_its_encodings():
    for encoding in (Sinusoidal, Learned, RoPE, ALiBi, T5Bias, Shaw):
        place = encoding.__module__.split(".")[1]
        assert issubclass(encoding, PLACES[place])


@pytest.mark.parametrize("stranger", [Encoding(), nn.Linear(2, 2)])
def test_no_place_is_an_error(stranger):
    with pytest.raises(ValueError, match=r"EmbeddingEncoding.*RotaryEncoding"):
        place_of(stranger)
