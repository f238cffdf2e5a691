"""Sinks: a fixed one is one more key, long texts on every backend, and what may share a list."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, ForgetGate, RoPE, attention
from posenc.bias import KERPLE, Sandwich
from posenc.score import CoPE
from posenc.weight import StickBreaking
from posenc.weight.sink import AttentionSink
from tests.samples import gap, qkv


def test_a_fixed_sink_is_one_more_key_and_value_of_zeros() -> None:
    q, k, v = qkv(2, 4, 9, 9)
    sink = AttentionSink(4, learned=False)
    assert not list(sink.parameters())
    more = (torch.cat([torch.zeros_like(t[:, :, :1]), t], 2) for t in (k, v))
    seen = torch.ones(9, 10, dtype=torch.bool).tril(1)
    assert gap(attention(q, k, v, [sink]), attention(q, *more, mask=seen, causal=False)) < 1e-6


LISTS = {
    "rope": lambda: [RoPE(8)], "alibi": lambda: [ALiBi(4)], "kerple": lambda: [KERPLE(4)],
    "sandwich": lambda: [Sandwich(4)], "rope+fox": lambda: [RoPE(8), ForgetGate(12, num_heads=4)],
    "cope": lambda: [CoPE(8, max_position=6)],
}  # fmt: skip


@pytest.mark.parametrize("listed", ["rope", "sandwich", "rope+fox"])
def test_long_texts(listed: str) -> None:
    torch.manual_seed(0)
    encodings = [e.double() for e in (*LISTS[listed](), AttentionSink(4, logit=3.0))]
    q, k, v = (t.requires_grad_() for t in qkv(1, 4, 600, 600, dtype=torch.float64))
    x, upstream = (torch.randn(1, *shape, dtype=torch.float64) for shape in ((600, 12), (4, 600, 8)))
    leaves, actual = [q, k, v, *(p for e in encodings for p in e.parameters())], []
    for backend in ("dense", "tiled"):
        out = attention(q, k, v, encodings, x=x, backend=backend)
        actual.append([out, *torch.autograd.grad(out, leaves, upstream, allow_unused=True)])
    for expected, got in zip(*actual, strict=True):
        assert gap(got, expected) < 1e-9 * (1 + expected.detach().abs().max().item())


def test_flex_has_it_too() -> None:
    q, k, v = qkv(1, 4, 12, 12)
    encodings = [RoPE(8), ALiBi(4), AttentionSink(4, logit=1.0)]
    with torch.no_grad():
        assert gap(attention(q, k, v, encodings, backend="flex"), attention(q, k, v, encodings, backend="dense")) < 1e-5


def test_two_replacements_of_softmax_are_refused() -> None:
    q, k, v = qkv(1, 4, 5, 5)
    with pytest.raises(ValueError, match="softmax"):
        attention(q, k, v, [AttentionSink(4), StickBreaking()])
    with pytest.raises(ValueError, match="heads"):
        attention(q, k, v, [AttentionSink(3)])
