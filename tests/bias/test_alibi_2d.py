"""2D ALiBi: finite gradients where tokens meet."""

from __future__ import annotations

import torch

from posenc.bias import ALiBi2D
from posenc.positions import grid


def test_gradients_of_positions_are_finite_where_tokens_meet():
    places = grid(3, 3).double().requires_grad_()
    (gradient,) = torch.autograd.grad(ALiBi2D(2)(places, places).sum(), places)
    assert gradient.isfinite().all()
