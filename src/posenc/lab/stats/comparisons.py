"""What may be concluded from a table: planned contrasts, equivalence tests, shares of seeds.

The package's docstring states the procedure as a whole and how often it errs.
"""

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

from posenc.lab.stats.intervals import LEVEL, Array, Caution, Contrast, Interval, paired

Answer = Literal["equivalent", "different", "inconclusive"]


@dataclass(frozen=True)
class Share:
    """A share of seeds with the exact 95 % interval of Clopper and Pearson, which makes no assumption."""

    mean: float
    low: float
    high: float
    count: int
    seeds: int


def share(count: int, seeds: int) -> Share:
    """The share ``count / seeds`` with its interval; with 5 of 5 seeds the true share may still be 0.48."""
    if not 0 <= count <= seeds or seeds < 1:
        raise ValueError(f"count: 0 to the number of seeds is needed, not {count} of {seeds}")
    low, high = proportion_confint(count, seeds, alpha=LEVEL, method="beta")
    return Share(count / seeds, float(low), float(high), count, seeds)


def within(interval: Interval, margin: float) -> Answer:
    """Whether an interval lies within ± margin ("equivalent"), beyond it on one side ("different"), or neither.

    Either claim is wrong in at most ``level`` of cases, where the confidence is 1 − 2·level.
    """
    if not margin > 0:
        raise ValueError(f"margin: a number above 0 is needed, not {margin:g}")
    if -margin < interval.low and interval.high < margin:
        return "equivalent"
    return "different" if interval.low > margin or interval.high < -margin else "inconclusive"


def p_above(differences: npt.ArrayLike, bound: float) -> float:
    """The one-sided p-value of "the mean of ``differences`` (seeds, documents) is at most ``bound``"."""
    shifted = np.asarray(differences, dtype=np.float64) - bound
    two_sided = paired(shifted, np.zeros_like(shifted))
    return two_sided.p / 2 if two_sided.mean > 0 else 1 - two_sided.p / 2


def holm(p: Sequence[float]) -> list[float]:
    """P-values adjusted together by Holm, in the order of ``p``: the chance of any false claim stays at the level.

    Source: S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6
    (1979) 65–70.
    """
    return [float(value) for value in multipletests(p, method="holm")[1]] if len(p) else []


def contrasts(
    pairs: Sequence[tuple[Array, Array]],
    seed_means: Mapping[str, npt.ArrayLike],
    *,
    untrained: bool = False,
    other_p: Sequence[float] = (),
) -> list[Contrast]:
    """A family of planned contrasts with p-values adjusted together.

    Args:
        pairs: a and b of each contrast, (seeds, documents), with the same seeds and documents in both.
        seed_means: the mean of each seed, for every row of the table by name; cautions are computed from them. Empty
            where a and b are the same weights, which differ by no luck of training.
        untrained: whether a released model is compared with itself, so that one seed is all there is.
        other_p: p-values of other tests of the same table, which are adjusted together with these.
    """
    differences = [paired(a, b) for a, b in pairs]
    gaps = {name: _widest_gap(values) for name, values in seed_means.items()}
    adjusted = holm([*(contrast.p for contrast in differences), *other_p])[: len(differences)]
    tests = len(differences) + len(other_p)
    return [
        replace(contrast, adjusted=p, caution=_caution(a, b, gaps, tests) if p <= LEVEL and not untrained else None)
        for contrast, p, (a, b) in zip(differences, adjusted, pairs, strict=True)
    ]


def _widest_gap(seed_means: npt.ArrayLike) -> tuple[float, float]:
    """The two values around the widest gap between seeds, if it covers half of their range or more; else NaN."""
    ordered = np.sort(np.asarray(seed_means, dtype=np.float64))
    steps = np.diff(ordered)
    if not steps.size or 2 * steps.max() < steps.sum():
        return math.nan, math.nan
    widest = int(steps.argmax())
    return float(ordered[widest]), float(ordered[widest + 1])


def _caution(a: Array, b: Array, gaps: Mapping[str, tuple[float, float]], planned: int) -> Caution | None:
    """Why a difference with a small p-value must not be claimed; None where it may."""
    if len(a) == 1:
        return Caution("one seed")
    low, high = sorted((float(a.mean()), float(b.mean())))
    for name, (below, above) in gaps.items():
        # The gap and the difference are alike in size and place if they cover half of each other; False for NaN.
        if min(above, high) - max(below, low) >= max(high - low, above - below) / 2:
            ranks = float(mannwhitneyu(a.mean(axis=1), b.mean(axis=1), method="exact").pvalue)
            return None if ranks * planned <= LEVEL else Caution("bimodal seeds", name, below, above, len(a))
    return None
