"""Comparisons whose failure reads as a sentence: what was compared, then torch's own account of the difference."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def expect(condition: bool, text: str) -> None:
    """Raise an AssertionError with ``text`` unless the condition holds."""
    if not condition:
        raise AssertionError(text)


def expect_close(what: str, got: Tensor, expected: Tensor, *, tolerance: float | None = None) -> None:
    """``got`` equals ``expected`` up to the rounding of got's dtype; shapes must be equal, NaN equals nothing."""
    tolerance = TOLERANCE[got.dtype] if tolerance is None else tolerance
    torch.testing.assert_close(
        got.detach().to(expected.dtype),
        expected.detach(),
        rtol=tolerance,
        atol=tolerance,
        msg=lambda text: f"{what}: {text}",
    )


def expect_same(what: str, got: Tensor, expected: Tensor) -> None:
    """``got`` equals ``expected`` bit by bit."""
    torch.testing.assert_close(got.detach(), expected.detach(), rtol=0, atol=0, msg=lambda text: f"{what}: {text}")


def expect_different(what: str, first: Tensor, other: Tensor) -> None:
    """Two results differ by more than rounding somewhere."""
    gap = float((first.detach().double() - other.detach().double()).abs().max())
    expect(gap > 1e-6, f"{what}: expected different results, got a largest difference of {gap:.1e}")


def expect_value_error(what: str, call: Callable[[], object], *names: str) -> None:
    """``call`` raises a ValueError whose text has one of the names as a word."""
    try:
        call()
    except ValueError as error:
        if not any(re.search(rf"\b{re.escape(name)}\b", str(error)) for name in names):
            raise AssertionError(
                f"{what}: the ValueError must name {' or '.join(names)}, got {str(error)!r}"
            ) from error
    except Exception as error:
        raise AssertionError(f"{what}: expected a ValueError, got {type(error).__name__}: {error}") from error
    else:
        raise AssertionError(f"{what}: expected a ValueError that names {' or '.join(names)}, but nothing was raised")
