"""Contextual GRAPE-M: the authors' phases, rotated queries and keys, and gradients for given logits."""

from __future__ import annotations

import pytest
import torch

from posenc import attention, explain_backend
from posenc.encoding import Context
from posenc.score import GRAPEContext
from tests.golden import config, load, names
from tests.samples import FLOATS, gap, qkv, refusals

FILES = names("grape_m_ctx_*")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FILES)
def test_the_authors_numbers(name, dtype):
    inputs, arrays = config(name), load(name, dtype)
    grape = GRAPEContext(
        16, head_dim=inputs["head_dim"], num_kv_heads=inputs["heads"], base=inputs["base"],
        per_head=not inputs["share_across_heads"],
        per_head_phase=inputs["per_head_phase"], omega_scale=inputs["omega_scale"],
    ).to(dtype)  # fmt: skip
    with torch.no_grad():
        grape.log_theta.copy_(arrays["log_freq"].view_as(grape.log_theta))
    q, k = (arrays[n].transpose(1, 2).requires_grad_() for n in "qk")
    logits = arrays["omega_logit"].transpose(1, 2).requires_grad_()
    at = torch.arange(q.shape[2])
    actual = grape.absorb_into_qk(Context(q, k, k, at, at, 1.0, token_state=logits))
    for got, expected in zip(actual, ("q_rot", "k_rot"), strict=True):
        assert gap(got, arrays[expected].transpose(1, 2)) < FLOATS[dtype]
    given_out = [arrays[f"grad_out_{n}"].transpose(1, 2) for n in "qk"]
    *rotated, of_theta = torch.autograd.grad(actual, (q, k, logits, grape.log_theta), given_out)
    for got, expected in zip(rotated, ("q", "k", "omega_logit"), strict=True):
        assert gap(got, arrays[f"grad_{expected}"].transpose(1, 2)) < 10 * FLOATS[dtype], expected
    assert gap(of_theta, arrays["grad_log_freq"].view_as(of_theta)) < 100 * FLOATS[dtype]  # sums over positions


def test_fused_kernels_serve_it_and_tokens_start_moving_by_two_fifths():
    grape, x = GRAPEContext(32, head_dim=8, num_kv_heads=2, init_std=0.0), torch.randn(2, 9, 32)
    q, k, v = qkv(2, 4, 9, num_kv_heads=2)
    assert explain_backend(q, k, v, [grape], x=x).backend == "sdpa"
    assert gap(attention(q, k, v, [grape], x=x), attention(q, k, v, [grape], x=x, backend="dense")) < 1e-5
    assert abs(float((grape.token_state(x).detach() / 16).sigmoid().mean()) - 0.394) < 1e-3


test_refusals = refusals(
    {
        "head_dim": [lambda: GRAPEContext(32, head_dim=7, num_kv_heads=2)],
        "omega_scale": [lambda: GRAPEContext(32, head_dim=8, num_kv_heads=2, omega_scale=0.0)],
        "x": [lambda: attention(*qkv(1, 2, 3), [GRAPEContext(16, head_dim=8, num_kv_heads=2)])],
        "num_kv_heads": [
            lambda: attention(*qkv(1, 3, 3), [GRAPEContext(16, head_dim=8, num_kv_heads=2)], x=torch.ones(1, 3, 16))
        ],
    }
)
