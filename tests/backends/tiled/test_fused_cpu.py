"""The fused kernel of PyTorch and the norms that it returns with its results."""

from __future__ import annotations

import pytest
import torch

from posenc.backends import fused_cpu
from posenc.backends.inputs.visibility import VisibilityMask
from posenc.backends.tiled import portions
from posenc.backends.tiled.softmax import Softmax
from posenc.backends.tiled.tiled_call import TiledCall
from tests.samples import gap, qkv


def work(**options) -> TiledCall:
    q, k, v = qkv(2, 4, 30, 40, **options)
    return TiledCall(
        q, k, v, [], Softmax(), VisibilityMask(True, None, None, None, torch.arange(30), torch.arange(40)), 0.3
    )


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


@pytest.mark.parametrize("value_dim", [5, 8, 11])
@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("strips", [[(0, 2)], [(0, 1), (1, 2)]])
def test_portions_have_one_width_and_reversed_keys(value_dim, more, strips):
    call = work(value_dim=value_dim)
    covered = []
    for part in portions.portions(call, strips, more):
        q, k, v = part.q, part.k, part.v
        covered.extend(range(part.kv.start, part.kv.stop))
        assert q.shape[3] == k.shape[3] == v.shape[3] >= max(8, value_dim + more)
        assert torch.equal(q[..., :8], call.q[:, part.heads])
        assert torch.equal(k[..., :8], call.k[:, part.kv].flip(2))
        assert torch.equal(v[..., :value_dim], call.v[:, part.kv].flip(2))
        assert all((t[..., n:] == 0).all() for t, n in ((q, 8), (v, value_dim)))
    assert covered == [0, 1]


def test_only_on_processors_that_have_it():
    assert portions.available(work())
    assert not portions.available(work()._replace(q=torch.empty(2, 4, 30, 8, device="meta")))
