"""KERPLE and BAM: bounds of parameters, first values, the shift, and gradients where distances are 0."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi
from posenc.bias import KERPLE
from tests.samples import gap


@pytest.mark.parametrize("kind", ["log", "power"])
def test_parameters_out_of_bounds_count_as_the_bound_and_can_come_back(kind):
    kerple, at_bound = KERPLE(2, kind=kind), KERPLE(2, kind=kind)
    with torch.no_grad():
        for module, low, high in ((kerple, -5.0, 7.0), (at_bound, 0.01, 2.0 if kind == "power" else 7.0)):
            module.p.copy_(torch.tensor([low, high]))
            module.a.fill_(low)
    positions = torch.arange(6)
    bias = kerple(positions, positions)
    assert gap(bias, at_bound(positions, positions)) < 1e-6
    bias.sum().backward()
    assert kerple.p.grad.isfinite().all()
    assert (kerple.p.grad != 0).all()


def test_gradients_are_finite_at_distance_zero():
    kerple = KERPLE(3, kind="power").double()
    positions = torch.tensor([0.0, 0.0, 1.0]).double()
    with torch.no_grad():
        kerple.a.fill_(0.5)
        kerple.p.fill_(1.5)

    def bias(a, p):
        return torch.func.functional_call(kerple, {"a": a, "p": p}, (positions, positions))

    assert torch.autograd.gradcheck(bias, (kerple.a, kerple.p))
    assert torch.autograd.gradgradcheck(bias, (kerple.a, kerple.p)), "0 ** p has a first gradient in PyTorch, no second"


@pytest.mark.parametrize("heads", [8, 6])
def test_bam_starts_as_alibi_but_for_a_hundred_thousandth_of_a_token(heads):
    at = torch.arange(50)
    assert gap(KERPLE(heads, kind="bam", shift=True)(at, at), ALiBi(heads)(at, at)) < 2e-5


def test_the_shift_moves_the_key_without_penalty_and_negative_powers_prefer_far_keys():
    kernel, at = KERPLE(2, kind="bam", shift=True), torch.arange(40)
    with torch.no_grad():
        kernel.mu.copy_(torch.asinh(torch.tensor([-3.0, 2.5])))  # 2 sinh mu: 6 tokens back, 5 ahead
        kernel.p[1] = -1.0
    row = kernel(at[20:21], at)[:, 0]
    assert row[0].argmax() == 14
    assert row[1].argmin() == 25
    assert row[1, 0] > row[1, 15] > row[1, 24]


def test_gradients_of_bam_at_distance_zero():
    kernel = KERPLE(3, kind="bam", shift=True).double()
    at = torch.tensor([0.0, 0.0, 1.0]).double()
    with torch.no_grad():
        kernel.p.copy_(torch.tensor([1.5, 1.0, 2.0]))
        kernel.mu.fill_(0.2)
    call = lambda p, log_a, mu: torch.func.functional_call(kernel, {"p": p, "log_a": log_a, "mu": mu}, (at, at))  # noqa: E731
    assert torch.autograd.gradcheck(call, (kernel.p, kernel.log_a, kernel.mu))
    without = KERPLE(3, kind="bam")
    without(at.float(), at.float()).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in without.parameters())
