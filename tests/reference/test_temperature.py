"""Temperatures and token-dependent biases as transformers' own modules compute them."""

from __future__ import annotations

import pytest
import torch

from posenc import LogN, RoPE, attention, read_attention
from posenc.score import PowerTemperature, TokenRelativeBias
from tests.samples import gap, qkv

pytest.importorskip("transformers")
pytestmark = pytest.mark.reference


def test_inklings_relative_logits_and_its_temperature() -> None:
    from transformers.models.inkling.modeling_inkling import InklingRelativeLogits

    torch.manual_seed(0)
    reference, x, tokens = InklingRelativeLogits(6, 5), torch.randn(2, 12, 16), torch.arange(12)
    actual = TokenRelativeBias(16, num_heads=4, max_distance=5, relative_dim=6)
    with torch.no_grad():
        reference.proj.copy_(torch.randn(6, 5))
        actual.profiles.copy_(reference.proj)
        actual.weight.copy_(torch.randn(24, 16))
        states = (x @ actual.weight.T).view(2, 12, 4, 6)
        expected = reference(states, tokens, tokens)
        q, k, v = qkv(2, 4, 12, 12)
        tau = 1.0 + 0.3 * torch.log(((tokens + 1).float() / 7).clamp(min=1.0)).view(1, 1, -1, 1)
        hidden = torch.full((12, 12), -torch.inf).triu(1)
        weights = (q * tau @ k.mT * 0.5 + expected * tau + hidden).softmax(-1)
        for backend in ("auto", "dense"):
            result = attention(q, k, v, [actual, LogN(7, strength=0.3)], x=x, scale=0.5, backend=backend)
            assert gap(result, weights @ v) < 1e-5
        for queries in (1, 5):
            part = attention(q[:, :, -queries:], k, v, [actual], x=x, scale=0.5)
            assert gap(part, ((q @ k.mT * 0.5 + expected + hidden).softmax(-1) @ v)[:, :, -queries:]) < 1e-5


def test_beams_temperature() -> None:
    from transformers.models.beam.modeling_beam import compute_attention_scaling

    q, k, v = qkv(1, 2, 40, 40)
    positions = torch.arange(40) * 300
    expected = compute_attention_scaling(positions[None])
    with torch.no_grad():
        scores = read_attention(q, k, v, [RoPE(8), PowerTemperature()], q_pos=positions, causal=False).scores
        baseline = read_attention(q, k, v, [RoPE(8)], q_pos=positions, causal=False).scores
    assert gap(scores, baseline * expected) < 1e-4
