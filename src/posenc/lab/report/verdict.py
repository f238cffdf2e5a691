"""When a model has learnt its task, and one word for what a row does with length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from posenc.lab.metrics import Metric
from posenc.lab.stats import Array, Interval, Share, within

Verdict = Literal["holds", "gains", "declines", "fails", "undecided", "not learnt", "no number"]
Probes = Sequence[tuple[int, float]]  # (step, value at the trained length) in the order of steps


def best_of(values: Sequence[float], metric: Metric) -> float:
    """The best of some values; NaN of none."""
    return (min if metric.better == "lower" else max)(values, default=math.nan)


def has_learnt(value: float, best: float, metric: Metric) -> bool:
    """Whether a model with this value at the trained length has learnt its task.

    It reaches ``metric.learnt``, or is within ``metric.within`` of ``best``, the best row's mean there. A metric with
    neither asks for nothing.
    """
    sign = _sign(metric)
    bars = [] if metric.learnt is None else [sign * metric.learnt]
    bars += [] if metric.within is None else [sign * best - metric.within]
    return sign * value >= min(bars, default=-math.inf)


def criterion(trainings: Sequence[Probes], best: float, metric: Metric) -> float | None:
    """Steps to learning: of each training the first probe from which on all have learnt; the median over trainings.

    None where half of them or more have not learnt, and for a metric without a criterion.
    """
    if not trainings or (metric.learnt is None and metric.within is None):
        return None
    steps = list[float]()
    for probes in trainings:
        since = math.inf
        for step, value in reversed(probes):
            if not has_learnt(value, best, metric):
                break
            since = step
        steps.append(since)
    median = float(np.median(steps))
    return median if math.isfinite(median) else None


def verdict(change: Interval, last: Interval, metric: Metric) -> Verdict:
    """What models that learnt their task do with length, from intervals of 90 %.

    holds      the change lies within ± ``metric.margin``
    gains      it lies beyond, on the better side
    fails      it lies beyond ``metric.fails`` on the worse side; or beyond the margin, with values within one of chance
    declines   it lies beyond the margin on the worse side
    undecided  everything else

    Each claim is wrong in 5 % of cases at most, row by row; nothing is adjusted for the number of rows.

    Args:
        change: longest − 1×, paired.
        last: the mean at the longest length.
        metric: its better side, margin, chance and ``fails``.
    """
    answer = within(change, metric.margin)
    if answer != "different":
        return "holds" if answer == "equivalent" else "undecided"
    most = _most(change, metric)
    if most > 0:
        return "gains"
    chance = -math.inf if metric.chance is None else _sign(metric) * metric.chance + metric.margin
    return "fails" if most < -metric.fails or _most(last, metric) <= chance else "declines"


def caution(learnt: Share, both: tuple[Array, Array] | None, metric: Metric) -> str:
    """What the intervals of a row do not say, in words; empty where there is nothing of the kind.

    Args:
        learnt: the share of seeds that learnt.
        both: values at the longest length and at 1× of those, (seeds, documents).
        metric: of the values.
    """
    if learnt.seeds == 1:
        return "One seed: it says nothing of another training."
    found = []
    if 0 < learnt.count < learnt.seeds:
        found.append(f"{learnt.count} of {learnt.seeds} seeds learnt the task; length is judged of these.")
    if both:
        worse = _sign(metric) * (both[1] - both[0]).mean(axis=1)
        failing = int((worse > metric.fails).sum())
        if 0 < failing < len(worse):
            found.append(f"{failing} of {len(worse)} seeds fail at the longest length, the others do not.")
    return " ".join(found)


def _most(interval: Interval, metric: Metric) -> float:
    """The better end of an interval, counted so that more is better."""
    return interval.high if metric.better == "higher" else -interval.low


def _sign(metric: Metric) -> int:
    return 1 if metric.better == "higher" else -1
