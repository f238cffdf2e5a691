"""The definition, against a formula of its own: one query and one key at a time."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from posenc import ALiBi, AttentionSink, ForgetGate, RoPE, ScoreEncoding, WeightEncoding, attention, read_attention
from posenc.heads import WIDENED
from posenc.score import PaTH
from posenc.weight import StickBreaking
from tests.samples import gap, qkv


class Uniform(WeightEncoding):
    """Half a share for each visible key."""

    def forward(self, scores, context):
        seen = torch.ones_like(scores).bool() if context.mask is None else context.mask.expand_as(scores)
        return seen / (2 * seen.sum(-1, keepdim=True)).clamp(min=1)


def test_a_weight_encoding_replaces_softmax():
    q, k, v = qkv()
    expected = v.cumsum(2) / (2 * torch.arange(1, 7).view(-1, 1))
    assert gap(attention(q, k, v, [Uniform()]), expected) < 1e-6
    with pytest.raises(ValueError, match=r"^encodings\b"):
        attention(q, k, v, [Uniform(), Uniform()])
    with pytest.raises(ValueError, match="Uniform"):
        attention(q, k, v, [Uniform()], backend="sdpa")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_inputs_are_rounded_at_the_end(dtype):
    q, k, v = qkv(dtype=dtype)
    out = attention(q, k, v, [RoPE(8), ALiBi(4)], backend="dense")
    wide = attention(q.float(), k.float(), v.float(), [ALiBi(4)], q_pos=torch.arange(6), backend="dense")
    assert out.dtype == dtype
    rope, positions = RoPE(8), torch.arange(6)
    rotated = [t.float() for t in rope(q, k, positions, positions)]
    wide = attention(*rotated, v.float(), [ALiBi(4)], backend="dense")
    assert torch.equal(out, wide.to(dtype))


class Copies(TorchDispatchMode):
    """Numbers in the largest float32 tensor that was made from one of 16 bits."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and out.dtype == torch.float32:
            self.largest = max(self.largest, out.numel())
        return out


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "encoding",
    [ForgetGate(8, num_heads=8, kind="fixed", decay_time=(1, 64)), AttentionSink(8), StickBreaking()],
    ids=lambda encoding: type(encoding).__name__,
)
def test_a_long_cache_of_16_bits_is_widened_in_parts(encoding, dtype):
    q, k, v = qkv(1, 8, 1, 3 * WIDENED // (2 * 64), 64, num_kv_heads=4, dtype=dtype)
    with torch.no_grad():
        expected = attention(q.float(), k.float(), v.float(), [encoding], backend="dense")
        with Copies() as copies:
            out = attention(q, k, v, [encoding], backend="dense")
    assert copies.largest == k[0, 0].numel()
    assert gap(out, expected) < 2 * torch.finfo(dtype).eps * float(expected.abs().max())


class KeysRead(ScoreEncoding):
    """Adds what keys have in their first channel."""

    def forward(self, scores, context):
        assert {context.q.dtype, context.k.dtype, context.v.dtype} == {torch.float32}
        return scores + context.k[..., 0].unsqueeze(-2)


def test_encodings_that_read_keys_get_them_wide():
    q, k, v = qkv(1, 4, 6, 6, dtype=torch.bfloat16)
    with torch.no_grad():
        out = attention(q, k, v, [KeysRead()], backend="dense")
        assert torch.equal(out, attention(q.float(), k.float(), v.float(), [KeysRead()], backend="dense").bfloat16())
        assert read_attention(q, k, v, [KeysRead()]).scores.dtype == torch.float32


def test_hidden_keys_may_hold_anything_but_hidden_values_must_be_finite():
    """0 · NaN is NaN: a hidden value that is not finite reaches the output, as in any matrix product."""
    q, k, v = qkv()
    mask = torch.tensor([True] * 5 + [False]).expand(2, 1, 6)
    expected = attention(q, k, v, mask=mask, backend="dense")
    for bad in (torch.nan, torch.inf, 1e30):
        spoilt = k.clone()
        spoilt[:, :, 5] = bad
        assert torch.equal(attention(q, spoilt, v, mask=mask, backend="dense"), expected)
    spoilt = v.clone()
    spoilt[:, :, 5] = torch.nan
    assert attention(q, k, spoilt, mask=mask, backend="dense").isnan().any()


def test_gradients_that_cancel_meet_before_they_are_rounded():
    """What PaTH takes away from a product of queries and keys is nearly all of it, for keys far back."""
    torch.manual_seed(0)
    encoding = PaTH(3, head_dim=2, num_kv_heads=1, rank=4)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    encoding = encoding.bfloat16()
    inputs = [torch.randn(1, 1, 100, 2).bfloat16() for _ in "qkv"] + [torch.randn(1, 100, 3).bfloat16()]

    upstream = torch.randn(1, 1, 100, 2)

    def of_keys(encoding, q, k, v, x):
        k = k.requires_grad_()
        (actual,) = torch.autograd.grad(attention(q, k, v, [encoding], x=x), k, upstream.to(q.dtype))
        return actual.double()[0, 0]

    expected = of_keys(copy.deepcopy(encoding).double(), *(t.double() for t in inputs))
    error = (of_keys(encoding, *inputs) - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert error[:90].max() < 0.03, "bfloat16 keeps 8 binary digits"
