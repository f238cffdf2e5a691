"""RePo: far positions in bfloat16, rho between steps."""

from __future__ import annotations

import torch

from posenc import DynamicNTK, attention
from posenc.score import RePo
from tests.samples import gap, qkv, refusals


def sample(**options):
    torch.manual_seed(0)
    encoding = RePo(32, head_dim=8, num_kv_heads=2, init_std=0.5, **options)
    return encoding, torch.randn(2, 9, 32), qkv(2, 4, 9, num_kv_heads=2)


def test_far_positions_in_bfloat16_models_keep_their_fractions():
    encoding, x, _ = sample()
    encoding.to(torch.bfloat16)
    positions = encoding.token_state(1000 * x.to(torch.bfloat16))
    assert positions.dtype == torch.float32
    assert positions.abs().max() > 1000
    assert gap(positions, positions.bfloat16().float()) > 1


def test_rho_can_be_annealed_between_steps():
    encoding, x, (q, k, v) = sample(rho=1.0)
    first = attention(q, k, v, [encoding], x=x)
    encoding.rho = 0.0
    assert gap(attention(q, k, v, [encoding], x=x), first) > 1e-3
    assert gap(attention(q, k, v, [encoding], x=x), attention(q, k, v, [encoding.eval()], x=x)) == 0


def set_rho():
    RePo(32, head_dim=8, num_kv_heads=2).rho = 0.5


test_refusals = refusals(
    {
        "head_dim": [
            lambda: RePo(32, head_dim=7, num_kv_heads=2),
            lambda: attention(
                *qkv(1, 2, 3, head_dim=6), [RePo(16, head_dim=8, num_kv_heads=2)], x=torch.ones(1, 3, 16)
            ),
        ],
        "num_kv_heads": [
            lambda: attention(*qkv(1, 3, 3), [RePo(16, head_dim=8, num_kv_heads=2)], x=torch.ones(1, 3, 16))
        ],
        "dim": [lambda: attention(*qkv(1, 2, 3), [RePo(16, head_dim=8, num_kv_heads=2)], x=torch.ones(1, 3, 15))],
        "hidden": [lambda: RePo(32, head_dim=8, num_kv_heads=2, hidden=0)],
        "rho": [lambda: RePo(32, head_dim=8, num_kv_heads=2, rho=1.5), set_rho],
        "scaling": [
            lambda: RePo(32, head_dim=8, num_kv_heads=2, scaling=DynamicNTK(2.0, original_length=16)),
        ],
        "x": [lambda: attention(*qkv(1, 2, 3), [RePo(16, head_dim=8, num_kv_heads=2)])],
    }
)
