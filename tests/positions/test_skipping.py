"""PoSE's positions: draws reach all their bounds; one row and a generator."""

from __future__ import annotations

import pytest
import torch

from posenc.positions import skipped


def test_draws_reach_all_their_bounds() -> None:
    result = skipped(4, 6, text_length=5, batch=400, generator=torch.Generator().manual_seed(0))
    gaps = result.positions.diff(dim=-1)
    assert {tuple(row) for row in gaps.tolist()} == {
        (1, 1, 1),
        *((g, 1, 1) for g in (2, 3)),
        *((1, g, 1) for g in (2, 3)),
    }
    assert (result.positions[:, 0] == 0).all()
    assert set(result.tokens[:, -1].tolist()) == {3, 4}


def test_one_row_and_a_generator() -> None:
    first, second = (skipped(16, 64, text_length=80, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert first.positions.shape == first.tokens.shape == (16,)
    assert torch.equal(first.positions, second.positions)
    with pytest.raises(ValueError, match="tokens"):
        skipped(9, 8)
    with pytest.raises(ValueError, match="text_length"):
        skipped(4, 8, text_length=3)
