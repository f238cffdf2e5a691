"""Sinusoids of grids: Perceiver's, concatenated."""

from __future__ import annotations

import torch

from posenc.embedding import SinusoidalGrid
from posenc.positions import grid, signed, with_prefix


def test_perceiver_appends_positions_to_tokens():
    encoding = SinusoidalGrid(258, family="perceiver", resolution=224, combine="concat")
    x, places = torch.randn(2, 7, 3), with_prefix(signed(grid(2, 3), (2, 3), corners=True))
    out = encoding(x, places)
    assert torch.equal(out[..., :3], x)
    assert torch.equal(out[..., 3:5][:, 1:], places[1:].expand(2, 6, 2))
    assert not out[:, 0, 3:].any()
    baseline = SinusoidalGrid(8, combine="concat")
    assert torch.equal(baseline(x, grid(1, 7))[..., 3:], baseline.encode(grid(1, 7)).expand(2, 7, 8))
