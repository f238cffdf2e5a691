"""The one test of golden numbers: each row of a table makes what a file holds, and says how close it must come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
import torch
from torch import Tensor

from posenc import Encoding, attention
from tests.golden import names
from tests.samples import gap, weights

Comparisons = Iterator[tuple[Tensor, Tensor, float]]
EXACT = 5e-324  # the only smaller difference is none
Row = Callable[[str], Comparisons]


def golden_test(table: Mapping[str, Row | tuple[Row, ...]]) -> Callable[..., None]:
    """A test over every file that a pattern of ``table`` matches.

    Args:
        table: by pattern, one or several functions of a file's name that yield what was computed, what the file holds,
            and the difference that is too large.
    """
    rows = [(pattern, row) for pattern, of in table.items() for row in (of if isinstance(of, tuple) else (of,))]
    cases = [pytest.param(row, name, id=f"{row.__name__}-{name}") for pattern, row in rows for name in names(pattern)]

    @pytest.mark.parametrize(("row", "name"), cases)
    def test(row: Row, name: str) -> None:
        number = 0
        for number, (got, expected, tolerance) in enumerate(row(name), start=1):
            assert gap(got, expected) < tolerance, f"comparison {number} of {name}"
        assert number, "a row that compares nothing is no test"

    return test


def relative(got: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Both as shares of what is expected, so that a tolerance is a relative one; where 0 is expected, 0 must come."""
    got = got.detach().double()
    share = torch.where(expected == 0, torch.where(got == 0, 1.0, torch.inf), got / expected)
    return share, torch.ones_like(share)


def results(
    arrays: Mapping[str, Tensor],
    encodings: list[Encoding],
    tolerance: float,
    *,
    gradients: Mapping[str, Tensor] | None = None,
    slack: float = 10.0,
    **options: object,
) -> Comparisons:
    """What attention gives under ``encodings``, its weights where the file has some, and gradients.

    Args:
        arrays: the file, loaded in the dtype of the call; its scale is that of the call.
        encodings: under which.
        tolerance: of results and weights; gradients may be ``slack`` times as far off.
        gradients: parameters and token states by the file's name, to compare in addition to q, k and v; None: none.
        options: of `attention`.
    """
    leaves = {name: arrays[name].detach().clone().requires_grad_(gradients is not None) for name in "qkv"}
    options = {"scale": float(arrays["scale"]) if "scale" in arrays else None, **options}
    out = attention(*leaves.values(), encodings, **options)
    yield out, arrays["out"], tolerance
    if "attn" in arrays:
        yield weights(arrays["q"], arrays["k"], encodings, **options), arrays["attn"], tolerance
    if gradients is not None:
        leaves |= gradients
        of_leaves = torch.autograd.grad(out, list(leaves.values()), arrays["grad_out"])
        for name, gradient in zip(leaves, of_leaves, strict=True):
            yield gradient, arrays[f"grad_{name}"], slack * tolerance
