"""From a change against 1× and its standard error to one word."""

from __future__ import annotations

from typing import NamedTuple

USES_CONTEXT, FLAT, DEGRADES, FAILS, UNDEFINED = "uses context", "flat", "degrades", "fails", "past its table"


class Change(NamedTuple):
    """Bits per byte more than at 1×, over seeds and windows.

    Both lengths are judged on the same bytes, so the change is paired: its error is far smaller than that of either.
    """

    mean: float
    error: float  # standard error of the mean


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
