"""Confidence intervals and paired tests for measurements of one model on documents, prompts or windows.

Items (documents, prompts) are the only sample: an interval covers other items of the same kind, not other models. Two
readings of the same items are compared by their differences, so that what makes one document harder than another
cancels.

    mean of n values      mean ∓ t(n − 1) · s / √n                           Student
    share k of n          exact binomial limits                              Clopper and Pearson (1934)
    paired shares         hybrid score interval of the difference            Newcombe, method 10 (1998)
    paired shares, test   exact binomial test of the items that disagree     McNemar (1947)
    a table of tests      p-values adjusted together                         Holm (1979)

scipy, of the extra ``hf``, is imported where it is used: `posenc.evaluation` has parts that work without it.

Equivalence within a margin is shown by two one-sided tests at 5 %: the 90 % interval of the difference lies within.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["equivalent", "better", "worse", "inconclusive"]
LEVEL = 0.05  # of each test


@dataclass(frozen=True)
class Interval:
    """A mean or a share with its confidence interval, in the unit of the values; n items."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Comparison(Interval):
    """The mean of a − b over the same items, and the two-sided p-value of no difference."""

    p: float


def mean_interval(values: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """The mean of at least two values with Student's interval.

    Raises:
        ValueError: for fewer than two values, or a value that is not finite.
    """
    from scipy.stats import t

    mean, error = _mean_and_error(values)
    half = float(t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return Interval(mean, mean - half, mean + half, len(values))


def paired_means(a: Sequence[float], b: Sequence[float], *, confidence: float = 0.95) -> Comparison:
    """The mean of ``a − b``; item n of both is the same one.

    Raises:
        ValueError: for different numbers of items, fewer than two, or a value that is not finite.
    """
    from scipy.stats import t

    differences = [x - y for x, y in zip(a, b, strict=True)]
    mean, error = _mean_and_error(differences)
    freedom = len(differences) - 1
    half = float(t.ppf((1 + confidence) / 2, freedom)) * error
    statistic = abs(mean) / error if error else math.inf if mean else 0.0  # equal differences have no scatter
    p = float(2 * t.sf(statistic, freedom))
    return Comparison(mean, mean - half, mean + half, len(differences), p)


def share_interval(successes: int, n: int, *, confidence: float = 0.95) -> Interval:
    """A share with its exact interval."""
    from scipy.stats import binomtest

    limits = binomtest(successes, n).proportion_ci(confidence, method="exact")
    return Interval(successes / n, float(limits.low), float(limits.high), n)


def paired_shares(a: Sequence[bool], b: Sequence[bool], *, confidence: float = 0.95) -> Comparison:
    """The share of successes in ``a`` minus the share in ``b``, paired: item n is the same in both.

    The interval is R. G. Newcombe's method 10 (Improved confidence intervals for the difference between binomial
    proportions based on paired data, Statistics in Medicine 17 (1998) 2635–2650, without continuity correction): it has
    a width also where the readings never disagree. The p-value is McNemar's exact one.

    Raises:
        ValueError: for different numbers of items, or none.
    """
    from scipy.stats import binomtest

    pairs = list(zip(a, b, strict=True))
    n = len(pairs)
    if not n:
        raise ValueError("a and b: at least one item is needed, got none")
    both, only_a, only_b = (pairs.count(pair) for pair in ((True, True), (True, False), (False, True)))
    neither = n - both - only_a - only_b
    share_a, share_b = (both + only_a) / n, (both + only_b) / n
    low_a, high_a = _wilson(both + only_a, n, confidence)
    low_b, high_b = _wilson(both + only_b, n, confidence)
    margins = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    excess = both * neither - only_a * only_b
    corrected = max(excess - n / 2, 0.0) if excess > 0 else float(excess)  # for positive association only
    phi = corrected / math.sqrt(margins) if margins else 0.0
    down, up = share_a - low_a, high_b - share_b
    low = share_a - share_b - math.sqrt(max(0.0, down**2 - 2 * phi * down * up + up**2))
    up, down = high_a - share_a, share_b - low_b
    high = share_a - share_b + math.sqrt(max(0.0, up**2 - 2 * phi * up * down + down**2))
    disagree = only_a + only_b
    p = float(binomtest(only_a, disagree).pvalue) if disagree else 1.0
    return Comparison(share_a - share_b, low, high, n, p)


def holm(p: Sequence[float]) -> list[float]:
    """P-values adjusted together by Holm's step-down method, in the order of ``p``."""
    adjusted, largest = [1.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = largest
    return adjusted


def verdict(wide: Interval, narrow: Interval, margin: float, adjusted_p: float, *, lower_is_better: bool) -> Verdict:
    """The verdict on a difference.

    Args:
        wide, narrow: the 95 and the 90 % interval of the difference.
        margin: differences within ± margin do not matter.
        adjusted_p: of no difference, after `holm`.
        lower_is_better: whether a negative difference is an improvement.

    Returns:
        "equivalent" where the 90 % interval lies within the margin; "better" or "worse" where the difference is
        significant after Holm and the 95 % interval has one sign, which for shares another method computes; else
        "inconclusive".
    """
    if -margin < narrow.low and narrow.high < margin:
        return "equivalent"
    if adjusted_p > LEVEL or wide.low <= 0 <= wide.high:
        return "inconclusive"
    return "better" if (narrow.mean < 0) == lower_is_better else "worse"


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    n = len(values)
    if n < 2 or not all(map(math.isfinite, values)):
        raise ValueError(f"values: at least two finite numbers are needed, got {n}: {', '.join(map(str, values[:5]))}")
    mean = math.fsum(values) / n
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)


def _wilson(successes: int, n: int, confidence: float) -> tuple[float, float]:
    from scipy.stats import norm

    z = float(norm.ppf((1 + confidence) / 2))
    share = successes / n
    centre, spread = share + z**2 / (2 * n), z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return (centre - spread) / (1 + z**2 / n), (centre + spread) / (1 + z**2 / n)
