"""A network of the distance by the few of its units that bend: FIRE, however its units lie."""

from __future__ import annotations

import pytest
import torch

from posenc.bias import FIRE
from tests.backends.tiles.compare import (
    HEADS,
    called,
    differentiated,
    expect_same,
)

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
