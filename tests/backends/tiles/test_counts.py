"""Counts of gates: CoPE in all its forms, however far or near its counting comes to an end."""

from __future__ import annotations

import pytest
import torch

from posenc.score import CoPE
from tests.backends.tiles.compare import (
    HEAD_DIM,
    called,
    expect_same_as_dense,
    situation,
)


def cope(max_position: int, **options) -> CoPE:
    encoding = CoPE(HEAD_DIM, max_position=max_position, **options).double()
    with torch.no_grad():
        encoding.table.normal_(generator=torch.Generator().manual_seed(0))
    return encoding


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("max_position", "size"), [(1, 3.0), (2, 0.1), (299, 1.0), (5000, 1.0), (40, 0.0)])
def test_counts_that_end_at_once_or_never(max_position, size, scaled, masked):
    """One open gate is the end; or the table is longer than the text; or all gates are one half."""
    tensors = called(300, batch=1)
    tensors[0] = tensors[0] * size
    options = situation("mask with a row that attends to no key", 300, 300) if masked else {}
    expect_same_as_dense([cope(max_position, scaled=scaled)], tensors, **options)
