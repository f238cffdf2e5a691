"""Log-CPB: it starts almost flat and stays between 0 and 16."""

from __future__ import annotations

import torch

from posenc.bias import LogCPB
from tests.samples import gap


def test_it_starts_almost_flat_and_stays_between_0_and_16():
    cpb = LogCPB(4)
    positions = torch.arange(50)
    assert gap(cpb(positions, positions), torch.full((4, 50, 50), 8.0)) < 1.0
    with torch.no_grad():
        cpb.outer_weight.mul_(1e6)
    bias = cpb(positions, positions)
    assert bias.min() >= 0
    assert bias.max() <= 16
