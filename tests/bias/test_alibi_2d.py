"""2D ALiBi: the same in every direction, finite gradients where tokens meet, and its slopes."""

from __future__ import annotations

import math

import torch

from posenc.bias import ALiBi2D
from posenc.positions import grid
from tests.samples import gap, refusals


def test_the_same_in_every_direction():
    alibi, places = ALiBi2D(4), torch.rand(30, 2).double() * 50
    expected = alibi(places, places)
    turn = torch.tensor([[math.cos(1.0), -math.sin(1.0)], [math.sin(1.0), math.cos(1.0)]], dtype=torch.float64)
    for moved in (places.flip(-1), -places, places @ turn, places + 7):
        assert gap(alibi(moved, moved), expected) < 1e-10
    assert gap(expected, expected.mT) == 0, "symmetric"
    image = grid(9, 9)
    assert gap(alibi(image, image), alibi(image.flip(-1), image.flip(-1))) == 0


def test_gradients_of_positions_are_finite_where_tokens_meet():
    places = grid(3, 3).double().requires_grad_()
    (gradient,) = torch.autograd.grad(ALiBi2D(2)(places, places).sum(), places)
    assert gradient.isfinite().all()


def test_slopes():
    assert ALiBi2D(4, slopes="geometric", max_exponent=4.0).slopes == (0.5, 0.25, 0.125, 0.0625)
    assert not list(ALiBi2D(2).parameters())


test_refusals = refusals(
    {
        "slopes": [lambda: ALiBi2D(2, slopes=[1.0])],
    }
)
