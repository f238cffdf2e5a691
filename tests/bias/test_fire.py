"""FIRE: nothing past the threshold is new to its network."""

from __future__ import annotations

import torch

from posenc.bias import FIRE


def test_nothing_past_the_threshold_is_new_to_the_network():
    """Inputs of the network, read off through an outer layer that is the identity."""
    fire = FIRE(1, hidden=1, threshold=8)
    with torch.no_grad():
        for layer in (fire.inner, fire.outer):
            layer.weight.fill_(1.0)
            layer.bias.zero_()
    positions = torch.arange(3000)
    inputs = fire(positions[-1:], positions)
    assert inputs.min() >= 0
    assert inputs.max() <= 1
