"""A network across heads, by tiles: DAPE."""

from __future__ import annotations

import pytest
import torch

from posenc import positions
from posenc.bias import KERPLE, SwinBias
from posenc.score import DAPE
from tests.backends.tiles.compare import (
    HEADS,
    expect_dense,
    expect_same_as_dense,
)
from tests.samples import qkv


@pytest.mark.parametrize("hidden", [5, 400])
def test_networks_of_any_width(hidden):
    """Of a wide network, few numbers of a tile have all their units at a time."""
    expect_dense([DAPE(KERPLE(HEADS), hidden=hidden).double()], 70)


def test_a_bias_of_a_picture():
    torch.manual_seed(0)
    at = positions.grid(12, 12)
    bias = SwinBias(HEADS, window=(12, 12))
    with torch.no_grad():
        bias.table.normal_(std=0.3)
    tensors = [*qkv(2, HEADS, 144, dtype=torch.float64), torch.zeros(2, 144, 1, dtype=torch.float64)]
    expect_same_as_dense([DAPE(bias).double()], tensors, q_pos=at, k_pos=at, causal=False)
