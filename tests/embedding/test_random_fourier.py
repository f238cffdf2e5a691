"""Random Fourier features: frequencies that are kept, and their likeness by distance."""

from __future__ import annotations

import math

import torch

from posenc.embedding import RandomFourier
from tests.samples import gap


def test_frequencies_are_kept_and_learned_if_wanted():
    features = RandomFourier(4000, scale=3.0)
    assert list(features.state_dict()) == ["frequencies"]
    assert not features.frequencies.requires_grad
    assert abs(features.frequencies.std() - 3.0) < 0.2
    learned = RandomFourier(8, learned=True).double()
    places = torch.randn(5, 2, dtype=torch.float64)

    def run(frequencies):
        return torch.func.functional_call(
            learned, {"frequencies": frequencies}, (torch.zeros(1, 5, 8).double(), places)
        )

    torch.autograd.gradcheck(run, (learned.frequencies,))


def test_likeness_is_a_gaussian_of_the_distance():
    features = RandomFourier(2**17, scale=0.5)
    places = torch.tensor([[0.0, 0.0], [0.1, 0.3], [5.1, -7.7]])
    e = features.encode(places, torch.float64) / math.sqrt(2**16)
    distance = torch.cdist(places.double(), places.double())
    assert gap(e @ e.T, (-((2 * math.pi * 0.5 * distance) ** 2) / 2).exp()) < 0.02
