"""Second derivatives through attention: the definition's on every backend, or an error; never a silent zero."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from posenc import attention
from posenc.backends import BACKENDS
from posenc.testing import Case
from posenc.testing.backends import SITUATIONS, call_of
from tests.samples import INSIDE_ATTENTION


def second_gradients(name: str, backend: str) -> list[Tensor] | None:
    """Gradients of the squared gradients of a plain sum, whose own gradient needs none; None: there is no graph."""
    leaves, encodings, options = call_of(Case.from_catalogue(name), SITUATIONS[0])
    total = attention(*leaves, encodings, backend=backend, **options).sum()
    first = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
    squares = [gradient.square().sum() for gradient in first if gradient is not None]
    sum_of_squares = torch.stack(squares).sum()
    if not sum_of_squares.requires_grad:
        return None
    return list(torch.autograd.grad(sum_of_squares, leaves, allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize("name", INSIDE_ATTENTION)
def test_they_are_right_or_refused(name: str) -> None:
    try:
        expected = second_gradients(name, "dense")
    except RuntimeError:
        pytest.skip("its definition has none: an error, as it should be")
    assert expected is not None
    assert any(gradient.abs().max() > 1e-6 for gradient in expected)
    for backend in (*BACKENDS, "auto"):
        try:
            actual = second_gradients(name, backend)
        except (ValueError, RuntimeError):  # the backend cannot serve the call, or has no second derivative
            assert backend != "dense", "which autograd goes through"
        else:
            assert actual is not None, backend
            for got, want in zip(actual, expected, strict=True):
                torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)
