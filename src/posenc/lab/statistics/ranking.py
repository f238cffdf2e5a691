"""Which encodings are better than which, and the ranks that this leaves open.

Every pair of encodings is tested on its paired differences (`posenc.lab.statistics.intervals`), two-sided, and the
p-values of all m = N(N − 1)/2 pairs are adjusted together by Holm: sorted, p₁ ≤ p₂ ≤ …,

    adjusted p_k = max over j ≤ k of min(1, (m − j + 1) · p_j)

so that the chance to call any two encodings different that are not is no more than the level, over the whole table.
An encoding's rank lies between 1 + the number of those that beat it and N − the number of those that it beats. There
is no best of several seeds and no cherry-picked pair: all seeds and all pairs count.

So many tests ask for errors that are far out in the tails of t, and there a pair's own two or three seeds know nothing:
among 45 pairs, t(2) calls 30 standard errors an accident. All encodings together know more. The usual analysis of
variance, encoding × seed, has a mean square of the interaction, and twice that is the average over all pairs of MS_S,
the mean square of seeds of a paired difference:

    P = average of MS_S over pairs = 2 · W · Σ_i q_i / ((N − 1)(S − 1))      q_i = Σ_s (ȳ[i,s] − ȳ[i] − ȳ[s] + ȳ)²
    ν_P = (S − 1) · (N − 1)/N · (Σ_i q_i)² / Σ_i q_i²                          Satterthwaite's, for unequal q_i

A pair is judged with MS_S = max(its own, P), ν_P degrees of freedom. In simulated tables without any difference (2, 3
or 5 seeds; 3, 8 or 20 encodings; equal scatter, or one encoding with 5 or 30 times the others', or half with 7 times)
a difference was found in 0 to 8 % where 5 % are allowed. With Satterthwaite's formula for each pair alone it was up to
92 % (two seeds, 16 encodings).

What follows from P: it is dominated by the encodings that scatter most, so one that diverges from some seeds hides
differences between steady ones, and a ranking of the steady ones alone shows more. With one seed there is no scatter of
seeds: only windows are sampled, differences show more easily, and the ranking holds for these models alone.

Sources: S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6 (1979)
65–70. Ranges of ranks from pairwise tests: M. Mogstad, J. P. Romano, A. M. Shaikh, D. Wilhelm, Inference for ranks with
applications to mobility across neighbourhoods and academic achievement across countries, Review of Economic Studies 91
(2024) 476–518. ν: Satterthwaite (1946), see `posenc.lab.statistics.intervals`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from posenc.lab.statistics.intervals import Interval, MeanSquare, mean_interval, p_value, table_of

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ranked:
    """An encoding and the ranks that it may have among N.

    Attributes:
        name: of the encoding.
        interval: of its own mean, 95 %. It holds the scatter of windows that all encodings share, so intervals of two
            encodings that differ may well overlap.
        best: the best rank that it may have, 1 + the number of those that are significantly better.
        worst: the worst, N − the number of those that are significantly worse.
        beaten_by: those that are significantly better, the best mean first.
        beats: those that are significantly worse, the best mean first.
    """

    name: str
    interval: Interval
    best: int
    worst: int
    beaten_by: tuple[str, ...]
    beats: tuple[str, ...]


class PValues(NamedTuple):
    """The tests of all pairs, for a heat map."""

    names: tuple[str, ...]  # of rows and columns, the best mean first, as in `ranking`
    matrix: Array  # (N, N), symmetric: p-values after Holm's adjustment; 1 on the diagonal


def ranking(
    values: Mapping[str, npt.ArrayLike], *, level: float = 0.05, smaller_is_better: bool = True
) -> list[Ranked]:
    """Encodings by their means, the best first, with the ranks that the tests of all pairs leave open.

    Args:
        values: a table (seeds, windows) of each encoding. Row s is the same seed in all, column w the same window.
        level: the chance, at most, that any pair is called different that is not.
        smaller_is_better: True for bits per byte, False for shares of right answers.

    Raises:
        ValueError: nothing to rank, shapes that differ, values that are not finite, one seed with one window, or a
            level outside (0, 1).
    """
    if not 0 < level < 1:
        raise ValueError(f"level: a number between 0 and 1 is needed, not {level:g}")
    names, p = p_values(values, smaller_is_better=smaller_is_better)
    different = p <= level
    ranked = []
    for place, name in enumerate(names):
        others = np.flatnonzero(different[place])
        better = tuple(names[other] for other in others if other < place)
        worse = tuple(names[other] for other in others if other > place)
        interval = mean_interval(values[name])
        ranked.append(Ranked(name, interval, 1 + len(better), len(names) - len(worse), better, worse))
    return ranked


def p_values(values: Mapping[str, npt.ArrayLike], *, smaller_is_better: bool = True) -> PValues:
    """The adjusted p-values of all pairs; arguments and errors as of `ranking`."""
    tables = _tables(values)
    sign = 1 if smaller_is_better else -1
    names = tuple(sorted(tables, key=lambda name: sign * float(tables[name].mean())))  # equal ones as they came
    cube = np.stack([tables[name] for name in names])
    pairs, common = list(combinations(range(len(names)), 2)), scatter_of_seeds(cube)
    matrix = np.ones((len(names), len(names)))
    adjusted = holm([p_value(cube[i] - cube[j], at_least=common) for i, j in pairs])
    for (i, j), p in zip(pairs, adjusted, strict=True):
        matrix[i, j] = matrix[j, i] = p
    return PValues(names, matrix)


def leaders(ranked: Sequence[Ranked]) -> list[str]:
    """Who may be the best: nobody beats them significantly. The best mean comes first."""
    return [one.name for one in ranked if one.best == 1]


def holm(p: Sequence[float]) -> Array:
    """Adjusted p-values, in the order of ``p``."""
    found = np.asarray(p, dtype=np.float64)
    order = np.argsort(found, kind="stable")
    factors = len(found) - np.arange(len(found))
    adjusted = np.empty_like(found)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * found[order]))
    return adjusted


def _tables(values: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
    if not values:
        raise ValueError("values: at least one encoding is needed")
    tables = {name: table_of(table, name) for name, table in values.items()}
    first, *others = tables
    for name in others:
        if tables[name].shape != tables[first].shape:
            raise ValueError(
                f"values: the same seeds and windows are needed of all encodings, but {first} has shape "
                f"{tables[first].shape} and {name} {tables[name].shape}; keep what all have"
            )
    return tables


def scatter_of_seeds(cube: Array) -> MeanSquare | None:
    """P and ν_P of encodings × seeds × windows; None where nothing can be told."""
    n, s, w = cube.shape
    if n < 2 or s < 2:
        return None
    means = cube.mean(axis=2)
    means = means - means.mean(axis=0)
    q = ((means - means.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    if not q.any():
        return MeanSquare(0.0, (n - 1) * (s - 1))
    share = q / q.sum()
    return MeanSquare(float(2 * w * q.sum() / ((n - 1) * (s - 1))), float((s - 1) * (n - 1) / n / (share**2).sum()))
