"""GRAPE-M: at first it is RoPE the other way round."""

from __future__ import annotations

import torch

from posenc import RoPE
from posenc.rotary import GRAPEM
from tests.samples import gap, qkv


def test_at_first_it_is_rope_at_negated_positions():
    q, k, _ = qkv(2, 4, 7, num_kv_heads=2)
    at = torch.arange(7) * 1000
    for per_head in (False, True):
        grape = GRAPEM(8, num_heads=4, num_kv_heads=2, per_head=per_head)
        for got, expected in zip(grape(q, k, at, at), RoPE(8)(q, k, -at, -at), strict=True):
            assert gap(got, expected) < 2e-3  # log frequencies are float32 parameters
