"""A cap on the products of queries and keys: before all that is added, on every backend, under every encoding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from posenc import ALiBi, attention, explain_backend
from posenc.attention_maps import read_attention
from posenc.score import CoPE
from tests.samples import gap, qkv

CAP = 0.7


def capped(products: Tensor, cap: float = CAP) -> Tensor:
    return cap * torch.tanh(products / cap)


def test_gates_count_products_without_a_cap():
    """CoPE's positions come from the products themselves, whichever backend computes them."""
    q, k, v = qkv(1, 4, 40, dtype=torch.float64)
    cope = CoPE(8, max_position=6).double()
    torch.nn.init.normal_(cope.table)
    read = [read_attention(q, k, v, [cope], softcap=cap).scores for cap in (None, 0.01)]
    products = (q @ k.mT) * 8**-0.5
    seen = torch.ones(40, 40).tril().bool()
    assert gap((read[0] - products)[..., seen], (read[1] - capped(products, 0.01))[..., seen]) < 1e-9
    assert gap(*(attention(q, k, v, [cope], softcap=0.01, backend=backend) for backend in ("tiled", "dense"))) < 1e-12


def test_keys_that_have_lost_their_weight_are_left_out_rightly():
    """Bounds on scores know the cap: steep slopes over more than 512 keys, large products."""
    results = []
    for backend in ("tiled", "dense"):
        leaves = [(t * s).requires_grad_() for t, s in zip(qkv(1, 4, 600, dtype=torch.float64), (9, 9, 1), strict=True)]
        out = attention(*leaves, [ALiBi(4, slopes=[0.5, 2.0, 9.0, 0.01])], softcap=3.0, backend=backend)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    for a, b in zip(*results, strict=True):
        assert gap(a, b) < 1e-10


def test_fused_kernels_refuse():
    with pytest.raises(ValueError, match="softcap"):
        attention(*qkv(), softcap=1.0, backend="sdpa")
    assert "a cap" in explain_backend(*qkv(1, 4, 200), softcap=1.0).how


@pytest.mark.reference
def test_gemma_2_of_transformers():
    from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

    q, k, v = qkv(2, 4, 12, num_kv_heads=2)
    module = torch.nn.Module()
    module.num_key_value_groups, module.head_dim = 2, 8
    mask = torch.zeros(12, 12).masked_fill(torch.ones(12, 12).triu(1).bool(), torch.finfo(torch.float32).min)
    out, weights = eager_attention_forward(module, q, k, v, mask[None, None], scaling=0.5, softcap=CAP)
    assert gap(attention(q, k, v, scale=0.5, softcap=CAP), out.transpose(1, 2)) < 1e-6
    assert gap(read_attention(q, k, v, scale=0.5, softcap=CAP).weights, weights) < 1e-6
