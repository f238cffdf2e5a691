"""Decomposed relative positions: one axis is Shaw; fractions, tokens without a place and places outside."""

from __future__ import annotations

import torch

from posenc import attention
from posenc.positions import NO_POSITION
from posenc.score import DecomposedRelative, Shaw
from tests.samples import gap, qkv, refusals


def test_one_axis_is_shaw_with_an_unscaled_query():
    q, k, v = qkv(dtype=torch.float64)
    relative, shaw = DecomposedRelative(8, window=(4,)).double(), Shaw(8, max_distance=3, values=False).double()
    with torch.no_grad():
        shaw.key_table.copy_(relative.tables[0].flip(0) / 0.3)
    got, expected = (attention(q, k, v, [e], scale=0.3, causal=False) for e in (relative, shaw))
    assert gap(got, expected) < 1e-12


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


test_refusals = refusals(
    {
        "window": [
            lambda: DecomposedRelative(8, window=3),
            lambda: DecomposedRelative(8, window=(3, 0)),
            lambda: DecomposedRelative(8, window=(3, 3)).resized((3,)),
        ],
        "init_std": [lambda: DecomposedRelative(8, window=(3, 3), init_std=-1)],
        "tables": [lambda: DecomposedRelative(8, window=(3, 3)).from_official(torch.ones(5, 8))],
        "head_dim": [lambda: attention(*qkv(), [DecomposedRelative(16, window=(3,))])],
        "q_pos": [
            lambda: attention(*qkv(), [DecomposedRelative(8, window=(3, 3))], q_pos=torch.arange(6), causal=False)
        ],
    }
)
