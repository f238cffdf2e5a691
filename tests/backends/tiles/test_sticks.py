"""Blocks of queries under softmax and stick-breaking: rows of any size or none, sticks that break at once or never."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from posenc import ALiBi, T5Bias, attention
from posenc.weight import StickBreaking
from tests.backends.tiles.compare import HEAD_DIM, HEADS, build_encodings, called, differentiated, expect_same_as_dense
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
