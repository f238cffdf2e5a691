"""FoPE: RoPE where there is no noise, pairs that rest, and what learns."""

from __future__ import annotations

import torch

from posenc import RoPE, attention
from posenc.rotary import FoPE
from tests.samples import gap, qkv


def test_without_noise_the_pairs_rotate_as_under_rope():
    q, k, _ = qkv(2, 4, 9, head_dim=16, num_kv_heads=2)
    fope, positions = FoPE(16, num_heads=4, original_length=64, num_kv_heads=2, noise=0.0), torch.arange(9) * 5
    remaining = fope.series
    assert remaining == 3
    actual, expected = fope(q, k, positions, positions), RoPE(16)(q, k, positions, positions)
    turning = [*range(remaining), *range(8, 8 + remaining)]
    resting = [c for c in range(16) if c not in turning]
    for got, rotated, before in zip(actual, expected, (q, k), strict=True):
        assert gap(got[..., turning], rotated[..., turning]) < 1e-6
        assert torch.equal(got[..., resting], before[..., resting])


def test_coefficients_learn_only_where_asked():
    for learned in (False, True):
        fope = FoPE(16, num_heads=2, original_length=64, learned=learned)
        assert {p.requires_grad for p in fope.parameters()} == {learned}
        assert set(fope.state_dict()) == {"cos_coef", "sin_coef"}
        q, k, v = qkv(1, 2, 5, head_dim=16)
        out = attention(q.requires_grad_(), k, v, [fope])
        out.sum().backward()
        assert (fope.cos_coef.grad is not None) == learned
