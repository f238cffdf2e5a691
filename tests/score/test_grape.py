"""GRAPE: large rates, how tokens start moving, what is refused."""

from __future__ import annotations

import torch

from posenc import attention
from posenc.bias import alibi_slopes
from posenc.encoding import Context
from posenc.score import GRAPEA, GRAPEAP, GRAPEContext
from tests.samples import qkv, refusals


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


test_refusals = refusals(
    {
        "start": [lambda: GRAPEA(8, num_heads=2, start=0.0)],
        "head_dim": [
            lambda: attention(*qkv(1, 2, 3, head_dim=6), [GRAPEA(8, num_heads=2)]),
            lambda: GRAPEContext(32, head_dim=7, num_kv_heads=2),
        ],
        "path_dim": [
            lambda: GRAPEAP(16, num_heads=2, path_dim=7),
            lambda: attention(*qkv(1, 2, 3), [GRAPEAP(16, num_heads=2, path_dim=6, tie="key")]),
        ],
        "omega_scale": [lambda: GRAPEContext(32, head_dim=8, num_kv_heads=2, omega_scale=0.0)],
        "x": [
            lambda: attention(*qkv(1, 2, 3), [GRAPEAP(16, num_heads=2, path_dim=8)]),
            lambda: attention(*qkv(1, 2, 3), [GRAPEContext(16, head_dim=8, num_kv_heads=2)]),
        ],
        "num_kv_heads": [
            lambda: attention(*qkv(1, 3, 3), [GRAPEContext(16, head_dim=8, num_kv_heads=2)], x=torch.ones(1, 3, 16))
        ],
    }
)
