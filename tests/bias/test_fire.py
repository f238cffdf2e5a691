"""FIRE: the transcribed code's values and gradients, and that positions, not indices, normalise."""

from __future__ import annotations

import pytest
import torch

from posenc import FIRE, attention
from tests.golden import load, names
from tests.samples import expect_golden, gap, refusals


def of(arrays):
    fire = FIRE(len(arrays["b2"]), hidden=len(arrays["b1"]), threshold=float(arrays["init_L"])).double()
    with torch.no_grad():
        fire.inner.weight.copy_(arrays["w1"])
        fire.inner.bias.copy_(arrays["b1"])
        fire.outer.weight.copy_(arrays["w2"])
        fire.outer.bias.copy_(arrays["b2"])
        fire.c.copy_(arrays["c"])
        fire.multiplier.copy_(arrays["L_multiplier"])
    return fire


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", names("fire_*"))
def test_bias_and_attention(name, dtype):
    arrays = load(name, dtype)
    fire, positions = of(arrays).to(dtype), arrays["positions"]
    queries = positions[len(positions) - arrays["bias"].shape[-2] :]
    past = positions <= queries[:, None]
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    assert gap(fire(queries, positions)[:, past], arrays["bias"][0][:, past]) < tolerance
    expect_golden(arrays, [fire], tolerance, q_pos=queries, k_pos=positions)


@pytest.mark.parametrize("name", [name for name in names("fire_*") if "decode" not in name])
def test_gradients(name):
    arrays = load(name)
    fire, positions = of(arrays), arrays["positions"]
    qkv = [arrays[t] for t in "qkv"]
    out = attention(*qkv, [fire], q_pos=positions, k_pos=positions, scale=float(arrays["scale"]))
    out.backward(arrays["grad_out"])
    pairs = {"c": fire.c, "L_multiplier": fire.multiplier, "w1": fire.inner.weight, "w2": fire.outer.weight}
    for word, parameter in pairs.items():
        expected = arrays[f"grad_{word}"]
        assert gap(parameter.grad.reshape(expected.shape), expected) < 1e-9 * max(1.0, float(expected.abs().max())), (
            word
        )


def test_nothing_past_the_threshold_is_new_to_the_network():
    """Inputs of the network, read off through an outer layer that is the identity."""
    fire = FIRE(1, hidden=1, threshold=8)
    with torch.no_grad():
        for layer in (fire.inner, fire.outer):
            layer.weight.fill_(1.0)
            layer.bias.zero_()
    positions = torch.arange(3000)
    inputs = fire(positions[-1:], positions)
    assert inputs.min() >= 0
    assert inputs.max() <= 1


test_refusals = refusals(
    {
        "c": [lambda: FIRE(2, c=0)],
    }
)
