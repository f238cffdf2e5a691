"""Blocks of queries under softmax: rows of any size, rows without keys, weights too small to count."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, T5Bias, attention
from tests.backends.tiles.compare import (
    build_encodings,
    called,
    differentiated,
    expect_same_as_dense,
)
from tests.samples import gap, qkv


@pytest.mark.parametrize("name", ["nope", "t5", "shaw"])
@pytest.mark.parametrize("size", [30.0, 3e3, 1e6])
def test_scores_of_any_size(name, size):
    """Products far beyond what exp can take: the largest score of a row is taken off first."""
    tensors = called(130, batch=1)
    tensors[0] = tensors[0] * size
    for options in ({}, {"causal": False}, {"window": 17}):
        expect_same_as_dense(build_encodings(name), tensors, 1e-8, **options)
    narrow = [t.float() for t in tensors]
    actual = differentiated(build_encodings(name, torch.float32), narrow)
    assert all(t.isfinite().all() for t in actual.values())


@pytest.mark.parametrize("name", ["nope", "t5", "fox", "shaw", "xl", "cope", "fire", "sticks own", "sticks vector"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rows_that_see_no_key(name, dtype):
    """Zeros, and no gradient: a whole batch row, one query, all queries of a block."""
    mask = torch.ones(2, 1, 150, 150, dtype=torch.bool)
    mask[1] = mask[0, :, 70] = mask[0, :, 64:128] = False
    result = differentiated(build_encodings(name, dtype), called(150, dtype=dtype), mask=mask)
    assert all(t.isfinite().all() for t in result.values())
    for unseen in ((1,), (0, slice(None), 70), (0, slice(None), slice(64, 128))):
        assert (result["result"][unseen] == 0).all()
        assert (result["q"][unseen] == 0).all()
    assert all((result[side][1] == 0).all() for side in "kv")


def test_hidden_keys_may_hold_anything_finite():
    q, k, v, x = called(150)
    mask = torch.ones(2, 1, 1, 150, dtype=torch.bool)
    mask[..., 70:80] = False
    encodings = build_encodings("t5")
    expected = attention(q, k, v, encodings, x=x, mask=mask, backend="tiled")
    k[:, :, 70:80], v[:, :, 70:80] = 1e30, -1e30
    assert gap(attention(q, k, v, encodings, x=x, mask=mask, backend="tiled"), expected) < 1e-12


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_weights_below_what_floats_can_hold(masked, learned):
    """Slopes of 2 over 4,096 tokens: e^-8192 is no number, and numbers near 0 are slow on many processors."""
    length, slopes = 4096, (2.0, 0.03125)
    q, k, v = qkv(1, 2, length)
    far = torch.arange(length) - (length - 1)
    mask = torch.ones(length, dtype=torch.bool).index_fill(0, torch.tensor([length - 3]), 0) if masked else None
    encodings = [ALiBi(2, slopes=slopes), *([T5Bias(2, init_std=1.0, bidirectional=True)] if learned else [])]
    leaves = [t.requires_grad_() for t in (q, k, v)]
    options = {"mask": mask[None, None]} if masked else {}
    out = attention(*leaves, encodings, backend="tiled", **options)
    gradients = torch.autograd.grad(out[:, :, -1].square().sum(), leaves)
    assert out.isfinite().all()
    wide = [t.detach().double().requires_grad_() for t in leaves]
    scores = (wide[0][:, :, -1:] @ wide[1].mT).squeeze(2) * 8**-0.5 + torch.tensor(slopes)[:, None] * far
    if learned:
        scores = scores + encodings[1].double().of_distance(far.double())
    if masked:
        scores = scores.masked_fill(~mask, -torch.inf)
    exact = (scores.softmax(-1).unsqueeze(2) @ wide[2]).squeeze(2)
    assert gap(out[:, :, -1], exact) < 5e-6
    for a, b in zip(gradients, torch.autograd.grad(exact.square().sum(), wide), strict=True):
        assert gap(a, b) < 1e-5
