"""A network across heads, by tiles: DAPE."""

from __future__ import annotations

import pytest
import torch

from posenc import ForgetGate, attention, positions
from posenc.bias import KERPLE, SwinBias
from posenc.score import DAPE, CoPE
from posenc.weight import StickBreaking
from tests.backends.tiles.compare import (
    DIM,
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    expect_dense,
    expect_same_as_dense,
)
from tests.samples import gap, qkv


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


NETWORK = DAPE(KERPLE(HEADS))
REFUSED = {
    "few queries": ([NETWORK], (3, 70), "the definition takes few queries"),
    "sticks": ([NETWORK, StickBreaking()], (70, 70), "stick-breaking has some at a time"),
    "gates": ([ForgetGate(DIM, num_heads=HEADS), NETWORK], (70, 70), "gates leave out"),
    "counts": ([CoPE(HEAD_DIM, max_position=5), NETWORK], (70, 70), "gates leave out"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_and_the_definition_as_fallback(case):
    encodings, (queries, keys), words = REFUSED[case]
    q, k, v = qkv(1, HEADS, queries, keys, HEAD_DIM, num_kv_heads=KV_HEADS)
    x = torch.randn(1, keys, DIM)
    with pytest.raises(ValueError, match=words):
        attention(q, k, v, encodings, x=x, backend="tiled")
    expected = attention(q, k, v, encodings, x=x, backend="dense")
    assert gap(attention(q, k, v, encodings, x=x), expected) < 1e-5
