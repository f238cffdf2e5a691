"""What may be claimed from a table: planned contrasts, changes that are none, seeds of two kinds; see the package."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import mannwhitneyu
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from posenc.lab.stats.intervals import Array, Contrast, Interval, paired

LEVEL = 0.05
Answer = Literal["equivalent", "different", "undecided"]


@dataclass(frozen=True)
class Share:
    """A share of seeds, with the exact interval of Clopper and Pearson (95 %), which needs no assumption."""

    mean: float
    low: float
    high: float
    count: int
    seeds: int


def share(count: int, seeds: int) -> Share:
    """The share ``count / seeds``; with 5 of 5 seeds the true one may still be 0.48."""
    if not 0 <= count <= seeds or seeds < 1:
        raise ValueError(f"count: 0 to the number of seeds is needed, not {count} of {seeds}")
    low, high = proportion_confint(count, seeds, alpha=LEVEL, method="beta")
    return Share(count / seeds, float(low), float(high), count, seeds)


def equivalent(
    a: npt.ArrayLike, b: npt.ArrayLike, margin: float, documents: npt.ArrayLike | None = None, *, level: float = LEVEL
) -> Answer:
    """Whether the mean of ``a − b`` is within ``margin`` of 0: two one-sided tests, each at ``level``.

    Returns:
        "equivalent" where the interval of confidence 1 − 2·level lies within ± margin, "different" where it lies beyond
        on one side, "undecided" otherwise. Either claim is wrong in ``level`` of cases at most.
    """
    return within(paired(a, b, documents, confidence=1 - 2 * level), margin)


def within(interval: Interval, margin: float) -> Answer:
    """The same from an interval of confidence 1 − 2·level."""
    if not margin > 0:
        raise ValueError(f"margin: a number above 0 is needed, not {margin:g}")
    if -margin < interval.low and interval.high < margin:
        return "equivalent"
    return "different" if interval.low > margin or interval.high < -margin else "undecided"


def holm(p: Sequence[float]) -> list[float]:
    """P-values adjusted together by Holm, in the order of ``p``: the chance of any false claim stays at the level.

    Source: S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6
    (1979) 65–70.
    """
    return [float(value) for value in multipletests(p, method="holm")[1]] if len(p) else []


def contrasts(
    pairs: Sequence[tuple[Array, Array]], seeds: Mapping[str, npt.ArrayLike], *, given: bool = False
) -> list[Contrast]:
    """A family of planned contrasts, adjusted together.

    Args:
        pairs: a and b of each, (seeds, documents), both with the same ones.
        seeds: the mean of each seed of every row of the table by the row's name, for cautions; empty where a and b are
            the same weights, so that luck in training cannot set them apart.
        given: whether models are given, so that one seed is all there is.
    """
    found, gaps = [paired(a, b) for a, b in pairs], {name: _gap(values) for name, values in seeds.items()}
    adjusted = holm([one.p for one in found])
    return [
        replace(one, adjusted=p, caution=_caution(a, b, gaps, len(pairs)) if p <= LEVEL and not given else "")
        for one, p, (a, b) in zip(found, adjusted, pairs, strict=True)
    ]


def _gap(values: npt.ArrayLike) -> tuple[float, float]:
    """Between which values a row's seeds fall into two kinds: the widest gap, if it is half of their range or more."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    steps = np.diff(ordered)
    if not steps.size or 2 * steps.max() < steps.sum():
        return math.nan, math.nan
    widest = int(steps.argmax())
    return float(ordered[widest]), float(ordered[widest + 1])


def _caution(a: Array, b: Array, gaps: Mapping[str, tuple[float, float]], planned: int) -> str:
    """Why a difference must not be claimed, in words; empty where it may."""
    if len(a) == 1:
        return "One seed: it says nothing of another training."
    low, high = sorted((float(a.mean()), float(b.mean())))
    for name, (below, above) in gaps.items():
        # of one size and in one place: the gap and the difference cover half of each other; False for NaN
        if min(above, high) - max(below, low) >= max(high - low, above - below) / 2:
            ranks = float(mannwhitneyu(a.mean(axis=1), b.mean(axis=1), method="exact").pvalue)
            if ranks * planned <= LEVEL:
                return ""
            return (
                f"Some seeds of {name} reach {below:.3g}, others {above:.3g}: with {len(a)} seeds, a difference like "
                "this may be one of seeds."
            )
    return ""
