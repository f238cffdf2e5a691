"""The learned mixture: its weights, its biases beside products, and members that were changed."""

from __future__ import annotations

import copy

import pytest
import torch

from posenc import ALiBi, RoPE, attention, create_encoding, explain_backend
from posenc.bias import FIRE, KERPLE
from posenc.frequencies import MultiScale
from posenc.score import Mixture
from tests.samples import gap, qkv

DIM, HEADS, WIDTH = 32, 4, 8


def moved(**options) -> Mixture:
    """Rotations, biases, both and neither, in float64, every parameter moved."""
    members = [
        [RoPE(WIDTH)],
        [ALiBi(HEADS)],
        [],
        [RoPE(WIDTH, scaling=MultiScale(HEADS, num_kv_heads=2))],
        [RoPE(WIDTH, base=50.0), FIRE(HEADS), KERPLE(HEADS)],
    ]
    mixture = Mixture(members, num_heads=HEADS, dim=DIM, **options).double()
    with torch.no_grad():
        for parameter in mixture.parameters():
            parameter.add_(torch.randn_like(parameter))
    return mixture


@pytest.mark.parametrize("adaptive", [False, True])
def test_weights_start_equal(adaptive):
    mixture = Mixture([RoPE(WIDTH), ALiBi(HEADS), []], num_heads=HEADS, adaptive=adaptive, dim=DIM)
    result = mixture.weights_of(torch.randn(2, 5, DIM) if adaptive else None)
    assert result.shape == ((2, HEADS, 5, 3) if adaptive else (HEADS, 3))
    assert (result - 1 / 3).abs().max() < 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_modules_have_float32_weights(dtype):
    mixture, x = moved(adaptive=True).to(dtype), torch.randn(2, 5, DIM).to(dtype)
    assert mixture.weights_of(x).dtype == torch.float32
    assert gap(mixture.weights_of(x), copy.deepcopy(mixture).double().weights_of(x.double())) < 1e-5


def test_rotations_and_biases_stand_side_by_side_in_one_call():
    """A copy has biases of its own."""
    mixture = moved()
    other = copy.deepcopy(mixture)
    with torch.no_grad():
        other.logits.normal_()
    q, k, v = qkv(2, HEADS, 20, num_kv_heads=2, dtype=torch.float64)
    for item in (mixture, other):
        assert gap(attention(q, k, v, [item], backend="sdpa"), attention(q, k, v, [item], backend="dense")) < 1e-12
    refused = explain_backend(q, k, v, [moved(adaptive=True)], x=torch.randn(2, 20, DIM).double()).refused
    assert "Mixture" in refused["sdpa"], "a bias has one value for all queries, and weights differ by query"


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
