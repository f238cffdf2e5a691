"""What calls keep for later ones must never show: neither under other defaults, nor in subclasses, nor among threads."""

from __future__ import annotations

import pytest
import torch

from posenc import StickBreaking, attention
from posenc.backends import step
from tests.samples import gap


@pytest.fixture
def other_defaults():
    """PyTorch's defaults, as they were before."""
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


@pytest.mark.parametrize("default", ["float64", "meta"])
@torch.no_grad()
def test_a_step_under_other_defaults(default, other_defaults):
    """Sums over later keys are a product with a matrix that all later steps share."""
    q, k, v = torch.randn(1, 2, 1, 8), *torch.randn(2, 1, 2, 10, 8)
    encodings = [StickBreaking()]
    expected = attention(q, k, v, encodings, backend="dense")
    step._TRIANGLES.clear()
    if default == "meta":
        torch.set_default_device("meta")
    else:
        torch.set_default_dtype(torch.float64)
    assert gap(attention(q, k, v, encodings), expected) < 1e-5
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    assert gap(attention(q, k, v, encodings), expected) < 1e-5
