"""Confidence intervals, contrasts and equivalence tests: the procedure of every table, and how often it errs.

**Sample.** The values of a row are (seeds, documents), items of one document averaged: documents and seeds are what is
sampled, crossed, and both are random. A generated sequence is its own document. No variance is pooled
over encodings, so an encoding that fails to learn does not hide differences between others.

**Contrasts.** They are planned before any number is seen: every row against two baselines, RoPE under a sliding window
of the training length and ALiBi, and against its own window, at the longest length, on the seeds and documents that
both have. Each has its own 95 % interval and degrees of freedom (`contrasts`). A difference is claimed where the
adjusted p-value is at most 0.05 and there is no caution (`Contrast.significant`).

**Equivalence.** A difference is equivalent to none where its whole interval lies within ± the margin of the unit, and
different where it lies beyond the margin on one side (`within`); an interval of confidence 1 − 2·level is wrong in at
most ``level`` of cases, since one side decides.

**Multiplicity.** The p-values of all contrasts of a table are adjusted together by Holm (`holm`); so are its verdicts,
each with the interval that decides (`posenc.lab.report.verdicts`).

**Bimodal seeds.** Some encodings learn a task from some seeds only; then a mean lies near 0 or near 1 by luck. If the
seeds of some row of the table fall into two groups, and a contrast is about as large as the gap between the groups and
at the same values, it carries a caution, unless ranks of seeds alone (Mann and Whitney, exact, times the number of
contrasts) separate both sides; for 20 to 80 contrasts that takes seven seeds. Few seeds tell little of the share that
learns: after 3 of 3 it may be 0.29, after 5 of 5 0.48, after 10 of 10 0.69 (the exact limits of Clopper and Pearson).

**How often it errs**, by simulation (tests/lab/test_stats.py):

    the 95 % interval of a mean covers it            3 seeds       5 seeds       10 seeds
      normal seeds, 24 to 200 documents              94 to 99 %    94 to 98 %    94 to 97 %
      bimodal seeds, 50 % learn                      76 %          94 %          94 %
      bimodal seeds, 80 or 20 % learn                48 %          67 %          88 %
      bimodal seeds, 90 % learn                      27 %          41 %          65 %
    a table of 12 equal encodings has a false claim
      normal seeds                                   0 to 1 %      0 to 2 %      0 to 4 %
      bimodal seeds, 20 to 90 % learn                0 %           0 %           0 to 2 %
      the same by adjusted p-values alone            0 to 31 %     0 to 2 %      0 to 4 %
    a change as large as the margin
      is called equivalent, normal seeds             4 to 5 %      4 to 5 %      5 %

So where seeds may be bimodal, read the interval of a mean together with the share of seeds that learned: it describes
training runs like the observed ones. No method can do more: if a seed fails with probability q, S seeds show no failure
in (1 − q)^S of cases. With 5 seeds and q = 5 % that is 77 %, and in as many cases "equivalent" is said of a mean that
such failures would move to the margin. Equal means with unlike distributions (80 % of seeds at 1 against all seeds at
0.8) are called different as often as no failing seed is drawn: in 51, 33 and 11 % of cases with 3, 5 and 10 seeds.

**Intervals.** One encoding at one test length is measured as a table y[s, d]: the model trained from seed s on document
d, averaged over the one or two windows of that document. Seeds and documents are both samples, and every seed is tested
on every document, so their effects are crossed:

    y[s, d] = μ + a[s] + b[d] + e[s, d]                     S seeds, D documents, all effects random

and S·D values are far from S·D independent ones. With the mean squares of the two-way analysis of variance,

    MS_S = D · Σ_s (ȳ[s] − ȳ)² / (S − 1)                     MS_D = S · Σ_d (ȳ[d] − ȳ)² / (D − 1)
    MS_E = Σ (y[s, d] − ȳ[s] − ȳ[d] + ȳ)² / ((S − 1)(D − 1))

the variance of the mean is estimated by moments, and its degrees of freedom are Satterthwaite's, and at least as many
as the factor with fewer levels has:

    V = MS_S + MS_D − MS_E                                  error = √(V / (S·D))
    ν = V² / (MS_S²/(S − 1) + MS_D²/(D − 1) + MS_E²/((S − 1)(D − 1)))
    low, high = ȳ ∓ t(ν) · error

Two or three seeds may lie close together by chance. Then V is small and ν, which now counts documents, is large, and
this interval is too narrow. So the interval is the widest of three: the one above, the interval over seeds alone
(√(MS_S/(S·D)), S − 1 degrees) and the interval over documents alone (√(MS_D/(S·D)), D − 1 degrees). The first is left
out where V is not above both MS_S and MS_D. With one seed, or one document, only the other factor's interval exists,
and it is the ordinary t interval. Its coverage is in the table above.

Sources: F. E. Satterthwaite, An approximate distribution of estimates of variance components, Biometrics Bulletin 2
(1946) 110–114, for ν. S. R. Searle, G. Casella, C. E. McCulloch, Variance Components (1992), chapter 4, for V.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit
from scipy.stats import mannwhitneyu

from posenc.evaluation.statistics import holm

Array = np.ndarray[Any, np.dtype[np.float64]]  # (seeds, documents)
LEVEL = 0.05  # of every test: the chance of a false claim


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval, in the unit of the values.

    With ``seeds == 1`` only documents are sampled: the interval covers this model, not another training run. Where all
    values agree the interval is a point: no scatter was observed, which does not prove that there is none.
    """

    mean: float
    low: float
    high: float
    error: float  # standard error; low and high are t(freedom) of it away from the mean
    freedom: float  # degrees of freedom of the error
    seeds: int
    documents: int


@dataclass(frozen=True)
class Caution:
    """Why a difference must not be claimed however small its p-value is.

    "one seed": documents alone were sampled. "bimodal seeds": the seeds of ``row`` fall into two groups, which end at
    ``below`` and begin at ``above``, and the difference may be one between groups.
    """

    kind: Literal["one seed", "bimodal seeds"]
    row: str = ""
    below: float = math.nan
    above: float = math.nan
    seeds: int = 1  # of the contrast


@dataclass(frozen=True)
class Contrast(Interval):
    """The mean of a − b with its confidence interval and test."""

    p: float  # two-sided, of "the true mean is 0": the largest p of the t tests that belong to the three intervals
    adjusted: float | None = None  # p adjusted by Holm over all planned contrasts of a table
    caution: Caution | None = None

    @property
    def significant(self) -> bool:
        """Whether a difference may be claimed: at 5 % over the whole table and without a caution."""
        return self.adjusted is not None and self.adjusted <= LEVEL and self.caution is None


def mean_interval(values: npt.ArrayLike, *, confidence: float = 0.95) -> Interval:
    """The mean over seeds and documents with its confidence interval.

    Args:
        values: (seeds, documents), finite.
        confidence: of the interval.

    Raises:
        ValueError: one seed with one document.
    """
    fields = _interval(np.asarray(values, dtype=np.float64), confidence)
    del fields["p"]
    return Interval(**fields)


def paired(a: npt.ArrayLike, b: npt.ArrayLike, *, confidence: float = 0.95) -> Contrast:
    """The mean of ``a − b`` with its interval and the test of no difference; negative where ``a`` is smaller.

    Row s of both tables is the same seed, with the same order of data and the same initial weights of shared parts;
    column d is the same document. Effects that both share cancel. p is below 0.05 exactly where the 95 % interval
    excludes 0.

    Raises:
        ValueError: as `mean_interval`, or shapes that differ.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:  # NumPy would stretch one seed to several
        raise ValueError(f"a and b: the same seeds and documents are needed, not {first.shape} and {second.shape}")
    return Contrast(**_interval(first - second, confidence))


class MeanSquare(NamedTuple):
    """A mean square and its degrees of freedom."""

    value: float
    freedom: float


def squares(table: Array) -> tuple[MeanSquare | None, MeanSquare | None, MeanSquare | None]:
    """Mean squares of the two-way analysis of variance: seeds, documents, rest; None for a factor with one level."""
    s, d = table.shape
    shifted = table - table[0, 0]  # so that equal values have no spread by rounding
    mean = shifted.mean()
    of_seeds, of_documents = shifted.mean(axis=1) - mean, shifted.mean(axis=0) - mean
    rest = shifted - mean - of_seeds[:, None] - of_documents[None, :]
    sums = (
        (d * (of_seeds**2).sum(), s - 1), (s * (of_documents**2).sum(), d - 1), ((rest**2).sum(), (s - 1) * (d - 1)),
    )  # fmt: skip
    seeds, documents, both = (MeanSquare(float(total) / nu, nu) if nu else None for total, nu in sums)
    return seeds, documents, both


def errors(table: Array) -> list[tuple[float, float]]:
    """Standard errors of the mean with their degrees of freedom: over seeds, over documents, over both."""
    if table.size == 1:
        raise ValueError("values: one seed and one document have no scatter to estimate; two of either are needed")
    seeds, documents, rest = squares(table)
    estimates = [factor for factor in (seeds, documents) if factor]
    if seeds and documents and rest and rest.value < min(seeds.value, documents.value):
        value = seeds.value + documents.value - rest.value
        # Shares of V, since squares of small numbers might underflow.
        freedom = 1 / math.fsum((part.value / value) ** 2 / part.freedom for part in (seeds, documents, rest))
        estimates.append(MeanSquare(value, max(freedom, min(seeds.freedom, documents.freedom))))
    return [(math.sqrt(value / table.size), freedom) for value, freedom in estimates]


def _interval(table: Array, confidence: float) -> dict[str, Any]:
    """The fields of an `Interval`, and p."""
    mean, estimates, (seeds, documents) = float(table[0, 0] + (table - table[0, 0]).mean()), errors(table), table.shape
    half, negative, error = max(
        (float(stdtrit(nu, 0.5 + confidence / 2)) * error, -nu, error) for error, nu in estimates
    )
    p = max(2 * float(stdtr(nu, -abs(mean) / error)) if error else float(mean == 0) for error, nu in estimates)
    return {
        "mean": mean, "low": mean - half, "high": mean + half, "error": error, "freedom": -negative, "seeds": seeds,
        "documents": documents, "p": p,
    }  # fmt: skip


Answer = Literal["equivalent", "different", "inconclusive"]


def within(interval: Interval, margin: float) -> Answer:
    """Whether an interval lies within ± margin ("equivalent"), beyond it on one side ("different"), or neither.

    Either claim is wrong in at most ``level`` of cases, where the confidence is 1 − 2·level.
    """
    if -margin < interval.low and interval.high < margin:
        return "equivalent"
    return "different" if interval.low > margin or interval.high < -margin else "inconclusive"


def p_above(differences: npt.ArrayLike, bound: float) -> float:
    """The one-sided p-value of "the mean of ``differences`` (seeds, documents) is at most ``bound``"."""
    shifted = np.asarray(differences, dtype=np.float64) - bound
    two_sided = paired(shifted, np.zeros_like(shifted))
    return two_sided.p / 2 if two_sided.mean > 0 else 1 - two_sided.p / 2


def contrasts(
    pairs: Sequence[tuple[Array, Array]],
    seed_means: Mapping[str, npt.ArrayLike],
    *,
    same_weights: Sequence[bool] = (),
    untrained: bool = False,
) -> list[Contrast]:
    """A family of planned contrasts with p-values adjusted together.

    Args:
        pairs: a and b of each contrast, (seeds, documents), with the same seeds and documents in both.
        seed_means: the mean of each seed, for every row of the table by name; cautions are computed from them.
        same_weights: for each pair whether a and b are the same weights, which differ by no luck of training, so that
            seeds in two groups say nothing; by default none are.
        untrained: whether a released model is compared with itself, so that one seed is all there is.
    """
    differences = [paired(a, b) for a, b in pairs]
    gaps = {name: _widest_gap(values) for name, values in seed_means.items()}
    adjusted = holm([contrast.p for contrast in differences])
    same = same_weights or [False] * len(pairs)
    made = list[Contrast]()
    for (a, b), contrast, p, alike in zip(pairs, differences, adjusted, same, strict=True):
        judged = p <= LEVEL and not untrained
        caution = _caution(a, b, {} if alike else gaps, len(pairs)) if judged else None
        made.append(replace(contrast, adjusted=p, caution=caution))
    return made


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
