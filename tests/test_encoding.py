"""The five hook points."""

from __future__ import annotations

import pytest
from torch import nn

from posenc import ALiBi, Learned, RoPE, Sinusoidal, T5Bias, WeightEncoding
from posenc.encoding import HOOK_POINTS, Encoding, hook_point_of
from posenc.score import Shaw


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
def test_hook_point_of(encoding, place):
    assert hook_point_of(encoding) == place


def test_a_hook_point_is_the_folder_of_its_encodings():
    for encoding in (Sinusoidal, Learned, RoPE, ALiBi, T5Bias, Shaw):
        place = encoding.__module__.split(".")[1]
        assert issubclass(encoding, HOOK_POINTS[place])


@pytest.mark.parametrize("stranger", [Encoding(), nn.Linear(2, 2)])
def test_no_hook_point_is_an_error(stranger):
    with pytest.raises(ValueError, match=r"EmbeddingEncoding.*RotaryEncoding"):
        hook_point_of(stranger)
