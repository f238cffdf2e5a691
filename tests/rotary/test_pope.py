"""PoPE: another's scores, weights, features and gradients; and what its width must not change."""

from __future__ import annotations

import pytest
import torch

from posenc import attention, explain_backend, read_attention
from posenc.positions import grid
from posenc.rotary import PoPE
from tests.golden import config, load, names
from tests.samples import FLOATS, gap, qkv, refusals

FILES = names("pope_*")


def prepared(name, dtype):
    """The encoding, the arrays in our order of channels and heads, and how to bring results back to theirs."""
    inputs, arrays = config(name), load(name, dtype)
    heads, num_kv_heads, axial = inputs["heads"], inputs["kv_heads"], inputs["axial"]
    channels, order = torch.arange(inputs["head_dim"]), torch.arange(heads)
    options = {"rotary_dim": inputs["rotary_dim"]}
    if axial:  # theirs has the fastest coordinate first
        sections = axial[1]
        channels, options = torch.cat([channels[sections[0] :], channels[: sections[0]]]), {"sections": sections[::-1]}
    if inputs["gqa_order"]:  # query head h has key head h mod num_kv_heads there
        order = torch.arange(heads).view(-1, num_kv_heads).T.flatten()
    pope = PoPE(inputs["head_dim"], num_heads=heads, num_kv_heads=num_kv_heads, base=inputs["theta"], **options).to(
        dtype
    )
    with torch.no_grad():
        pope.bias.copy_(arrays["bias"][:, channels[: inputs["rotary_dim"]]])
    at = grid(*axial[0]) if axial else torch.arange(inputs["k_len"])
    return pope, arrays, inputs, channels, order, at


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("backend", ["dense", "sdpa"])
@pytest.mark.parametrize("name", FILES)
def test_another_implementations_numbers(name, backend, dtype):
    pope, arrays, inputs, channels, order, at = prepared(name, dtype)
    q, k, v = (arrays[x].requires_grad_() for x in "qkv")
    actual = (q[:, order][..., channels], k[..., channels], v)
    q_pos = at[-inputs["q_len"] :]
    options = {"q_pos": q_pos, "k_pos": at, "causal": inputs["axial"] is None}
    out = attention(*actual, [pope], backend=backend, **options)
    assert gap(out, arrays["out"][:, order]) < FLOATS[dtype]
    leaves = [q, k, v, pope.bias]
    result = torch.autograd.grad(out, leaves, arrays["grad_out"][:, order])
    of_bias = arrays["grad_bias"][:, channels[: inputs["rotary_dim"]]]
    expected = [arrays["grad_q"], arrays["grad_k"], arrays["grad_v"], of_bias]
    for got, exact in zip(result, expected, strict=True):
        assert gap(got, exact) < 10 * FLOATS[dtype]
    if backend == "dense":
        read = read_attention(*actual, [pope], **options)
        seen = arrays["allowed"]
        assert gap(read.scores[:, :, seen], arrays["scores"][:, order][:, :, seen]) < FLOATS[dtype]


@pytest.mark.parametrize("name", [name for name in FILES if "axial" not in name])
def test_features(name):
    pope, arrays, inputs, *_, at = prepared(name, torch.float64)
    width = inputs["rotary_dim"]
    for got, expected in zip(
        pope(arrays["q"], arrays["k"], at[-inputs["q_len"] :], at), ("q_feat", "k_feat"), strict=True
    ):
        reference, baseline = arrays[expected].split([2 * width, inputs["head_dim"] - width], -1)
        assert gap(got, torch.cat([reference[..., ::2], reference[..., 1::2], baseline], -1)) < 1e-12


def test_the_scale_is_of_the_given_width():
    q, k, v = qkv(1, 2, 7, head_dim=16)
    pope = PoPE(16, num_heads=2)
    assert gap(attention(q, k, v, [pope]), attention(q, k, v, [pope], scale=0.25)) < 1e-6
    assert explain_backend(q, k, v, [pope]).backend == explain_backend(q, k, v, []).backend == "sdpa"


def test_strengths_of_large_channels():
    """softplus(x) − x is e^−x: 1e-13 of x = 30 counts in float64, and PyTorch's own leaves out up to 2e-9."""
    x, at = torch.tensor([[[[21.0, 25.0, 30.0, 35.0]]]], dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    features, _ = PoPE(4, num_heads=1).double()(x, x, at, at)
    expected = x + (-x).exp().log1p()
    assert ((features[..., :4] - expected) / expected).abs().max() < 1e-15


test_refusals = refusals(
    {
        "num_kv_heads": [
            lambda: PoPE(8, num_heads=3, num_kv_heads=2),
            lambda: attention(*qkv(1, 4, 3, num_kv_heads=1), [PoPE(8, num_heads=4)]),
        ],
        "rotary_dim": [lambda: PoPE(8, num_heads=2, rotary_dim=9)],
        "sections": [lambda: PoPE(8, num_heads=2, sections=(4, 2))],
        "table": [lambda: PoPE(8, num_heads=2).table(torch.arange(3))],
    }
)
