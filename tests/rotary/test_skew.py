"""The exponential of skew matrices: torch's values and gradients, orthogonality far out, eigenvalues that meet."""

from __future__ import annotations

import pytest
import torch

from posenc.rotary import skew_exponential
from tests.samples import gap, mostly_slow

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
