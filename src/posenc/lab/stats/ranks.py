"""Whether two tables order encodings alike: rank correlation with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri
from scipy.stats import kendalltau, spearmanr


@dataclass(frozen=True)
class Correlation:
    """A rank correlation over encodings and where the true one lies."""

    value: float
    low: float
    high: float
    encodings: int


def rank_correlation(
    x: npt.ArrayLike, y: npt.ArrayLike, *, kind: Literal["kendall", "spearman"] = "kendall", confidence: float = 0.95
) -> Correlation:
    """How far ``x`` and ``y`` order the same encodings alike, for example at two sizes of the model.

    Kendall's τ says it in pairs: a share (1 + τ)/2 of all pairs of encodings, ties aside, stand in the same order. The
    interval is Fisher's, tanh(artanh r ∓ z·σ), with the variances of D. G. Bonett and T. A. Wright, Sample size
    requirements for estimating Pearson, Kendall and Spearman correlations, Psychometrika 65 (2000) 23–28:

        σ² = 0.437/(n − 4) for Kendall          σ² = (1 + r²/2)/(n − 3) for Spearman

    A perfect order has no finite artanh, so r counts there as three swaps of neighbours short of perfect at most. With
    8 and 12 encodings of normal values the interval held in 93 to 99 % of cases for Kendall, and in 87 to 98 % for
    Spearman, least where the true correlation is 0.99. Encodings are taken for a sample of many, and their numbers as
    they are: what is uncertain in x and y brings r nearer to 0 and does not widen the interval.

    Args:
        x, y: a number for each encoding, finite, at least five of them, not all equal.
        kind: which correlation.
        confidence: of the interval.
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    n = first.size
    if first.ndim != 1 or first.shape != second.shape or n < 5:
        raise ValueError(
            f"x and y: a number for each of at least five encodings is needed, not {first.shape} and {second.shape}"
        )
    for name, values in (("x", first), ("y", second)):
        if not np.isfinite(values).all() or np.ptp(values) == 0:
            raise ValueError(f"{name}: finite numbers that are not all equal are needed")
    if kind == "kendall":
        r, step = float(kendalltau(first, second).statistic), 12 / (n * (n - 1))
        deviation = math.sqrt(0.437 / (n - 4))
    else:
        r, step = float(spearmanr(first, second).statistic), 36 / (n * (n**2 - 1))
        deviation = math.sqrt((1 + r**2 / 2) / (n - 3))
    centre, half = math.atanh(min(max(r, step - 1), 1 - step)), float(ndtri(0.5 + confidence / 2)) * deviation
    return Correlation(r, min(r, math.tanh(centre - half)), max(r, math.tanh(centre + half)), n)
