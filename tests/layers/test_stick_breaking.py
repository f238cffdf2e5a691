"""The layer of stick-breaking in the authors' 3B models: a vector a head for the remainder, then a norm a head.

    o_i = Σ_j a_ij v_j + remainder_i · vector_h        vector (num_heads, head_dim), zero at first
    y_i = W_o · GroupNorm(o_i)                         each head of each token by itself, eps 1e-5, affine

Source: Tan et al., Scaling Stick-Breaking Attention, arXiv 2410.17980; the layer of dolomite-engine.
"""

from __future__ import annotations

import pytest
import torch

from posenc import attention
from posenc.layers import SelfAttention
from posenc.weight import StickBreaking
from tests.samples import gap

DIM, HEADS, LENGTH = 32, 4, 9


def layer(**options) -> SelfAttention:
    """As in the source."""
    torch.manual_seed(0)
    stick = StickBreaking(remainder="vector", num_heads=HEADS, value_dim=8)
    return SelfAttention(DIM, HEADS, **{"encodings": [stick], "head_norm": True, **options}).double()


def moved(built: SelfAttention) -> SelfAttention:
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return built


def tokens(length=LENGTH) -> torch.Tensor:
    return torch.randn(2, length, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("head_norm", [True, False])
def test_remainder_then_norm_then_projection(head_norm):
    module, x = moved(layer(head_norm=head_norm, bias=True)), tokens()
    q, k, v = (p(x).view(2, LENGTH, -1, 8).transpose(1, 2) for p in (module.q_proj, module.k_proj, module.v_proj))
    out = attention(q, k, v, [StickBreaking()])
    left = 1 - attention(q, k, torch.ones_like(v), [StickBreaking()])
    out = (out + left * module.encodings[0].vector[:, None]).transpose(1, 2)
    if head_norm:
        out = out - out.mean(-1, keepdim=True)
        out = out * (out.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        out = out * module.head_norm.weight.view(HEADS, 8) + module.head_norm.bias.view(HEADS, 8)
    assert gap(module(x), module.o_proj(out.flatten(2))) < 1e-13


def test_new_layer_is_as_the_source_starts():
    module = layer()
    norm = module.head_norm
    assert (norm.num_groups, norm.num_channels, norm.eps) == (HEADS, DIM, 1e-5)
    assert not module(tokens()[:, :1]).any(), "the first token attends to nothing, and the vector is zero"
