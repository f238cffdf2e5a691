"""What a run measured beside the metric that decides: its other metrics by length, and short curves as tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from posenc.lab.metrics import Curve, Metric
from posenc.lab.records import FULL, WINDOW
from posenc.lab.report.measured import values_of
from posenc.lab.report.rows import GIVEN, Cell, Row, Table, cell_of
from posenc.lab.report.said_numbers import with_error
from posenc.lab.runs import Run

MOST = 12  # items of a curve that is shown as a table


class Further(NamedTuple):
    """A table of its own."""

    title: str
    heads: list[str]
    lines: list[list[str]]


def further(run: Run, table: Table) -> list[Further]:
    """The tables of a run; what was not measured has none."""
    found = [_beside_cut(run, table)] if run.given else []
    found += [_of_metric(run, table, metric) for metric in run.metrics[1:]]
    found += [_of_curve(run, table, curve) for curve in run.curves]
    return [one for one in found if one is not None]


def further_frame(run: Run) -> pd.DataFrame:
    """Every mean of the other metrics: a line for each metric, encoding, view and length."""
    parts = [
        {"metric": metric.name, "encoding": spec, "view": view, **vars(cell)}
        for metric in run.metrics[1:]
        for (spec, view), cells in _cells(run, metric).items()
        for cell in cells.values()
    ]
    return pd.DataFrame(parts)


def _cells(run: Run, metric: Metric) -> dict[tuple[str, str], dict[int, Cell]]:
    lines = run.records[(run.records["metric"] == metric.name) & (run.records["length"] > 0)]
    return {
        key: {length: cell_of(length, values) for length, values in by_length.items()}
        for key, by_length in values_of(lines).items()
    }


def _beside_cut(run: Run, table: Table) -> Further | None:
    """Each length less the model as it is at 1×: that is what cutting the text there gives, for nothing."""
    metric = run.decides
    lines = [
        [_named(row), *(with_error(row.beside.get(length), metric, change=True) for length in table.lengths)]
        for row in table.rows
        if row.beside
    ]
    heads = ["encoding", *(f"{length:,}" for length in table.lengths)]
    return Further(f"less {GIVEN} at 1×: {_unit(metric)}", heads, lines) if lines else None


def _named(row: Row) -> str:
    return row.spec if row.view == FULL else f"{row.spec}, own window"


def _of_metric(run: Run, table: Table, metric: Metric) -> Further | None:
    found = _cells(run, metric)
    lines = []
    for row in table.rows:
        cells = found.get((row.spec, row.view))
        if row.view in (FULL, WINDOW) and cells:
            shown = [with_half(cells.get(length), metric) for length in table.lengths]
            lines.append([_named(row), *shown])
    heads = ["encoding", *(f"{length:,}" for length in table.lengths)]
    return Further(f"{metric.name.replace('_', ', ')}: {_unit(metric)}", heads, lines) if lines else None


def _of_curve(run: Run, table: Table, curve: Curve) -> Further | None:
    found = run.records[(run.records["metric"] == curve.name) & (run.records["view"] == FULL)]
    items = sorted(found["item"].unique())
    if found.empty or len(items) > MOST:
        return None
    metric = next(metric for metric in run.metrics if metric.name == curve.of)
    means = found.groupby(["spec", "length", "item"], observed=True)["value"].mean()
    lines = list(_curve_lines(table, means, items, metric))
    heads = ["encoding", "length", *map(str, items)]
    return Further(f"{curve.of} by {curve.axis}: {_unit(metric)}", heads, lines) if lines else None


def _curve_lines(table: Table, means: pd.Series, items: list[int], metric: Metric) -> Iterator[list[str]]:
    for row in table.rows:
        for length in table.lengths if row.view == FULL else ():
            values = [means.get((row.spec, length, item)) for item in items]
            if any(value is not None for value in values):
                yield [row.spec, f"{length:,}", *("–" if v is None else _shown(v, metric) for v in values)]


def with_half(cell: Cell | None, metric: Metric) -> str:
    """A mean and half of its interval, where there is one."""
    if cell is None:
        return "–"
    half = (cell.high - cell.low) / 2
    return _shown(cell.mean, metric) + (f" ± {_shown(half, metric)}" if not math.isnan(half) else "")


def _shown(value: float, metric: Metric) -> str:
    return f"{100 * value:.1f}" if metric.percent else f"{value:.4g}"


def _unit(metric: Metric) -> str:
    return f"% {metric.unit}" if metric.percent else metric.unit
