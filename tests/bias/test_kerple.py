"""KERPLE: the authors' values, the bounds of its parameters, and gradients where distances are 0."""

from __future__ import annotations

import pytest
import torch

from posenc import KERPLE
from tests.golden import load, names
from tests.samples import FLOATS, expect_golden, gap

FILES = [name for name in names("kerple_*") if "original" not in name]


def of(arrays, name):
    kerple = KERPLE(len(arrays["bias_p"]), kind="log" if "log" in name else "power").double()
    with torch.no_grad():
        kerple.p.copy_(arrays["bias_p"])
        kerple.a.copy_(arrays["bias_a"])
    return kerple


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FILES)
def test_bias_and_attention_of_the_authors_code(name, dtype):
    arrays = load(name)
    kerple, seen = of(arrays, name).to(dtype), arrays["mask_allowed"].bool()
    queries, keys = seen.shape
    positions = torch.arange(keys).to(dtype)
    bias = kerple(positions[keys - queries :], positions)
    largest = float(arrays["bias"].abs().max())
    assert gap(bias[:, seen], arrays["bias"][0][:, seen]) < FLOATS[dtype] * max(1.0, largest)
    expect_golden(load(name, dtype), [kerple], FLOATS[dtype])


def test_power_with_the_slopes_of_alibi():
    arrays = load("kerple_power_original_alibi_h8_l16")
    kerple = KERPLE(8, kind="power").double()
    with torch.no_grad():
        kerple.p.fill_(1.0)
        kerple.a.copy_(arrays["bias_a"])
    positions, seen = torch.arange(16).double(), arrays["mask_allowed"].bool()
    assert gap(kerple(positions, positions)[:, seen], arrays["bias"][0][:, seen]) < 1e-12


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
    torch.autograd.gradcheck(lambda a, p: torch.func.functional_call(kerple, {"a": a, "p": p}, (positions, positions)),
                             (kerple.a, kerple.p))  # fmt: skip


def test_monotone():
    for kind in ("log", "power"):
        row = KERPLE(4, kind=kind)(torch.tensor([50]), torch.arange(51))[:, 0]
        assert (row.diff() > 0).all(), "nearer keys lose less"
