"""Sinusoidal embedding against exact arithmetic."""

from __future__ import annotations

import mpmath
import pytest
import torch

from posenc import Sinusoidal
from tests.samples import gap, refusals


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("position", [2**17, 2**21, 10**8, 2**31 - 1, -(10**6)])
def test_exact_far_away(position, layout):
    dim, base = 32, 10_000
    with mpmath.workdps(50):
        angles = [position * mpmath.mpf(base) ** (mpmath.mpf(-2 * j) / dim) for j in range(dim // 2)]
        sin, cos = ([float(f(a)) for a in angles] for f in (mpmath.sin, mpmath.cos))
    exact = torch.tensor(sin + cos if layout == "half" else [w for pair in zip(sin, cos, strict=True) for w in pair])
    encoding = Sinusoidal(dim, layout=layout)
    assert gap(encoding.encode(torch.tensor([position]))[0], exact) < 3e-7
    narrow = encoding.to(torch.bfloat16)
    assert torch.equal(narrow.encode(torch.tensor([position])), encoding.encode(torch.tensor([position])))


def test_sum_is_rounded_once():
    encoding = Sinusoidal(8)
    x, positions = torch.randn(2, 5, 8).bfloat16(), torch.arange(5)
    assert torch.equal(encoding(x, positions), (x.float() + encoding.encode(positions)).bfloat16())


def test_concat_appends():
    encoding, x = Sinusoidal(6, combine="concat"), torch.randn(2, 3, 10)
    out = encoding(x, torch.arange(3))
    assert out.shape == (2, 3, 16)
    assert torch.equal(out[..., :10], x)
    assert torch.equal(out[1, :, 10:], encoding.encode(torch.arange(3)))


def test_dropout_in_training_only():
    encoding, x = Sinusoidal(64, dropout=0.5), torch.zeros(1, 50, 64)
    positions = torch.arange(1, 51)
    dropped = encoding.train()(x, positions)
    assert 0.3 < (dropped == 0).float().mean() < 0.7
    assert torch.equal(encoding.eval()(x, positions), encoding.encode(positions)[None])


test_refusals = refusals(
    {
        "dim": [lambda: Sinusoidal(2, spacing="tensor2tensor")],
        "base": [lambda: Sinusoidal(8, base=1.0)],
        "x": [
            lambda: Sinusoidal(8)(torch.zeros(1, 3, 6), torch.arange(3)),
            lambda: Sinusoidal(8)(torch.zeros(3, 8), torch.arange(3)),
        ],
        "positions": [
            lambda: Sinusoidal(8)(torch.zeros(1, 3, 8), torch.arange(4)),
            lambda: Sinusoidal(8)(torch.zeros(1, 3, 8), torch.zeros(3).half()),
        ],
    }
)
