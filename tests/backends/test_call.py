"""The call itself: precision, backends, explanations, token states, transforms."""

from __future__ import annotations

import importlib

import pytest
import torch

import posenc
from posenc import ALiBi, RoPE, ScoreEncoding, T5Bias, attention, explain_backend
from posenc.backends import BACKENDS as ALL_BACKENDS
from posenc.bias import FIRE, KERPLE
from posenc.score import Shaw
from tests.samples import BACKENDS, gap, qkv

EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)


@EACH_BACKEND
def test_gradients_reach_positions(backend):
    q, k, v = qkv(1, 2, 4, head_dim=4, dtype=torch.float64)
    positions = torch.tensor([0.3, 1.1, 2.5, 4.25], dtype=torch.float64, requires_grad=True)
    encodings = [RoPE(4), ALiBi(2)]
    torch.autograd.gradcheck(lambda p: attention(q, k, v, encodings, q_pos=p, backend=backend), positions)


class Remembering(ScoreEncoding):
    """Adds one number a token, computed from the layer's input."""

    def forward(self, scores, context):
        return scores if context.token_state is None else scores + context.token_state.unsqueeze(-2)

    def token_state(self, x):
        return x.sum(-1)[:, None]


def test_token_states_are_what_token_state_gave():
    q, k, v = qkv()
    x, encodings = torch.randn(2, 6, 3), [ALiBi(4), Remembering(), RoPE(8)]
    from_x = attention(q, k, v, encodings, x=x)
    inputs = attention(q, k, v, encodings, token_states=[None, x.sum(-1)[:, None], None])
    assert torch.equal(from_x, inputs)
    assert gap(from_x, attention(q, k, v, [ALiBi(4), RoPE(8)])) > 1e-3


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


def test_attention_is_a_function_and_no_package():
    assert callable(posenc.attention)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("posenc.attention")


@pytest.mark.parametrize("make", [lambda: T5Bias(4, init_std=1.0), lambda: KERPLE(4), lambda: FIRE(4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_query_under_parameters_that_were_cast_to_float64(make, dtype):
    bias = make()
    q, k, v = torch.randn(1, 4, 1, 8).to(dtype), *torch.randn(2, 1, 4, 20, 8).to(dtype)
    with torch.no_grad():
        for cast in (torch.float32, torch.float64):  # the second call is of a kind that is known from the first
            bias.to(cast)
            expected = attention(q.double(), k.double(), v.double(), [bias], backend="dense")
            assert (attention(q, k, v, [bias]).double() - expected).abs().max() < (
                2e-2 if dtype != torch.float32 else 1e-5
            )
