"""PoPE: what its width must not change, and strengths of large channels."""

from __future__ import annotations

import torch

from posenc import attention, explain_backend
from posenc.rotary import PoPE
from tests.samples import gap, qkv


def test_the_scale_is_of_the_given_width():
    q, k, v = qkv(1, 2, 7, head_dim=16)
    pope = PoPE(16, num_heads=2)
    assert gap(attention(q, k, v, [pope]), attention(q, k, v, [pope], scale=0.25)) < 1e-6
    assert explain_backend(q, k, v, [pope]).backend == explain_backend(q, k, v, []).backend == "sdpa"


def test_strengths_of_large_channels():
    """softplus(x) − x is e^−x: 1e-13 of x = 30 counts in float64, and PyTorch's own leaves out up to 2e-9."""
    x, at = torch.tensor([[[[21.0, 25.0, 30.0, 35.0]]]], dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    features, _ = PoPE(4, num_heads=1).double()(x, x, at, at)
    expected = x + (-x).exp().log1p()
    assert ((features[..., :4] - expected) / expected).abs().max() < 1e-15
