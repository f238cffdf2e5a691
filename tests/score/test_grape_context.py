"""Contextual GRAPE-M: fused kernels serve it, and how tokens start moving."""

from __future__ import annotations

import torch

from posenc import attention, explain_backend
from posenc.score import GRAPEContext
from tests.samples import gap, qkv, refusals


def test_fused_kernels_serve_it_and_tokens_start_moving_by_two_fifths():
    grape, x = GRAPEContext(32, head_dim=8, num_kv_heads=2, init_std=0.0), torch.randn(2, 9, 32)
    q, k, v = qkv(2, 4, 9, num_kv_heads=2)
    assert explain_backend(q, k, v, [grape], x=x).backend == "sdpa"
    assert gap(attention(q, k, v, [grape], x=x), attention(q, k, v, [grape], x=x, backend="dense")) < 1e-5
    assert abs(float((grape.token_state(x).detach() / 16).sigmoid().mean()) - 0.394) < 1e-3


test_refusals = refusals(
    {
        "head_dim": [lambda: GRAPEContext(32, head_dim=7, num_kv_heads=2)],
        "omega_scale": [lambda: GRAPEContext(32, head_dim=8, num_kv_heads=2, omega_scale=0.0)],
        "x": [lambda: attention(*qkv(1, 2, 3), [GRAPEContext(16, head_dim=8, num_kv_heads=2)])],
        "num_kv_heads": [
            lambda: attention(*qkv(1, 3, 3), [GRAPEContext(16, head_dim=8, num_kv_heads=2)], x=torch.ones(1, 3, 16))
        ],
    }
)
