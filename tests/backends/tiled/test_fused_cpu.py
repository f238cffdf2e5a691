"""The fused kernel of PyTorch and the norms that it returns with its results."""

from __future__ import annotations

import pytest
import torch

from posenc.backends import fused_cpu
from tests.samples import gap, qkv


def definition(q, k, v, mask):
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    scores = q @ k.mT * 0.3 + mask
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_results_and_norms(num_kv_heads):
    q, k, v = qkv(2, 4, 30, 40, num_kv_heads=num_kv_heads, dtype=torch.float64)
    mask = torch.randn(2, 4, 30, 40, dtype=torch.float64)
    for a, b in zip(fused_cpu.forward(q, k, v, mask, 0.3), definition(q, k, v, mask), strict=True):
        assert gap(a, b) < 1e-12


def test_shares_of_two_ranges_of_keys_add_up():
    """Results and norms of all keys, handed to the backward pass of some of them, give these keys' part."""
    q, k, v = (t.requires_grad_() for t in qkv(2, 4, 30, 40, dtype=torch.float64))
    mask, grad = torch.randn(2, 4, 30, 40, dtype=torch.float64), torch.randn(2, 4, 30, 8, dtype=torch.float64)
    out, norm = definition(q, k, v, mask)
    expected = torch.autograd.grad(out, (q, k, v), grad)
    of_q, of_k, of_v = [], [], []
    for seen in (slice(0, 13), slice(13, 40)):
        tensors = [t.detach() for t in (q, k[:, :, seen], v[:, :, seen], out, norm)]
        parts = fused_cpu.backward(grad, *tensors, mask[..., seen], 0.3)
        for into, part in zip((of_q, of_k, of_v), parts, strict=True):
            into.append(part)
    for a, b in zip((sum(of_q), torch.cat(of_k, 2), torch.cat(of_v, 2)), expected, strict=True):
        assert gap(a, b) < 1e-12


def test_only_on_processors_that_have_it():
    assert fused_cpu.exists(torch.empty(2, 4, 30, 8))
    assert not fused_cpu.exists(torch.empty(2, 4, 30, 8, device="meta"))
