"""From bits per window to a change against 1×, its standard error, and one word.

Both lengths are judged on the same bytes, so the change is paired: its error is far smaller than that of either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

USES_CONTEXT, FLAT, DEGRADES, FAILS, UNDEFINED = "uses context", "flat", "degrades", "fails", "past its table"


class Change(NamedTuple):
    """Bits per byte more than at 1×, over windows."""

    mean: float
    error: float  # standard error of the mean


def paired_change(first: Sequence[float], last: Sequence[float]) -> Change:
    """The mean of ``last − first`` and its standard error, over at least two windows."""
    differences = [b - a for a, b in zip(first, last, strict=True)]
    n = len(differences)
    mean = math.fsum(differences) / n
    variance = math.fsum((d - mean) ** 2 for d in differences) / (n - 1)
    return Change(mean, math.sqrt(variance / n))


def verdict(change: Change | None) -> str:
    """One word for a change at the longest length. The first line that holds decides, so every case has one verdict.

    fails         more than 0.3 bit worse, however noisy
    uses context  more than 0.01 bit better, and beyond two standard errors
    degrades      at least 0.02 bit worse, and at least two standard errors
    flat          everything else: nothing that these windows could tell from no change
    """
    if change is None:
        return UNDEFINED
    if change.mean > 0.3:
        return FAILS
    if change.mean < -0.01 and change.mean < -2 * change.error:
        return USES_CONTEXT
    if change.mean >= 0.02 and change.mean >= 2 * change.error:
        return DEGRADES
    return FLAT
