"""GRAPE: large rates, and how tokens start moving."""

from __future__ import annotations

import torch

from posenc.bias import alibi_slopes
from posenc.encoding import Context
from posenc.score import GRAPEA, GRAPEContext


def test_large_rates():
    """softplus(x) − x is e^−x, of which PyTorch's own leaves out up to 2e-9 from x = 20 on."""
    q = k = torch.tensor([[[[24.0], [30.0]]]], dtype=torch.float64).expand(1, 2, 2, 1)
    grape, at, along = GRAPEA(1, num_heads=2, start=25.0).double(), torch.arange(2), torch.tensor(24.0).double()
    with torch.no_grad():
        grape.u.fill_(1.0)
    bias = grape(torch.zeros(1, 2, 2, 2).double(), Context(q=q, k=k, v=k, q_pos=at, k_pos=at, scale=1.0))[0, :, 1, 0]
    omega, slopes = grape.omega.detach(), torch.tensor(alibi_slopes(2)).double()
    expected = -slopes * (omega + (-omega).exp().log1p()) * (along + (-along).exp().log1p())
    assert ((bias - expected) / expected).abs().max() < 1e-15


def test_tokens_start_moving_by_two_fifths():
    grape = GRAPEContext(32, head_dim=8, num_kv_heads=2, init_std=0.0)
    moves = (grape.token_state(torch.randn(2, 9, 32)).detach() / 16).sigmoid()
    assert abs(float(moves.mean()) - 0.394) < 1e-3
