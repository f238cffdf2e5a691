"""Terms of the scores by tiles: sums of gates, rows of the distance, counts, units of a network, heads that mix."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from posenc import ForgetGate, attention, positions
from posenc.bias import FIRE, KERPLE, SwinBias
from posenc.score import DAPE, CoPE
from tests.backends.tiles.compare import (
    HEAD_DIM,
    HEADS,
    build_encodings,
    called,
    differentiated,
    expect_dense,
    expect_same,
    expect_same_as_dense,
    situation,
)
from tests.samples import gap, qkv


def blockwise(q: Tensor, k: Tensor, v: Tensor, gates: Tensor, rows: Tensor) -> Tensor:
    """The rows of forgetting attention for one head, in the precision of what is given."""
    sums = gates.cumsum(0)
    scores = q[rows] @ k.T * q.shape[-1] ** -0.5 + sums[rows, None] - sums
    later = torch.arange(len(k)) > rows[:, None]
    return scores.masked_fill(later, -torch.inf).softmax(-1) @ v


GATES = {
    "near 1": lambda x: 9 + x,
    "near 0.5": lambda x: x,
    "mixed": lambda x: torch.where(x > 1.9, -2.0, 9 + x),  # closed once in fifty tokens
}


@pytest.mark.parametrize("kind", GATES)
def test_forget_gates_over_a_long_text(kind):
    """Running sums of 16,384 gates lose no digits in float32: results and gradients of gates for rows all over it."""
    length, width = 16_384, 16
    source = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(length, width, generator=source, dtype=torch.float64).float() for _ in range(3))
    gates = torch.nn.functional.logsigmoid(GATES[kind](torch.randn(length, generator=source))).requires_grad_()
    fox = ForgetGate(1, num_heads=1)
    q, k, v = (t.requires_grad_() for t in (q, k, v))
    tensors = [t[None, None] for t in (q, k, v)]
    out = attention(*tensors, [fox], token_states=[gates[None, None]], backend="tiled")[0, 0]
    rows = torch.cat([torch.arange(0, length, 157), torch.arange(length - 40, length)])
    got = [out[rows], *torch.autograd.grad(out[rows].square().sum(), [q, k, v, gates])]
    wide = [t.detach().double().requires_grad_() for t in (q, k, v, gates)]
    exact = blockwise(*wide, rows)
    expected = [exact, *torch.autograd.grad(exact.square().sum(), wide)]
    assert gap(got[0], expected[0]) < 1e-4
    for a, b in zip(got[1:], expected[1:], strict=True):
        assert gap(a, b) < 1e-4 * max(1.0, float(b.abs().max()))


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize(("length", "causal"), [(257, False), (700, True)])
@pytest.mark.parametrize("name", ["alibi", "t5", "one row for all heads"])
def test_equals_the_definition(name, length, causal, trained):
    """Also of frozen encodings in a training of q, k and v alone."""
    expect_dense([encoding.requires_grad_(trained) for encoding in build_encodings(name)], length, causal=causal)


def cope(max_position: int, **options) -> CoPE:
    encoding = CoPE(HEAD_DIM, max_position=max_position, **options).double()
    with torch.no_grad():
        encoding.table.normal_(generator=torch.Generator().manual_seed(0))
    return encoding


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("max_position", "size"), [(1, 3.0), (2, 0.1), (299, 1.0), (5000, 1.0), (40, 0.0)])
def test_counts_that_end_at_once_or_never(max_position, size, scaled, masked):
    """One open gate is the end; or the table is longer than the text; or all gates are one half."""
    tensors = called(300, batch=1)
    tensors[0] = tensors[0] * size
    options = situation("mask with a row that attends to no key", 300, 300) if masked else {}
    expect_same_as_dense([cope(max_position, scaled=scaled)], tensors, **options)


UNITS = {
    "all bend": lambda weight, bias: (weight.fill_(2.0), bias.copy_(torch.linspace(-1.9, -0.1, 32))),
    "all straight": lambda weight, bias: (weight.fill_(1.0), bias.fill_(0.1)),
    "all dead": lambda weight, bias: (weight.fill_(-1.0), bias.fill_(-0.1)),
    "bend at zero": lambda weight, bias: (weight.fill_(1.0), bias.fill_(0.0)),
    "bend at one": lambda weight, bias: (weight.fill_(-1.0), bias.fill_(1.0)),
    "flat": lambda weight, bias: (weight.fill_(0.0), bias.copy_(torch.linspace(-1, 1, 32))),
    "nothing at all": lambda weight, bias: (weight.fill_(0.0), bias.fill_(0.0)),
}


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("length", [65, 300])
def test_units_of_all_kinds(length, units):
    fire = FIRE(HEADS, threshold=40).double()
    with torch.no_grad():
        UNITS[units](fire.inner.weight, fire.inner.bias)
    tensors = called(length, batch=1)
    got, expected = (differentiated([fire], tensors, backend=backend) for backend in ("tiled", "dense"))
    if units in ("bend at zero", "bend at one", "nothing at all"):  # relu's slope at its bend is a matter of taste
        got, expected = ({k: t for k, t in actual.items() if "inner" not in k} for actual in (got, expected))
    if units == "bend at one":
        got, expected = ({k: t for k, t in actual.items() if k in "resultqkv"} for actual in (got, expected))
    expect_same(got, expected)


@pytest.mark.parametrize("hidden", [5, 400])
def test_networks_of_any_width(hidden):
    """Of a wide network, few numbers of a tile have all their units at a time."""
    expect_dense([DAPE(KERPLE(HEADS), hidden=hidden).double()], 70)


def test_a_bias_of_a_picture():
    torch.manual_seed(0)
    at = positions.grid(12, 12)
    bias = SwinBias(HEADS, window=(12, 12))
    with torch.no_grad():
        bias.table.normal_(std=0.3)
    tensors = [*qkv(2, HEADS, 144, dtype=torch.float64), torch.zeros(2, 144, 1, dtype=torch.float64)]
    expect_same_as_dense([DAPE(bias).double()], tensors, q_pos=at, k_pos=at, causal=False)
