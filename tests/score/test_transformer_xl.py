"""Transformer-XL: parameters that layers share."""

from __future__ import annotations

import torch

from posenc.score.transformer_xl import TransformerXL


def test_layers_may_share_u_and_v():
    first, second = TransformerXL(32, num_heads=4), TransformerXL(32, num_heads=4)
    second.u, second.v = first.u, first.v
    layers = torch.nn.ModuleList([first, second])
    assert sum(p.numel() for p in layers.parameters()) == 2 * 32 + 2 * 32 * 32
    layers.load_state_dict({name: value + 1 for name, value in layers.state_dict().items()}, strict=True)
    assert second.u is first.u
    assert not torch.equal(second.weight, first.weight)
