"""Rotations by blocks under torch.func and forward mode: the same derivatives as by a backward pass."""

from __future__ import annotations

import pytest
import torch

from posenc import Encoding, attention
from posenc.rotary import ComRoPEAP, ComRoPELD, LieRE
from tests.samples import gap, qkv

BUILDERS = {
    "comrope-ap": lambda: ComRoPEAP(8, num_heads=4, axes=2, block=4),
    "comrope-ap, one axis": lambda: ComRoPEAP(8, num_heads=4, axes=1, block=4),
    "comrope-ld, grouped keys": lambda: ComRoPELD(8, num_heads=4, num_kv_heads=2, axes=2, block=4),
    "liere 4": lambda: LieRE(8, num_heads=4, axes=2, block=4),
    "liere 8": lambda: LieRE(8, num_heads=4, axes=2, block=8),
}


@pytest.fixture(params=BUILDERS)
def case(request):
    torch.manual_seed(0)
    encoding: Encoding = BUILDERS[request.param]().double()
    q, k, v = qkv(2, 4, 5, num_kv_heads=2 if "grouped" in request.param else 4, dtype=torch.float64)
    places = torch.randint(0, 4, (5,) if encoding.axes == 1 else (5, encoding.axes))

    def call(q):
        return attention(q, k, v, [encoding], q_pos=places, k_pos=places, causal=True)

    return call, q


def test_gradients(case):
    call, q = case
    leaf = q.clone().requires_grad_()
    (expected,) = torch.autograd.grad(call(leaf).square().sum(), leaf)
    assert gap(torch.func.grad(lambda q: call(q).square().sum())(q), expected) < 1e-10


def test_tangents(case):
    call, q = case
    tangent = torch.randn(q.shape, generator=torch.Generator().manual_seed(1), dtype=q.dtype)
    _, result = torch.func.jvp(call, (q,), (tangent,))
    step = 1e-6
    assert gap(result, (call(q + step * tangent) - call(q - step * tangent)) / (2 * step)) < 1e-7


def test_maps(case):
    call, q = case
    several = torch.stack([q, q * 0.5])
    assert gap(torch.func.vmap(call)(several), torch.stack([call(item) for item in several])) < 1e-10
