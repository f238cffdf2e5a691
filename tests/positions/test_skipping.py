"""PoSE's positions against its authors' training script: the same draws give the same rows."""

from __future__ import annotations

import pytest
import torch

from posenc.positions import skipped
from posenc.positions.skipping import bounds_of, laid_out
from tests.golden import config, load, names


@pytest.mark.parametrize("name", names("pose_l*"))
def test_rows_of_the_authors_draws(name: str) -> None:
    golden, meta = load(name), config(name)
    for row, text in enumerate(golden["text_lengths"].tolist()):
        tokens = min(text, meta["train_length"])
        low, high, value = golden["draws_low_high_value"][row].T
        assert bounds_of(tokens, meta["target_length"], text) == tuple(zip(low.tolist(), high.tolist(), strict=True))
        result = laid_out(tokens, *value.view(3, 1, 1))
        assert result.positions[0].tolist() == golden["position_ids"][row, :tokens].tolist()
        assert result.tokens[0].tolist() == golden["token_index"][row, :tokens].tolist()


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
