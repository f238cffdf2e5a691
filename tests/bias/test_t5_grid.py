"""T5's buckets along several axes: differences are cut towards zero."""

from __future__ import annotations

import torch

from posenc.bias import T5GridBias


def test_differences_are_cut_towards_zero():
    bias = T5GridBias(1, axes=1, num_buckets=8, max_distance=10, factor=10.0)
    assert bias.bucket(torch.tensor([0.09, -0.09, 0.11, -0.19, 0.25]), 0).tolist() == [0, 0, 5, 1, 6]
    assert bias.bucket(torch.tensor([0, 1, -1]), 0).tolist() == [0, 7, 3]
