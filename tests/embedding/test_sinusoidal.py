"""Sinusoidal embedding: rounded once, and dropped in training alone."""

from __future__ import annotations

import torch

from posenc import Sinusoidal


def test_sum_is_rounded_once():
    encoding = Sinusoidal(8)
    x, positions = torch.randn(2, 5, 8).bfloat16(), torch.arange(5)
    assert torch.equal(encoding(x, positions), (x.float() + encoding.encode(positions)).bfloat16())


def test_dropout_in_training_only():
    encoding, x = Sinusoidal(64, dropout=0.5), torch.zeros(1, 50, 64)
    positions = torch.arange(1, 51)
    dropped = encoding.train()(x, positions)
    assert 0.3 < (dropped == 0).float().mean() < 0.7
    assert torch.equal(encoding.eval()(x, positions), encoding.encode(positions)[None])
