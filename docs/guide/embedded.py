"""The measurements of docs/results, which lies in the repository alone, as a file of the package and as a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from guide.records import records_frame, run_of, runs
from posenc.figures import alone, figure
from posenc.lab.metrics import FULL, WINDOW
from posenc.lab.report.numbers import Row, Table
from posenc.lab.stats import Contrast, Interval


def embedded() -> str:
    """The text of the file: comparisons, each with its rows by encoding."""
    lines = [json.dumps(_study(name), ensure_ascii=False) for name in runs()]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _study(name: str) -> dict[str, Any]:
    """One comparison: every number of its table, to six significant digits."""
    run, table = run_of(name), records_frame(name)
    counting = table.baselines
    metric, rows = run.decides, [table.row(spec) for spec in dict.fromkeys(row.spec for row in table.rows)]
    return {
        "study": name, "task": run.task, "title": run.words.title, "unit": metric.unit, "better": metric.better,
        "percent": metric.percent, "margin": metric.margin, "train_length": run.trained,
        "counting": counting and [counting.order, *_six_digits(counting.ngram.mean, counting.unigram)],
        "rows": {row.spec: _row(row, table) for row in rows if row is not None},
    }  # fmt: skip


def _row(row: Row, table: Table) -> dict[str, Any]:
    window = table.row(row.spec, WINDOW)
    last = {"1x": row.change, **row.contrasts}
    return {
        "verdict": row.verdict.kind, "learnt": row.learned, "seeds": row.learned_share.seeds,
        "means": _means(row), "window": [] if window is None else _means(window), "views": _views(row, table),
        "reach": _reach(row), "contrasts": _contrasts(last),
    }  # fmt: skip


def _views(row: Row, table: Table) -> dict[str, list[float]]:
    """Of pictures: mean and interval under each change of the positions, at the one length that there is."""
    changed = [other for other in table.rows if other.spec == row.spec and other.view not in (FULL, WINDOW)]
    return {other.view: _rounded(cell) for other in changed for cell in other.cells.values() if len(other.cells) == 1}


def _means(row: Row) -> list[list[float]]:
    """Length, mean and interval, for each length that has them."""
    return [[length, *_rounded(row.cells[length])] for length in sorted(row.cells)]


def _reach(row: Row) -> list[list[float]]:
    """Context, mean and interval, for each context that is no test length as well."""
    losses = {} if row.reach is None else row.reach.losses
    return [[context, *_rounded(losses[context])] for context in sorted(losses) if context not in row.cells]


def _contrasts(by_label: Mapping[str, Contrast | None]) -> list[list[Any]]:
    """Against what, the difference with its interval, and whether it is claimed."""
    return [[name, *_rounded(c), c.significant] for name, c in by_label.items() if c is not None]


def _rounded(estimate: Interval) -> list[float]:
    return _six_digits(estimate.mean, estimate.low, estimate.high)


def _six_digits(*values: float) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def picture() -> str:
    """The picture of the README, of what the embedded file says."""
    return alone(figure("measured"), at_night=True)
