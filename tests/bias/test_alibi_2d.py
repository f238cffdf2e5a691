"""2D ALiBi: the authors' biases, the same in every direction, and ALiBi along a line."""

from __future__ import annotations

import math

import pytest
import torch

from posenc.bias import ALiBi2D
from posenc.positions import grid
from tests.golden import config, load, names
from tests.samples import gap, refusals

FILES = names("vision/alibi2d__*")


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64])
@pytest.mark.parametrize("name", FILES)
def test_bias_of_the_authors_code(name, dtype):
    made_with = config(name)
    side = math.isqrt(made_with["patches"])
    image = grid(side, side).to(dtype)
    assert gap(ALiBi2D(made_with["heads"])(image, image), load(name)["bias"]) < 1e-6, "the file holds float32"


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
