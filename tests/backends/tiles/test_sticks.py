"""Stick-breaking by ranges of keys: exact, also for sticks that break at once, and early to leave."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from posenc import ALiBi, attention
from posenc.weight import StickBreaking
from tests.backends.tiles.compare import (
    HEAD_DIM,
    HEADS,
    called,
    differentiated,
    expect_same_as_dense,
)
from tests.samples import gap, qkv


def loud(length: int = 700, size: float = 80.0, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v whose scores, at a scale of 1, reach from −size to size: most are far out, in runs of either sign."""
    q, k, v = qkv(1, 2, length, head_dim=HEAD_DIM, dtype=torch.float64)
    scores = q @ k.mT
    q = q * (size / scores.abs().amax(-1, keepdim=True))
    q, k, v = (t.float() for t in (q, k, v))
    return q.to(dtype), k.to(dtype), v.to(dtype)


@pytest.mark.parametrize("shift", [0.0, -6.0, -70.0], ids=["both signs", "seldom", "hardly ever"])
def test_loud_scores(shift):
    """Scores up to ±80: finite, and errors of the order of the definition's own in float32."""
    q, k, v = loud()
    tensors = [q, k, v, torch.zeros(1, 700, 1)]
    encodings = [StickBreaking(remainder="own")]
    if shift:  # a channel that says no
        tensors[0] = torch.cat([q, torch.ones_like(q[..., :1])], -1)
        tensors[1] = torch.cat([k, torch.full_like(k[..., :1], shift)], -1)
    wide = [t.double() for t in tensors]
    exact = differentiated(encodings, wide, backend="dense", scale=1.0)
    results = {
        backend: differentiated(encodings, tensors, backend=backend, scale=1.0) for backend in ("tiled", "dense")
    }
    for name in ("result", "q", "k", "v"):
        got, peer = (gap(results[backend][name], exact[name]) for backend in ("tiled", "dense"))
        assert results["tiled"][name].isfinite().all()
        factor = 4 if name in "qk" else 8
        assert got <= factor * peer + 1e-6, f"{name}: {got:.1e} against the definition's {peer:.1e}"


@pytest.mark.parametrize("size", [1.0, 10.0, 80.0])
@pytest.mark.parametrize("attend_current", [False, True])
def test_weights_and_remainder_are_one_stick(attend_current, size):
    """Values of 1, and a vector of 1 that gets what is left."""
    q, k, v = loud(size=size)
    sticks = StickBreaking(attend_current=attend_current, remainder="vector", num_heads=2, value_dim=HEAD_DIM)
    torch.nn.init.ones_(sticks.vector)
    out = attention(q, k, torch.ones_like(v), [sticks], scale=1.0, backend="tiled")
    assert gap(out, torch.ones_like(out)) < 1e-6 * max(1.0, size / 10)  # rounding of large scores is that of weights
    one_hot = torch.eye(700).expand(1, 2, -1, -1)
    baseline = StickBreaking(attend_current=attend_current)
    weights = attention(q, k, one_hot, [baseline], scale=1.0, backend="tiled")
    assert (weights >= 0).all()
    assert weights.triu(1 if attend_current else 0).abs().max() == 0


class TestEarlyExit:
    LENGTH = 3000

    def even(self) -> list[Tensor]:
        """q, k and v whose scores lie around −3.4: a key takes a thirtieth of what it finds, and sticks last long."""
        q, k, v, _ = called(self.LENGTH, batch=1, dtype=torch.float32)
        q, k = q * 0.1, k * 0.5
        channel = torch.ones(1, HEADS, self.LENGTH, 1)
        return [torch.cat([q, channel], -1), torch.cat([k, -10.2 * channel[:, : k.shape[1]]], -1), v]

    @pytest.mark.parametrize("tolerance", [1e-3])
    @pytest.mark.parametrize("options", [{}, {"causal": False}, {"window": 500}], ids=str)
    def test_what_is_left_out_is_small(self, tolerance, options):
        q, k, v = self.even()
        exact = attention(*(t[:, :, :1000] for t in (q, k, v)), [StickBreaking()], backend="dense", **options)
        out = attention(
            *(t[:, :, :1000] for t in (q, k, v)), [StickBreaking()], tolerance=tolerance, backend="tiled", **options
        )
        assert gap(out, exact) <= 1.01 * tolerance * float(v.abs().max())

    def test_sticks_that_never_end_are_followed_to_the_end(self):
        tensors = called(700, batch=1)
        tensors[1] = tensors[1] - 20
        tensors[0] = tensors[0].abs()
        expect_same_as_dense([StickBreaking()], tensors)

    def test_a_bias_decides_as_scores_do(self):
        encodings, tensors = [ALiBi(HEADS, slopes=(2.0, 1.0, 0.1, 0.001)), StickBreaking()], called(700, batch=1)
        expect_same_as_dense(encodings, tensors)
