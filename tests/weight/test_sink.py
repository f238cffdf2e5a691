"""Sinks: FlexAttention has them, and what may share a list."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, RoPE, attention
from posenc.weight import StickBreaking
from posenc.weight.sink import AttentionSink
from tests.samples import gap, qkv


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
