"""DistanceMLP: x-transformers run anew, and what becomes of far distances."""

from __future__ import annotations

from itertools import product
from unittest import mock

import pytest
import torch

from posenc.bias import DistanceMLP
from tests.golden.test_biases import distance_mlp_of
from tests.samples import gap


def by_authors(options, queries, keys):
    """Weights and bias of x-transformers in float64, its cast to float32 widened; the golden files were made so."""
    library = pytest.importorskip("x_transformers.x_transformers")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        peer = library.DynamicPositionBias(**options).double()
        with torch.no_grad():
            for parameter in peer.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
    with torch.no_grad(), mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        return peer.state_dict(), peer(queries, keys)


@pytest.mark.reference
@pytest.mark.parametrize(("depth", "log", "norm"), [*product((1, 2, 4), (False, True), (False, True))])
def test_against_x_transformers(depth, log, norm):
    options = {"dim": 12, "heads": 3, "depth": depth, "log_distance": log, "norm": norm}
    weights, expected = by_authors(options, 9, 14)
    positions = torch.arange(14).double()
    assert gap(distance_mlp_of(weights, options)(positions[5:], positions), expected) < 1e-12


def test_far_out_it_is_a_straight_line_or_with_norms_level():
    far = torch.tensor([1e5, 2e5, 3e5], dtype=torch.float64)
    torch.manual_seed(0)
    straight, level = (DistanceMLP(3, hidden=8, log=False, norm=norm).double() for norm in (False, True))
    with torch.no_grad():
        first, second = straight.of_distance(-far).diff().unbind(-1)
        assert first.abs().max() > 1000
        assert gap(first, second) < 1e-6
        assert level.of_distance(-far).diff().abs().max() < 1e-5
