"""DAPE: what its network may and may not do."""

from __future__ import annotations

import torch

from posenc import ALiBi, Context, attention, create_encoding
from posenc.bias import FIRE, KERPLE
from posenc.score.dape import DAPE
from tests.samples import gap, qkv


def test_hidden_pairs_stay_finite_and_change_nothing():
    built, at = DAPE(ALiBi(4)).double(), torch.arange(300)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.uniform_()
    q, k, v = (t.requires_grad_() for t in qkv(1, 4, 3, 300, dtype=torch.float64))
    mask = torch.rand(3, 300, generator=torch.Generator().manual_seed(2)) < 0.5
    mask[1] = False
    out = attention(q, k, v, [built], mask=mask, causal=False)
    assert built(q @ k.mT, Context(q, k, k, at[-3:], at, 1.0)).isfinite().all()
    assert not out[:, :, 1].any()
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), [q, k, v, *built.parameters()]))
    keep = mask[0]
    few = attention(q[:, :, :1], k[:, :, keep], v[:, :, keep], [built], q_pos=at[-3:-2], k_pos=at[keep], causal=False)
    assert gap(out[:, :, :1], few) < 1e-12


def test_catalogue_takes_kerple_or_a_bias_of_yours():
    assert isinstance(create_encoding("dape", num_heads=4).bias, KERPLE)
    fire = FIRE(4)
    built = create_encoding("dape", num_heads=4, bias=fire, hidden=7)
    assert built.bias is fire
    assert built.inner.weight.shape == (7, 8)
