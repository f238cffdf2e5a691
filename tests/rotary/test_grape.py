"""GRAPE-M: the authors' rotated tensors and gradients, and RoPE the other way round."""

from __future__ import annotations

import pytest
import torch

from posenc import RoPE
from posenc.rotary import GRAPEM
from tests.golden import config, load, names
from tests.samples import FLOATS, gap, qkv, refusals

FILES = [name for name in names("grape_m_*") if "ctx" not in name]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FILES)
def test_the_authors_numbers(name, dtype):
    inputs, arrays = config(name), load(name, dtype)
    grape = GRAPEM(
        inputs["head_dim"], num_heads=inputs["heads"], per_head=not inputs["share_across_heads"], base=inputs["base"],
        log_scale=inputs["log_freq_scale"],
    ).to(dtype)  # fmt: skip
    with torch.no_grad():
        grape.log_theta.copy_(arrays["log_freq"].view_as(grape.log_theta))
    assert gap(grape.frequencies().expand(inputs["heads"], -1), load(name)["freq"]) < 10 * FLOATS[dtype]
    q, k = (arrays[n].transpose(1, 2).requires_grad_() for n in "qk")
    at = arrays["phase"][0, :, 0]
    actual = grape(q, k, at, at)
    for got, expected in zip(actual, ("q_rot", "k_rot"), strict=True):
        assert gap(got, arrays[expected].transpose(1, 2)) < 2 * FLOATS[dtype]
    given_out = [arrays[f"grad_out_{n}"].transpose(1, 2) for n in "qk"]
    of_q, of_k, of_theta = torch.autograd.grad(actual, (q, k, grape.log_theta), given_out)
    assert gap(of_q, arrays["grad_q"].transpose(1, 2)) < 10 * FLOATS[dtype]
    assert gap(of_k, arrays["grad_k"].transpose(1, 2)) < 10 * FLOATS[dtype]
    assert gap(of_theta, arrays["grad_log_freq"].view_as(of_theta)) < 100 * FLOATS[dtype]  # sums over positions


def test_at_first_it_is_rope_at_negated_positions():
    q, k, _ = qkv(2, 4, 7, num_kv_heads=2)
    at = torch.arange(7) * 1000
    for per_head in (False, True):
        grape = GRAPEM(8, num_heads=4, num_kv_heads=2, per_head=per_head)
        for got, expected in zip(grape(q, k, at, at), RoPE(8)(q, k, -at, -at), strict=True):
            assert gap(got, expected) < 2e-3  # log frequencies are float32 parameters


test_refusals = refusals(
    {
        "head_dim": [lambda: GRAPEM(7, num_heads=2)],
        "num_kv_heads": [lambda: GRAPEM(8, num_heads=3, num_kv_heads=2)],
        "log_scale": [lambda: GRAPEM(8, num_heads=2, log_scale=0)],
    }
)
