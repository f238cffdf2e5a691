"""RePo: far positions in bfloat16, rho between steps."""

from __future__ import annotations

import torch

from posenc import attention
from posenc.score import RePo
from tests.samples import gap, qkv


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
