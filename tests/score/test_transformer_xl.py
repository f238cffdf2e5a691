"""Transformer-XL: distances beyond the clamp, and parameters that layers share."""

from __future__ import annotations

import torch

from posenc import attention
from posenc.score.transformer_xl import TransformerXL
from tests.samples import gap, qkv


def test_distances_beyond_the_clamp_are_that_of_the_clamp():
    encoding, (q, k, v) = (
        TransformerXL(32, num_heads=4, clamp=4, init_std=1.0).double(),
        qkv(1, 4, 1, 6, dtype=torch.float64),
    )
    for side in (-1, 1):
        out = [
            attention(q, k, v, [encoding], q_pos=torch.tensor([50]), k_pos=50 + side * apart, causal=False)
            for apart in (torch.full((6,), 4), torch.arange(5, 11))
        ]
        assert gap(*out) < 1e-12


def test_layers_may_share_u_and_v():
    first, second = TransformerXL(32, num_heads=4), TransformerXL(32, num_heads=4)
    second.u, second.v = first.u, first.v
    layers = torch.nn.ModuleList([first, second])
    assert sum(p.numel() for p in layers.parameters()) == 2 * 32 + 2 * 32 * 32
    layers.load_state_dict({name: value + 1 for name, value in layers.state_dict().items()}, strict=True)
    assert second.u is first.u
    assert not torch.equal(second.weight, first.weight)
