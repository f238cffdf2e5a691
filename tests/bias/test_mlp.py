"""DistanceMLP: x-transformers' numbers, kept and run anew, and what becomes of far distances."""

from __future__ import annotations

from itertools import product
from unittest import mock

import pytest
import torch

from posenc.bias import DistanceMLP
from tests.golden import config, load, names
from tests.samples import gap


def of(weights, options):
    """Ours with x-transformers' weights."""
    layers, norm = options["depth"], options["norm"]
    bias = DistanceMLP(options["heads"], hidden=options["dim"], layers=layers, log=options["log_distance"], norm=norm)
    renamed = {}
    for i in range(layers + 1):
        name = f"mlp.{i}.0" if i < layers else f"mlp.{i}"
        renamed |= {f"linears.{i}.{word}": weights[f"{name}.{word}"] for word in ("weight", "bias")}
    for i in range(layers if norm else 0):
        name = {"weight": "weight", "bias": "bias"} if i else {"weight": "gamma"}
        renamed |= {f"norms.{i}.{actual}": weights[f"mlp.{i}.1.{word}"] for actual, word in name.items()}
    bias.double().load_state_dict(renamed)
    return bias


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", names("distance_mlp_*"))
def test_bias_of_x_transformers(name, dtype):
    arrays = load(name)
    bias, (queries, keys) = of(arrays, config(name)).to(dtype), arrays["bias"].shape[1:]
    positions = torch.arange(keys).to(dtype)
    got = bias(positions[keys - queries :], positions)
    assert got.dtype == dtype
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    assert gap(got, arrays["bias"]) < tolerance * max(1.0, float(arrays["bias"].abs().max()))


@pytest.mark.reference
@pytest.mark.parametrize(("depth", "log", "norm"), [*product((1, 2, 4), (False, True), (False, True))])
def test_against_x_transformers(depth, log, norm):
    options = {"dim": 12, "heads": 3, "depth": depth, "log_distance": log, "norm": norm}
    weights, expected = by_authors(options, 9, 14)
    positions = torch.arange(14).double()
    assert gap(of(weights, options)(positions[5:], positions), expected) < 1e-12


def test_far_out_it_is_a_straight_line_or_with_norms_level():
    far = torch.tensor([1e5, 2e5, 3e5], dtype=torch.float64)
    torch.manual_seed(0)
    straight, level = (DistanceMLP(3, hidden=8, log=False, norm=norm).double() for norm in (False, True))
    with torch.no_grad():
        first, second = straight.of_distance(-far).diff().unbind(-1)
        assert first.abs().max() > 1000
        assert gap(first, second) < 1e-6
        assert level.of_distance(-far).diff().abs().max() < 1e-5


@pytest.mark.parametrize("word", ["num_heads", "hidden", "layers"])
def test_refusals_name_the_argument(word):
    with pytest.raises(ValueError, match=word):
        DistanceMLP(**{"num_heads": 2, word: 0})
