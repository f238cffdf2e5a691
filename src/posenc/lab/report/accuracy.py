"""The share of right answers over seeds: its words, and when two of them may be ranked."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Accuracy(NamedTuple):
    """The share of answers that are right, over seeds."""

    mean: float
    low: float
    high: float


def accuracy_of(found: Sequence[float] | None) -> Accuracy | None:
    """From the shares of each seed; None where the encoding is undefined."""
    if found is None:
        return None
    low, high = min(found), max(found)
    return Accuracy(min(max(low, statistics.fmean(found)), high), low, high)  # rounding may not lead outside


def apart(better: Accuracy, worse: Accuracy, asked: int) -> bool:
    """Whether every seed of one did better than every seed of the other, and by more than chance in what was asked."""
    error = math.sqrt(sum(a.mean * (1 - a.mean) for a in (better, worse)) / asked)
    return better.low > worse.high and better.mean - worse.mean > 3 * error


def percent(share: float) -> str:
    """``97``."""
    return f"{100 * share:.0f}"


def spread(found: Accuracy | None) -> str:
    """The lowest and highest, ``93–97``; a dash where there is nothing."""
    if found is None:
        return "–"
    low, high = percent(found.low), percent(found.high)
    return low if low == high else f"{low}–{high}"


def with_spread(found: Accuracy | None) -> str:
    """``96 (93–97)``."""
    if found is None:
        return "–"
    return percent(found.mean) if found.low == found.high else f"{percent(found.mean)} ({spread(found)})"
