"""A bias that the query's token mixes: a scale of zero, and a text in pieces."""

from __future__ import annotations

import torch

from posenc import LogN, RoPE, attention, explain_backend
from posenc.layers import KVCache, SelfAttention
from posenc.score import TokenRelativeBias
from tests.samples import gap, qkv


def biased(max_distance: int = 4) -> TokenRelativeBias:
    torch.manual_seed(0)
    return TokenRelativeBias(12, num_heads=4, max_distance=max_distance, relative_dim=3, init_std=1.0).double()


def test_a_scale_of_zero_and_a_text_in_pieces() -> None:
    q, k, v = qkv(1, 4, 7, 7, dtype=torch.float64)
    x = torch.randn(1, 7, 12, dtype=torch.float64)
    assert explain_backend(q, k, v, [biased()], x=x, scale=0.0).backend != "tiled"
    assert gap(attention(q, k, v, [biased()], x=x, scale=0.0), attention(0 * q, k, v, [biased()], x=x)) < 1e-12
    layer = SelfAttention(12, 4, head_dim=8, encodings=[RoPE(8), biased(), LogN(3)]).double()
    cache, x = KVCache(), torch.randn(2, 11, 12, dtype=torch.float64)
    with torch.no_grad():
        steps = [layer(part, cache=cache) for part in x.split([4, 1, 1, 5], 1)]
        assert gap(torch.cat(steps, 1), layer(x)) < 1e-12
