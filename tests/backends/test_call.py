"""The call itself: precision, backends, explanations, token states, transforms."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, RoPE, attention, explain_backend
from posenc.backends import BACKENDS as ALL_BACKENDS
from posenc.score import Shaw
from tests.samples import BACKENDS, qkv

EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)


@EACH_BACKEND
def test_gradients_reach_positions(backend):
    q, k, v = qkv(1, 2, 4, head_dim=4, dtype=torch.float64)
    positions = torch.tensor([0.3, 1.1, 2.5, 4.25], dtype=torch.float64, requires_grad=True)
    encodings = [RoPE(4), ALiBi(2)]
    torch.autograd.gradcheck(lambda p: attention(q, k, v, encodings, q_pos=p, backend=backend), positions)


class TestExplain:
    def test_names_the_backend_and_why_not_each_other(self):
        explanation = explain_backend(*qkv(queries=20), [RoPE(8), Shaw(8, max_distance=2)])
        assert explanation.backend == "tiled"
        assert "Shaw" in explanation.refused["sdpa"]
        first, *rest = str(explanation).splitlines()
        assert explanation.how in first
        assert len(rest) == len(explanation.refused) == len(ALL_BACKENDS) - 1
        for line, (backend, reason) in zip(rest, explanation.refused.items(), strict=True):
            assert backend in line
            assert reason
            assert reason in line

    def test_refuses_what_the_call_refuses(self):
        with pytest.raises(ValueError, match=r"num_heads\b.*\b8\b"):
            explain_backend(*qkv(), [ALiBi(8)])
