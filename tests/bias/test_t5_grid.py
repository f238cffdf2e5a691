"""T5's buckets along several axes: differences are cut towards zero."""

from __future__ import annotations

import torch

from posenc.bias import T5GridBias
from tests.samples import refusals


def test_differences_are_cut_towards_zero():
    bias = T5GridBias(1, axes=1, num_buckets=8, max_distance=10, factor=10.0)
    assert bias.bucket(torch.tensor([0.09, -0.09, 0.11, -0.19, 0.25]), 0).tolist() == [0, 0, 5, 1, 6]
    assert bias.bucket(torch.tensor([0, 1, -1]), 0).tolist() == [0, 7, 3]


test_refusals = refusals(
    {
        "num_buckets": [
            lambda: T5GridBias(3, num_buckets=7),
            lambda: T5GridBias(3, num_buckets=2),
            lambda: T5GridBias(3, num_buckets=(32, 64, 64)),
            lambda: T5GridBias(3, num_buckets=(32, 64.0)),
        ],
        "max_distance": [lambda: T5GridBias(3, max_distance=16), lambda: T5GridBias(3, max_distance=(256,))],
        "factor": [lambda: T5GridBias(3, factor=0.0), lambda: T5GridBias(3, factor=(1.0, -1.0))],
    }
)
