"""Means and changes as tables and sentences say them."""

from __future__ import annotations

import math

from posenc.lab.metrics import Metric
from posenc.lab.report.rows import Cell
from posenc.lab.stats import Caution, Interval


def number(value: float, metric: Metric, *, change: bool = False) -> str:
    """``1.720``, or of a share ``97.5``, which is percent; a change has its sign."""
    sign = "+" if change else ""
    return (f"{100 * value:{sign}.1f}" if metric.percent else f"{value:{sign}.3f}").replace("-", "−")


def with_error(found: Cell | Interval | None, metric: Metric, *, change: bool = False) -> str:
    """``1.720 ± 0.012 (ν 4)``: mean, half of the 95 % interval, degrees of freedom; a dash where there is nothing."""
    if found is None:
        return "–"
    mean = number(found.mean, metric, change=change)
    half = (found.high - found.low) / 2
    return mean if math.isnan(half) else f"{mean} ± {number(half, metric)} (ν {found.freedom:.0f})"


def caution_words(caution: Caution | None) -> str:
    """A caution as a short text; empty without one."""
    if caution is None or caution.kind == "one seed":
        return "" if caution is None else "one seed"
    return f"bimodal seeds of {caution.row}: {caution.below:.3g} and {caution.above:.3g}"
