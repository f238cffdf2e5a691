"""Tables by distance: each length's part of what a device keeps is what a fresh computation gives."""

from __future__ import annotations

import pytest
import torch

from posenc import T5Bias
from posenc.bias import Sandwich
from posenc.structure import lookup

BIASES = {
    "t5": lambda: T5Bias(4, num_buckets=8, max_distance=20),
    "t5 both ways": lambda: T5Bias(4, num_buckets=8, max_distance=20, bidirectional=True, bias_scale=2.0),
    "sandwich": lambda: Sandwich(4, dim=8),
}


@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 40), (7, 33), (40, 40), (50, 9), (64, 64), (3, 65)])
def test_is_the_bias_by_distance(name, queries, keys):
    bias = BIASES[name]()
    found = bias.lookup(queries, keys, like=torch.zeros(1))
    row = bias.of_distance(torch.arange(queries - 1, -keys, -1))
    assert torch.allclose(found.table[:, found.entries.long()], row, rtol=1e-6, atol=1e-6)


def test_keeps_so_many(monkeypatch):
    monkeypatch.setattr(lookup, "_KEPT", {})
    monkeypatch.setattr(lookup, "MOST_KEPT", 3)
    bias = BIASES["sandwich"]()
    for keys in (4, 16, 64, 256):
        bias.lookup(1, keys, like=torch.zeros(1))
    assert len(lookup._KEPT) == 3
    assert bias.lookup(1, 200, like=torch.zeros(1)).table.shape == (4, 256)


def test_a_compiler_makes_its_own(monkeypatch):
    monkeypatch.setattr(lookup, "_KEPT", {})
    bias = BIASES["t5"]()

    def row(x):
        table, index = bias.lookup(1, x.shape[0], like=x)
        return table[:, index.long()]

    for keys in (5, 9):
        x = torch.zeros(keys)
        assert torch.equal(torch.compile(row, backend="eager", fullgraph=True, dynamic=True)(x), row(x))
    assert len(lookup._KEPT) == 2, "of the eager calls alone"
