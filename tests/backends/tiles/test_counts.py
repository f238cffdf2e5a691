"""Counts of gates: CoPE in all its forms, however far or near its counting comes to an end."""

from __future__ import annotations

import pytest
import torch

from posenc.score import CoPE
from tests.backends.tiles.compare import (
    HEAD_DIM,
    SITUATIONS,
    called,
    differentiated,
    expect_same_as_dense,
)
from tests.samples import gap, qkv


def cope(max_position: int, **options) -> CoPE:
    encoding = CoPE(HEAD_DIM, max_position=max_position, **options).double()
    with torch.no_grad():
        encoding.table.normal_(generator=torch.Generator().manual_seed(0))
    return encoding


@pytest.mark.parametrize("situation", ["", "mask of all"])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("max_position", "size"), [(1, 3.0), (2, 0.1), (299, 1.0), (5000, 1.0), (40, 0.0)])
def test_counts_that_end_at_once_or_never(max_position, size, scaled, situation):
    """One open gate is the end; or the table is longer than the text; or all gates are one half."""
    tensors = called(300, batch=1)
    tensors[0] = tensors[0] * size
    options = SITUATIONS[situation](300, 300) if situation else {}
    expect_same_as_dense([cope(max_position, scaled=scaled)], tensors, **options)


@pytest.mark.parametrize("sign", [1, -1])
def test_gates_that_are_all_open_or_all_shut(sign):
    """Counts are whole numbers then, between which z has no slope; or zero."""
    q, k, v = qkv(1, 2, 130, head_dim=HEAD_DIM, dtype=torch.float64)
    q, k = q.abs() * 50, sign * k.abs() * 50
    encodings = [cope(30)]
    tensors = [q, k, v, torch.zeros(1, 130, 1, dtype=torch.float64)]
    got, expected = (differentiated(encodings, tensors, backend=backend, scale=1.0) for backend in ("tiled", "dense"))
    assert gap(got["result"], expected["result"]) < 1e-10
    assert all(t.isfinite().all() for t in got.values())
