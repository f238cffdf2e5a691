"""Rotations by learned generators: exponentials of skew matrices, ComRoPE, LieRE."""

from __future__ import annotations

import math

import pytest
import torch

from posenc.rotary import ComRoPEAP, ComRoPELD, LieRE, skew_exponential
from tests.samples import gap, mostly_slow

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


# The exponential of skew matrices: torch's values and gradients, orthogonality far out, eigenvalues that meet.


BLOCKS = (1, 2, 3, 4, 5, 8, 16, 64)


def skew(*shape, norm=1.0, seed=0, dtype=torch.float64):
    """Random skew matrices whose largest angle is ``norm``."""
    samples = torch.randn(*shape, shape[-1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    samples = samples - samples.mT
    largest = torch.linalg.matrix_norm(samples, 2).clamp(min=1e-30)[..., None, None]
    return (samples * (norm / largest)).to(dtype)


def turning(*rates):
    """A skew matrix that rotates pairs at these rates, in a random basis."""
    blocks = torch.block_diag(*[torch.tensor([[0.0, -rate], [rate, 0.0]], dtype=torch.float64) for rate in rates])
    basis = torch.linalg.qr(torch.randn(len(blocks), len(blocks), dtype=torch.float64))[0]
    return basis @ blocks @ basis.mT


def skew_part(matrices):
    return (matrices - matrices.mT) / 2


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("norm", [0.0, 1e-9, 1.0, 3.0, 20.0, 300.0])
def test_values_and_gradients_equal_matrix_exp(block, norm):
    generators = skew(5, block, norm=norm).requires_grad_()
    grad = torch.randn(5, block, block, dtype=torch.float64)
    got, expected = skew_exponential(generators), torch.matrix_exp(skew_part(generators))
    assert gap(got, expected) < 1e-12 * max(1.0, norm)
    of_got, of_wanted = (torch.autograd.grad(out, generators, grad)[0] for out in (got, expected))
    assert gap(of_got, of_wanted) < 1e-12 * max(1.0, norm) * max(1.0, float(of_wanted.abs().max()))


@pytest.mark.parametrize("rates", [(2, 2), (2, -2), (0, 1), (2, 2, 2, 2), (0, 0, 1, 3), (2, 2 + 1e-7, 1e-9, 0)])
def test_gradcheck_where_eigenvalues_meet_or_vanish(rates):
    assert torch.autograd.gradcheck(skew_exponential, turning(*rates).requires_grad_())


@pytest.mark.parametrize("block", [8, 64])
@pytest.mark.parametrize("norm", [130.0, 255.0])
def test_float32_is_orthogonal_and_near_at_many_full_turns(block, norm):
    generators = skew(40, block, norm=norm, dtype=torch.float32)
    grad = torch.randn(40, block, block)
    exact = generators.double().requires_grad_()
    expected = torch.matrix_exp(skew_part(exact))
    of_wanted = torch.autograd.grad(expected, exact, grad.double())[0]
    generators.requires_grad_()
    got = skew_exponential(generators)
    wide = got.double()
    assert gap(wide.mT @ wide, torch.eye(block).double().expand(40, -1, -1)) < 5e-6
    assert gap(got, expected) < 6e-5  # angles of 255 are rounded by 1.5e-5 themselves
    assert gap(torch.autograd.grad(got, generators, grad)[0], of_wanted) < 6e-5


@pytest.mark.parametrize("block", [2, 3, 4, 8])
def test_any_memory_layout_and_any_batch(block):
    generators = skew(6, 5, block)
    expected = torch.matrix_exp(generators)
    permuted = generators.permute(1, 0, 3, 2)
    assert not permuted.is_contiguous()
    assert gap(skew_exponential(permuted), expected.permute(1, 0, 3, 2)) < 1e-12
    assert gap(skew_exponential(generators[:, ::2]), expected[:, ::2]) < 1e-12
    assert gap(skew_exponential(generators[0, 0]), expected[0, 0]) < 1e-12
    assert skew_exponential(generators[:0]).shape == (0, 5, block, block)
    many = skew(2**18 // block**2 + 3, block, dtype=torch.float32)  # computed in parts
    assert gap(skew_exponential(many)[-4:], torch.matrix_exp(many[-4:])) < 2e-6


@pytest.mark.parametrize("block", mostly_slow([2, 3, 4, 8], 3))
def test_compiled_and_exported(block):
    generators = skew(4, block, dtype=torch.float32).requires_grad_()
    compiled = torch.compile(skew_exponential, fullgraph=True, backend="aot_eager")
    got, expected = compiled(generators), skew_exponential(generators)
    assert gap(got, expected) < 1e-6
    grads = [torch.autograd.grad(out.square().sum() + out[:, 0].sum(), generators)[0] for out in (got, expected)]
    assert gap(*grads) < 1e-6

    class Module(torch.nn.Module):
        def forward(self, generators):
            return skew_exponential(generators)

    shapes = ({0: torch.export.Dim("tokens", min=2, max=100)},)
    program = torch.export.export(Module(), (generators.detach(),), dynamic_shapes=shapes)
    more = skew(7, block, dtype=torch.float32)
    assert gap(program.module()(more), skew_exponential(more)) < 1e-6
    seen = [node.meta.get("val") for node in program.graph.nodes]
    assert not any(value.is_complex() for value in seen if isinstance(value, torch.Tensor))


# LieRE: its first values.


def test_first_generators_are_uniform():
    liere = LieRE(64, num_heads=8).requires_grad_(False)
    assert liere.generators.shape == (2, 8, 1, 64 * 63 // 2)
    assert 0 <= float(liere.generators.min()) < 0.1
    assert 2 * math.pi - 0.1 < float(liere.generators.max()) <= 2 * math.pi
    assert LieRE(16, num_heads=2, init_scale=0.5).generators.max().item() <= 0.5
    assert not LieRE(16, num_heads=2, init_scale=0.0).generators.any()
