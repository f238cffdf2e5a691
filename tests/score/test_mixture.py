"""The learned mixture: its first weights, its members, and members that were changed."""

from __future__ import annotations

import copy

import pytest
import torch

from posenc import ALiBi, RoPE, attention, create_encoding
from posenc.bias import KERPLE
from posenc.score import Mixture
from tests.samples import gap, qkv

DIM, HEADS, WIDTH = 32, 4, 8


@pytest.mark.parametrize("adaptive", [False, True])
def test_weights_start_equal(adaptive):
    mixture = Mixture([RoPE(WIDTH), ALiBi(HEADS), []], num_heads=HEADS, adaptive=adaptive, dim=DIM)
    result = mixture.weights_of(torch.randn(2, 5, DIM) if adaptive else None)
    assert result.shape == ((2, HEADS, 5, 3) if adaptive else (HEADS, 3))
    assert (result - 1 / 3).abs().max() < 1e-6


def test_catalogue_takes_a_rotation_a_bias_and_neither_or_members_of_yours():
    mixture = create_encoding("mixture", dim=DIM, num_heads=HEADS)
    assert [[type(e) for e in member] for member in mixture.members] == [[RoPE], [ALiBi], []]
    assert mixture.logits.shape == (HEADS, 3)
    bias = KERPLE(HEADS)
    own = create_encoding("mixture", dim=DIM, num_heads=HEADS, head_dim=7, members=[bias, []], adaptive=True)
    assert own.members[0][0] is bias
    assert own.weight.shape == (HEADS * 2, DIM)


@pytest.mark.parametrize("change", ["append", "exchange", "remove"])
def test_members_that_were_changed_are_refused(change):
    mixture, (q, k, v) = Mixture([RoPE(8), ALiBi(4), []], num_heads=4), qkv(1, 4, 9, 9)
    before = attention(q, k, v, [mixture])
    assert gap(attention(q, k, v, [copy.deepcopy(mixture)]), before) == 0
    if change == "append":
        mixture.members[2].append(KERPLE(4))
    elif change == "exchange":
        mixture.members[1][0] = ALiBi(4, slopes=[1.0, 2.0, 3.0, 4.0])
    else:
        del mixture.members[2]
    for backend in ("auto", "dense"):
        with pytest.raises(ValueError, match="members"):
            attention(q, k, v, [mixture], backend=backend)
