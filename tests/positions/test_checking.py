"""The mark of tokens without a place, in every dtype."""

from __future__ import annotations

import pytest
import torch

from posenc import positions
from posenc.positions import checking


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.float64], ids=str)
def test_the_mark_is_exact(dtype):
    marked = torch.tensor([[positions.NO_POSITION, 0], [positions.NO_POSITION + 200, 0], [0, 0]]).to(dtype)
    assert marked[0, 0].item() == positions.NO_POSITION
    assert checking.has_no_position(marked, axes=2).tolist() == [True, False, False]
    assert checking.has_no_position(marked[:, 0], axes=1).tolist() == [True, False, False]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16], ids=str)
def test_no_small_integer_is_the_mark(dtype):
    """−2^31, cast to one of these, is 0."""
    assert not checking.has_no_position(torch.zeros(3, 2, dtype=dtype), axes=2).any()
    assert not checking.has_no_position(torch.zeros(3, dtype=dtype), axes=1).any()
