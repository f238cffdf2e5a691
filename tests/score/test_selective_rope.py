"""Selective RoPE: fixed temperatures; in pieces as in one; fused kernels."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, AttentionSink, ForgetGate, attention, explain_backend
from posenc.encoding import Context
from posenc.score import SelectiveRoPE
from tests.samples import gap, qkv, refusals


def context_of(q, k, rope, x, new=None):
    new = q.shape[2] if new is None else new
    at = torch.arange(k.shape[2])
    return Context(q[:, :, -new:], k, k, at[-new:], at, 1.0, token_state=rope.token_state(x))


@pytest.mark.parametrize("base", [0.9, 500_000])
def test_fixed_temperatures_are_those_that_learning_starts_from(base):
    q, k, _ = qkv(1, 2, 9, head_dim=8)
    x, options = torch.randn(1, 9, 16), {"head_dim": 8, "num_kv_heads": 2, "base": base}
    learned, fixed = SelectiveRoPE(16, learned=True, **options), SelectiveRoPE(16, **options)
    start = {name: p for name, p in learned.state_dict().items() if name != "temperature"}
    fixed.load_state_dict(start)
    assert gap(*(rope.angles(context_of(q, k, rope, x)) for rope in (learned, fixed))) < 1e-6


def sample(**options):
    torch.manual_seed(0)
    rope, x = SelectiveRoPE(32, head_dim=8, num_kv_heads=2, **options), torch.randn(2, 9, 32)
    return rope, x, qkv(2, 4, 9, num_kv_heads=2)


def test_queries_and_keys_are_rotated_before_a_backend_is_chosen():
    rope, x, (q, k, v) = sample(bias=True)
    exact = attention(q, k, v, [rope], x=x, backend="dense")
    assert explain_backend(q, k, v, [rope], x=x).backend == "sdpa"
    assert gap(attention(q, k, v, [rope], x=x), exact) < 1e-5
    for also in ([ForgetGate(32, num_heads=4)], [ALiBi(4)], [AttentionSink(4)]):
        expected = attention(q, k, v, [rope, *also], x=x, backend="dense")
        assert gap(attention(q, k, v, [rope, *also], x=x, backend="tiled"), expected) < 1e-5
    capped = {"x": x, "softcap": 2.0}
    assert (
        gap(
            attention(q, k, v, [rope], backend="tiled", **capped), attention(q, k, v, [rope], backend="dense", **capped)
        )
        < 1e-5
    )


test_refusals = refusals(
    {
        "head_dim": [
            lambda: SelectiveRoPE(32, head_dim=7, num_kv_heads=2),
            lambda: attention(
                *qkv(1, 2, 3, head_dim=6), [SelectiveRoPE(16, head_dim=8, num_kv_heads=2)], x=torch.ones(1, 3, 16)
            ),
        ],
        "dim": [
            lambda: SelectiveRoPE(33, head_dim=8, num_kv_heads=2),
            lambda: attention(*qkv(1, 2, 3), [SelectiveRoPE(16, head_dim=8, num_kv_heads=2)], x=torch.ones(1, 3, 15)),
        ],
        "base": [lambda: SelectiveRoPE(32, head_dim=8, num_kv_heads=2, base=0.0)],
        "x": [lambda: attention(*qkv(1, 2, 3), [SelectiveRoPE(16, head_dim=8, num_kv_heads=2)])],
    }
)
