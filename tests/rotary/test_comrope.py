"""ComRoPE: the common basis against exponentials, gradients too; its first values."""

from __future__ import annotations

import math

import pytest
import torch

from posenc.rotary import ComRoPEAP, ComRoPELD
from tests.rotary.test_skew import turning
from tests.samples import gap

DEGENERATE = {
    "random": None,
    "zero": (0, 0, 0, 0),
    "repeated": (2, 2, 2, 2),
    "opposite": (1, -1, 1e-9, 2),
    "some zero": (0, 0, 1, 3),
    "nearly repeated": (2, 2 + 1e-4, 2 + 2e-3, 2.1),
    "nearly zero": (1e-7, 1e-7, 2e-9, 0),
}
both = pytest.mark.parametrize("cls", [ComRoPEAP, ComRoPELD])


def exponentials(rope, x, positions):
    """The definition: blocks of x times torch's exponential of each token's own generator."""
    generators = rope.generators - rope.generators.mT
    if isinstance(rope, ComRoPELD):
        speeds = rope.multiplier.to(x)
    else:  # block b turns with coordinate b mod axes
        speeds = torch.eye(rope.axes).to(x).repeat(1, -(-rope.generators.shape[1] // rope.axes))[None]
    times = positions.to(x).unsqueeze(-3) @ speeds  # (*batch, rows | 1, tokens, blocks)
    turns = torch.matrix_exp((times[..., None, None] * generators.to(x).unsqueeze(-4)).contiguous())
    turns = turns.repeat_interleave(x.shape[1] // turns.shape[-5], -5)
    blocks = x.unflatten(-1, (-1, rope.block))
    return (turns @ blocks.unsqueeze(-1)).squeeze(-1).flatten(-2)


def degenerate(cls, kind):
    """A rotation whose blocks of 8 rotate at the rates of a kind."""
    torch.manual_seed(0)
    options = {"per_head": True} if cls is ComRoPELD else {}
    rope = cls(16, num_heads=4, block=8, num_kv_heads=2, **options).double()
    if DEGENERATE[kind] is not None:
        with torch.no_grad():
            rope.generators.copy_(turning(*(rate / 2 for rate in DEGENERATE[kind])))
    return rope


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize("rows", [False, True])
@both
def test_values_and_all_gradients_equal_exponentials(cls, rows, kind):
    """For a loss that sees phases, at degenerate generators, for queries of grouped heads, in both precisions."""
    rope = degenerate(cls, kind)
    x = torch.randn(3, 4, 5, 16, dtype=torch.float64).requires_grad_()
    positions = torch.rand(*([3] if rows else []), 5, 2, dtype=torch.float64) * 4 - 1
    positions[..., 0, :] = 0
    positions.requires_grad_()
    grad = torch.randn_like(x)
    inputs = [*rope.parameters(), x, positions]
    expected = exponentials(rope, x, positions)
    of_wanted = torch.autograd.grad(expected, inputs, grad)
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 5e-6)):
        cast = rope.to(dtype)
        with torch.no_grad():
            at, here = positions.to(dtype).requires_grad_(), x.to(dtype).requires_grad_()
        got = cast.rotate(here, cast.table(at, like=here))
        assert gap(got, expected) < tolerance
        gradients = torch.autograd.grad(got, [*cast.parameters(), here, at], grad.to(dtype))
        for a, b in zip(gradients, of_wanted, strict=True):
            assert gap(a, b) < tolerance * max(1.0, float(b.abs().max()))
        fixed = cast.rotate(here, cast.table(at.detach(), like=here))  # positions that want no gradient, as most
        of_parameters = torch.autograd.grad(fixed, list(cast.parameters()), grad.to(dtype))
        for a, b in zip(of_parameters, of_wanted, strict=False):
            assert gap(a, b) < tolerance * max(1.0, float(b.abs().max()))


@both
def test_a_second_derivative_is_refused(cls):
    """The gradient of generators is of first order alone: nothing must take it for a function of them."""
    rope, x = cls(8, num_heads=1, block=4), torch.randn(1, 1, 3, 8)
    out = rope.rotate(x, rope.table(torch.rand(3, 2))).square().sum(-1).cos().sum() + rope.generators.sum()
    (gradient,) = torch.autograd.grad(out, rope.generators, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.square().sum().backward()


def test_first_values_are_normal():
    rope = ComRoPELD(64, num_heads=64, axes=3, per_head=True, init_std=0.5).requires_grad_(False)
    assert rope.generators.shape == (64, 8, 8, 8)
    assert rope.multiplier.shape == (64, 3, 8)
    assert ComRoPELD(64, num_heads=12).multiplier.shape == (1, 2, 8)
    assert math.isclose(float(rope.generators.std()), 0.5, rel_tol=0.02)
    assert math.isclose(float(rope.multiplier.std()), 1.0, rel_tol=0.1)
    assert math.isclose(ComRoPEAP(64, num_heads=64).generators.std().item(), 1.0, rel_tol=0.02)
