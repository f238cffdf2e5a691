"""Decomposed relative positions: fractions, tokens without a place and places outside."""

from __future__ import annotations

import torch

from posenc import attention
from posenc.positions import NO_POSITION
from posenc.score import DecomposedRelative
from tests.samples import gap, qkv


def test_fractions_in_float32_are_as_good_as_in_float64():
    """In a float64 call differences of float32 fractions are not rounded to float32."""
    q, k, v = qkv(dtype=torch.float64)
    at, relative = torch.arange(6).mul(0.1).sin(), DecomposedRelative(8, window=(3,), init_std=1.0).double()
    got, expected = (attention(q, k, v, [relative], q_pos=p, k_pos=p, causal=False) for p in (at, at.double()))
    assert gap(got, expected) < 1e-14


def test_tokens_without_a_place_and_places_outside_the_window():
    relative = DecomposedRelative(8, window=(3, 4), init_std=1.0).double()
    q, k, _ = qkv(1, 2, 3, dtype=torch.float64)
    lost = torch.tensor([[NO_POSITION, 0], [0, 0], [1, 2]])
    zero = torch.zeros(1, 2, 3, 3, dtype=torch.float64)

    def added(q_pos, k_pos):
        identity = torch.eye(3, dtype=torch.float64).expand(1, 2, -1, -1)
        weights = attention(q, torch.zeros_like(k), identity, [relative], q_pos=q_pos, k_pos=k_pos, causal=False)
        return weights.log() - weights.log()[..., :1]

    assert gap(added(lost, lost)[:, :, :1], zero[:, :, :1]) < 1e-12
    near, far = torch.tensor([[0, 0], [2, 3], [-2, -3]]), torch.tensor([[0, 0], [9, 2**20], [-9, -(2**20)]])
    here = torch.zeros(3, 2, dtype=torch.int64)
    assert gap(added(far, here), added(near, here)) < 1e-12
    assert gap(added(here, far), added(here, near)) < 1e-12
    between = (added(here, near.double()) + added(here, here.double() + near[1])) / 2
    assert between.shape == zero.shape
