"""The one test of golden numbers: each row of a table makes what a file holds, and says how close it must come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
import torch
from torch import Tensor

from tests.golden import names
from tests.samples import gap

Comparisons = Iterator[tuple[Tensor, Tensor, float]]
Table = Mapping[str, Callable[[str], Comparisons]]


def golden_test(table: Table) -> Callable[..., None]:
    """A test over every file that a pattern of ``table`` matches.

    Args:
        table: by pattern, a function of a file's name that yields what was computed, what the file holds, and the
            difference that is too large.
    """
    cases = [pytest.param(row, name, id=name) for pattern, row in table.items() for name in names(pattern)]

    @pytest.mark.parametrize(("row", "name"), cases)
    def test(row: Callable[[str], Comparisons], name: str) -> None:
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
