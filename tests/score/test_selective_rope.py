"""Selective RoPE: the authors' angles, rotated queries and keys, gradients; in pieces as in one; fused kernels."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, AttentionSink, ForgetGate, attention, explain_backend
from posenc.encoding import Context
from posenc.score import SelectiveRoPE
from tests.golden import config, load, names
from tests.samples import gap, qkv, refusals

FILES = names("selrope_*")
CLOSE = {torch.float64: 1e-12, torch.float32: 1e-4}  # angles grow with the sum
PARAMETERS = {  # ours to theirs, with how theirs is reversed
    "down": ("phi_proj.0.weight", None), "lengths": ("phi_proj.scalar", None),
    "taps": ("phi_conv1d.weight", lambda w: w[:, 0].flip(-1).T), "bias": ("phi_bias", lambda b: b[0, 0]),
    "temperature": ("temperature", lambda t: t.flatten()),
}  # fmt: skip


def official(name, dtype):
    inputs, arrays = config(name), load(name, dtype)
    rfa, full = inputs.get("temp_type") == "rfa", inputs.get("phi_parametrization") == "full-rank"
    gate = {None: "head", "gla": "pair"}[inputs.get("gate_parametrization")] if inputs.get("use_gate") else None
    rope = SelectiveRoPE(
        inputs["heads"] * inputs["head_dim"], head_dim=inputs["head_dim"], num_kv_heads=inputs["heads"],
        rank=None if full else inputs["phi_proj_rank"], taps=None if inputs["skip_conv"] else 4,
        activation=inputs.get("conv_act") == "silu", bias=inputs.get("use_bias", False), gate=gate,
        gate_rank=inputs.get("gate_low_rank_dim", 16), base=inputs.get("temp_theta", 0.9 if rfa else 500_000),
        temperature=inputs.get("temp_max", 1.0), learned=True,
    ).to(dtype)  # fmt: skip
    rope.temperature.requires_grad_(inputs.get("temp_grad", False))
    reference = dict(PARAMETERS) | {"up": ("phi_proj.weight" if full else "phi_proj.1.weight", None)}
    ending = ".1" if gate == "pair" else ""
    reference |= {"gate_down": ("phase_gate_proj.0.weight", None), "gate_up": (f"phase_gate_proj{ending}.weight", None)}
    reference |= {"gate_bias": (f"phase_gate_proj{ending}.bias", None)}
    stored = load(name)["param.temperature"].flatten()  # of float32
    torch.testing.assert_close(rope.temperature.detach().double(), stored, rtol=2e-7, atol=0)
    expected = {}
    for actual, parameter in rope.named_parameters():
        key, reshape = reference[actual]
        reshape = reshape or (lambda t: t)
        with torch.no_grad():
            parameter.copy_(reshape(arrays[f"param.{key}"]))
        if parameter.requires_grad:
            expected[actual] = reshape(arrays[f"grad_param.{key}"])
    return rope, arrays, expected


def context_of(q, k, rope, x, new=None):
    new = q.shape[2] if new is None else new
    at = torch.arange(k.shape[2])
    return Context(q[:, :, -new:], k, k, at[-new:], at, 1.0, token_state=rope.token_state(x))


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("name", FILES)
def test_the_authors_numbers(name, dtype):
    rope, arrays, expected = official(name, dtype)
    x, q, k = arrays["hidden"].requires_grad_(), *(arrays[n].transpose(1, 2).requires_grad_() for n in "qk")
    context = context_of(q, k, rope, x)
    assert gap(rope.angles(context), arrays["angle"].transpose(1, 2)) < CLOSE[dtype]
    actual = rope.absorb_into_qk(context)
    for got, exact in zip(actual, ("q_rot", "k_rot"), strict=True):
        assert gap(got, arrays[exact].transpose(1, 2)) < CLOSE[dtype]
    leaves = {"q": q, "k": k, "hidden": x, **{n: p for n, p in rope.named_parameters() if p.requires_grad}}
    inputs = [arrays[f"grad_out_{n}"].transpose(1, 2) for n in "qk"]
    exact = {n: arrays[f"grad_{n}"].transpose(1, 2) for n in "qk"} | {"hidden": arrays["grad_hidden"]}
    for leaf, got in zip(leaves, torch.autograd.grad(actual, list(leaves.values()), inputs), strict=True):
        assert gap(got, (exact | expected)[leaf]) < 10 * CLOSE[dtype], leaf
    last = rope.absorb_into_qk(context_of(q, k, rope, x, 3))[0]
    assert gap(last, actual[0][:, :, -3:]) == 0


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
