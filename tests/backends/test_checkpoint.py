"""Activation checkpointing: the second forward pass must save what the first one saved."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from posenc.catalogue import CATALOGUE
from posenc.testing import Case
from posenc.testing.cases import tokens_of
from posenc.testing.decoding import Layer
from tests.samples import few_spectra, gap

TEXTS = [n for n, entry in CATALOGUE.items() if not entry.own_positions and Case.from_catalogue(n).axes == 1]


@pytest.mark.parametrize("length", [1, 12])
@pytest.mark.parametrize("name", few_spectra(TEXTS))
def test_a_call_is_recomputed(name, length):
    case = Case.from_catalogue(name)
    layer, x = Layer(case).attend, tokens_of(case, length, batch=2).requires_grad_()
    out = checkpoint(layer, x, use_reentrant=False)
    actual = torch.autograd.grad(out.square().sum(), x)[0]
    assert gap(actual, torch.autograd.grad(layer(x).square().sum(), x)[0]) < 1e-9
