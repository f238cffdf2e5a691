"""GRAPE: large rates, long calls without a matrix, fused kernels, how tokens start moving, what is refused."""

from __future__ import annotations

import torch

from posenc import attention, explain_backend
from posenc.bias import alibi_slopes
from posenc.encoding import Context
from posenc.score import GRAPEA, GRAPEAP, GRAPEContext
from tests.samples import gap, qkv, refusals


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


def test_long_calls_build_no_matrix():
    q, k, v = qkv(1, 4, 300)
    assert explain_backend(q, k, v, [GRAPEA(8, num_heads=4)]).backend == "rows"


def test_fused_kernels_serve_the_contextual_form_and_tokens_start_moving_by_two_fifths():
    grape, x = GRAPEContext(32, head_dim=8, num_kv_heads=2, init_std=0.0), torch.randn(2, 9, 32)
    q, k, v = qkv(2, 4, 9, num_kv_heads=2)
    assert explain_backend(q, k, v, [grape], x=x).backend == "sdpa"
    assert gap(attention(q, k, v, [grape], x=x), attention(q, k, v, [grape], x=x, backend="dense")) < 1e-5
    assert abs(float((grape.token_state(x).detach() / 16).sigmoid().mean()) - 0.394) < 1e-3


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
