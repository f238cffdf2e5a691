"""Terms of the scores that need no look at queries: functions of the distance, numbers a key, sums of gates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from posenc import ForgetGate, attention
from tests.samples import gap


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
