"""KERPLE's weight kernel against the formula of the authors' code, alone and with their bias."""

from __future__ import annotations

import pytest
import torch

from posenc import KERPLE, ALiBi, RoPE, attention, create_encoding
from posenc.encoding import Context
from posenc.score import GRAPEContext, KERPLEWeight, Mixture, SelectiveRoPE
from tests.samples import gap, qkv, refusals


def by_the_code(x, bias_a, bias_p, wei_a, wei_p):
    """x · exp(−wei_a · diff^wei_p) − bias_a · diff^bias_p, parameters clamped as there."""
    at = torch.arange(x.shape[-1], dtype=x.dtype)
    diff = (at[:, None] - at).tril()
    bias_a, wei_a = (t.clamp(min=0.01)[:, None, None] for t in (bias_a, wei_a))
    bias_p, wei_p = (t.clamp(min=0.01, max=2)[:, None, None] for t in (bias_p, wei_p))
    return x * (-(diff**wei_p) * wei_a).exp() - diff**bias_p * bias_a


@pytest.mark.parametrize("with_bias", [True, False])
def test_formula_of_the_authors_code(with_bias):
    q, k, v = qkv(2, 4, 12, dtype=torch.float64)
    weight, bias = (KERPLE(4, kind="power").double() for _ in range(2))
    with torch.no_grad():
        weight.a.copy_(torch.tensor([0.3, -1.0, 0.004, 2.0]))  # also out of bounds
        weight.p.copy_(torch.tensor([1.5, 0.5, 3.0, -2.0]))
        bias.a.copy_(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    none = torch.zeros(4).double()
    scores = by_the_code(q @ k.mT * 0.3, bias.a, bias.p, weight.a, weight.p)
    if not with_bias:
        scores = scores - by_the_code(none[:, None, None] * q @ k.mT, bias.a, bias.p, none, none)
    hidden = torch.ones(12, 12, dtype=torch.bool).triu(1)
    expected = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    encodings = [bias, KERPLEWeight(weight, 4)] if with_bias else [KERPLEWeight(weight, 4)]
    assert gap(attention(q, k, v, encodings, scale=0.3), expected) < 1e-12
    assert gap(attention(q, k, v, encodings[::-1], scale=0.3), expected) < 1e-12, "whatever its place in the list"


@pytest.mark.parametrize(
    "before",
    [
        lambda: SelectiveRoPE(6, head_dim=8, num_kv_heads=2),
        lambda: GRAPEContext(6, head_dim=8, num_kv_heads=2),
        lambda: Mixture([RoPE(8), []], 4),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_products_come_from_the_call(before, inside):
    """What a score encoding before it puts in the place of q·k is not multiplied, on any path."""
    (q, k, v), x, kernel = qkv(2, 4, 9, num_kv_heads=2, dtype=torch.float64), torch.randn(2, 9, 6).double(), ALiBi(4)
    first, weight = before().double(), KERPLEWeight(kernel, 4)
    encodings = [first, Mixture([weight], 4) if inside else weight]
    at, bare = torch.arange(9), q @ k.repeat_interleave(2, 1).mT * 8**-0.5
    context = Context(q, k, v, at, at, 8**-0.5, token_state=first.token_state(x))
    scores = first(bare, context) + kernel(at.double(), at.double()).expm1() * bare
    expected = scores.masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf).softmax(-1) @ v.repeat_interleave(2, 1)
    for backend in ("auto", "dense"):
        assert gap(attention(q, k, v, encodings, x=x, backend=backend), expected) < 1e-12, backend


def test_catalogue_takes_a_power_or_a_bias_of_yours():
    assert create_encoding("kerple_weight", num_heads=4).bias.kind == "power"
    assert isinstance(create_encoding("kerple_weight", num_heads=4, bias=ALiBi(4)).bias, ALiBi)


test_refusals = refusals(
    {
        "bias": [lambda: KERPLEWeight(RoPE(8), 4)],
        "num_heads": [lambda: KERPLEWeight(KERPLE(8), 4)],
    }
)
