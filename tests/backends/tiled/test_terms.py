"""Terms of the scores that need no look at queries: functions of the distance, numbers a key, sums of gates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from posenc import ForgetGate, attention
from tests.backends.tiled.compare import (
    Fading,
    PerKey,
    build_encodings,
    called,
    differentiated,
    errors,
    expect_dense,
    expect_same,
)
from tests.samples import gap


@pytest.mark.parametrize("name", ["t5", "per key", "fox", "data_alibi", "t5+fox", "fox+sticks"])
@pytest.mark.parametrize("length", [60, 600])
def test_float32_against_float64(name, length):
    result = errors(name, torch.float32, length)
    assert result["result"] < 5e-6
    assert max(result.values()) < 3e-4, result


@pytest.mark.parametrize("name", ["t5", "per key", "fox", "data_alibi", "t5+fox", "fox+sticks"])
@pytest.mark.parametrize("length", [60, 600])
def test_bfloat16_against_float64(name, length):
    """Gradients of gates are long sums, in which the rounding of results must not add up."""
    result = errors(name, torch.bfloat16, length)
    assert max(result.values()) < 3e-2, result


@pytest.mark.parametrize("gate", [-1e-4, -0.01, -0.1, -0.12, -0.124, -0.2, -0.5, -3.0, -40.0])
@pytest.mark.parametrize("more", [[], [PerKey()]], ids=["alone", "with numbers a key"])
def test_gates_of_any_strength(gate, more):
    """In all the ways of taking sums: rows left where they are, differences of their own, keys cut off."""
    expect_dense([Fading(gate, gate / 2, gate / 30, 0.0), *more], 600, tolerance=1e-9)


@pytest.mark.parametrize("gates", [(-0.12,) * 4, (-3.0, -1e-3, -0.2, 0.0)])
@pytest.mark.parametrize("other", ["alibi", "t5"])
def test_gates_with_a_function_of_the_distance(other, gates):
    """Where queries are zero, gates decide alone, and nothing may be cut off that they leave."""
    encodings, tensors = [*build_encodings(other), Fading(*gates)], called(600, batch=1)
    tensors[0] = tensors[0] * 0.01
    got, expected = (differentiated(encodings, tensors, backend=backend) for backend in ("tiled", "dense"))
    expect_same(got, expected, 1e-9)
    narrow = [t.float() for t in tensors]
    out = attention(*narrow[:3], encodings, x=narrow[3], backend="tiled")
    assert gap(out, expected["result"]) < 5e-5


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
    out = attention(*tensors, [fox], features=[gates[None, None]], backend="tiled")[0, 0]
    rows = torch.cat([torch.arange(0, length, 157), torch.arange(length - 40, length)])
    got = [out[rows], *torch.autograd.grad(out[rows].square().sum(), [q, k, v, gates])]
    wide = [t.detach().double().requires_grad_() for t in (q, k, v, gates)]
    exact = blockwise(*wide, rows)
    expected = [exact, *torch.autograd.grad(exact.square().sum(), wide)]
    assert gap(got[0], expected[0]) < 1e-4
    for a, b in zip(got[1:], expected[1:], strict=True):
        assert gap(a, b) < 1e-4 * max(1.0, float(b.abs().max()))
