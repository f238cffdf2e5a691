"""Writing a bias of one's own: a function of the distance is all it takes."""

from __future__ import annotations

import pytest
import torch

from posenc import attention, explain_backend
from posenc.bias import DistanceBias
from tests.samples import BACKENDS, gap, qkv


class Gaussian(DistanceBias):
    """−(distance / width)², a width for each head."""

    def __init__(self, widths):
        super().__init__()
        self.num_heads, self.widths = len(widths), torch.nn.Parameter(torch.tensor(widths))

    def of_distance(self, distance):
        return -((distance / self.widths.view(-1, *[1] * distance.ndim)) ** 2)


def test_every_backend_supports_it():
    bias, (q, k, v) = Gaussian([1.0, 2.0, 3.0, 4.0]), qkv()
    assert "by distance" in explain_backend(q, k, v, [bias], backend="tiled").how
    outs, gradients = [], []
    for backend in BACKENDS:
        out = attention(q, k, v, [bias], backend=backend)
        outs.append(out)
        gradients.append(torch.autograd.grad(out.square().sum(), bias.widths)[0])
    assert gap(*outs) < 1e-5
    assert gap(*gradients) < 1e-5


def test_nothing_written_is_an_error():
    with pytest.raises(NotImplementedError):
        DistanceBias()(torch.arange(2), torch.arange(2))
