"""What a run is about: who learnt its task, and who keeps it where it was not trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from posenc.lab.metrics import Metric
from posenc.lab.records import FULL
from posenc.lab.report.chart import (  # fmt: skip
    LETTER,
    NAMES,
    STEP,
    beside,
    chart,
    coloured,
    multiples,
    number_format,
    order_of,
    rows_axis,
    unit_of,
    value_axis,
)
from posenc.lab.report.palette import BAND, PAPER, SOFT, colour
from posenc.lab.report.rows import OWN_WINDOW, Cell, Table
from posenc.lab.runs import Run
from posenc.lab.stats import Contrast

LOGARITHMIC = 20  # margins; where changes are larger, the axis counts them by their size


@chart(
    "dots",
    title="Learnt, kept, and more than its own window?",
    caption="Dots are means and lines 95 % intervals over seeds and documents; better is to the right. Left: at the "
    "trained length, hollow where the task was not learnt. Middle: change from there to the longest length. Right: "
    "difference to the same weights under a sliding window of the trained length. Within the band, a change counts "
    "as none.",
)
def dots(run: Run, table: Table) -> alt.TopLevelMixin | None:
    """One row an encoding, with up to three intervals and the verdict."""
    frame = pd.DataFrame(_dots(run, table))
    if frame.empty or len(run.lengths) < 2:
        return None
    longest, order = f"{table.times}×", order_of(table)
    minus = f"{longest} minus"
    titles = {"learnt": ["trained", "length"], "kept": [minus, "1×"], "window": [minus, "own window"]}
    shown = [panel for panel in titles if (frame["panel"] == panel).any()]
    parts = [_panel(frame[frame["panel"] == panel], titles[panel], run.decides, order) for panel in shown]
    words = alt.Chart().mark_text(align="left", color=SOFT).transform_filter("datum.panel == 'learnt'")
    bare = alt.Axis(title=None, labels=False, ticks=False, domain=False)
    words = words.encode(x=alt.value(0), y=rows_axis(order, bare), text="verdict:N")
    parts.append(words.properties(width=LETTER * max(map(len, frame["verdict"])), height=STEP * len(order)))
    return alt.hconcat(*parts, data=frame).properties(usermeta={"beside": beside(order)})


def _dots(run: Run, table: Table) -> Iterator[dict[str, Any]]:
    for row in table.rows:
        if row.view != FULL:
            continue
        found: dict[str, Cell | Contrast | None] = {
            "learnt": row.cells.get(table.trained), "kept": row.change, "window": row.against.get(OWN_WINDOW),
        }  # fmt: skip
        for panel, one in found.items():
            if one is not None:
                yield {
                    "panel": panel, "encoding": row.spec, "value": one.mean, "low": one.low, "high": one.high,
                    "freedom": one.freedom, "learnt": row.learnt, "verdict": row.verdict, "colour": colour(row.spec),
                }  # fmt: skip


def _panel(frame: pd.DataFrame, title: list[str], metric: Metric, order: list[str]) -> alt.LayerChart | alt.FacetChart:
    """One column of intervals; what it shows of ``frame`` is chosen in the chart, which has all of it."""
    panel, change = frame["panel"].iloc[0], frame["panel"].iloc[0] != "learnt"
    scale = alt.Scale(zero=change, reverse=metric.better == "lower", nice=False, padding=9)
    axis = alt.Axis(title=title, format=number_format(metric, change=change), tickCount=3, grid=False, orient="top")
    reach = frame[["value", "low", "high"]].abs().max().max()
    if change and reach > LOGARITHMIC * metric.margin:
        scale.type, scale.constant = "symlog", 2 * metric.margin
        worse = 1 if metric.better == "lower" else -1
        powers = worse * 10.0 ** np.arange(np.ceil(np.log10(4 * metric.margin)), np.log10(reach))
        axis.values, axis.labelExpr = [0, *powers], "datum.value == 0 ? '0' : datum.label"
    x, low = alt.X("value:Q", scale=scale, axis=axis), alt.X("low:Q", scale=scale, axis=axis)
    rows = rows_axis(order, alt.Axis(**({**NAMES, "labels": False} if change else NAMES)))
    base = alt.Chart().transform_filter(f"datum.panel == '{panel}'").encode(y=rows, color=coloured())
    said = f"format(datum.value, '{number_format(metric, change=change, digits=3)}')"
    points = base.transform_calculate(tip=f"datum.encoding + ', {' '.join(title)}: ' + {said}")
    points = points.mark_point(size=46, opacity=1, aria=True, strokeWidth=2)
    fill = alt.condition("datum.learnt", coloured(), alt.value(PAPER))
    rule = base.mark_rule(strokeWidth=2).encode(x=low, x2="high:Q")
    layers = [rule, points.encode(x=x, fill=fill, description="tip:N")]
    if change:
        band = alt.Chart(pd.DataFrame({"low": [-metric.margin], "high": [metric.margin]}))
        layers.insert(0, band.mark_rect(color=BAND).encode(x=low, x2="high:Q"))
    return alt.layer(*layers).properties(height=STEP * len(order))


@chart(
    "lengths",
    title="Every encoding by length",
    caption="One encoding each, all the others grey; its 95 % interval shaded, and dashed the same weights under a "
    "sliding window of the trained length. Of a given model: the difference to that model, as it is, at 1×.",
)
def lengths(run: Run, table: Table) -> alt.TopLevelMixin | None:
    """Small multiples over test lengths."""
    if len(run.lengths) < 2:
        return None
    lines = [
        {"encoding": row.spec, "view": row.view, "x": length / run.trained, "value": cell.mean, "low": cell.low,
         "high": cell.high, "freedom": cell.freedom}
        for row in table.rows
        for length, cell in (row.beside if run.given else row.cells).items()
        if length >= run.trained or not run.given
    ]  # fmt: skip
    times = [k for k in run.times if k >= 1] if run.given else run.times
    shown = sorted({times[0], times[len(times) // 2], times[-1]})
    axis = alt.Axis(values=shown, title=None, labelExpr="datum.label + '×'", grid=False)
    x = alt.X("x:Q", scale=alt.Scale(type="log", base=2, nice=False), axis=axis)
    return multiples(pd.DataFrame(lines), order_of(table), run.decides, x, "test length")


@chart(
    "views",
    title="Every encoding under each view",
    caption="Means with 95 % intervals over seeds and documents, one encoding each.",
)
def views(run: Run, table: Table) -> alt.TopLevelMixin | None:
    """Small multiples over the conditions that weights were measured under, where lengths are not the question."""
    order = [FULL, *table.views]
    if not table.views:
        return None
    frame = pd.DataFrame(
        {"encoding": row.spec, "view": row.view, "value": cell.mean, "low": cell.low, "high": cell.high,
         "freedom": cell.freedom, "colour": colour(row.spec)}
        for row in table.rows
        for cell in row.cells.values()
    )  # fmt: skip
    axis, scale = value_axis(run.decides, ticks=2), alt.Scale(zero=False, nice=False, padding=6)
    y = alt.Y("view:N", sort=order, axis=alt.Axis(**{**NAMES, "labelFontSize": 11}))
    base = alt.Chart().encode(color=coloured(), y=y)
    rule = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", axis=axis, scale=scale), x2="high:Q")
    dot = base.mark_point(filled=True, size=40, opacity=1).encode(x=alt.X("value:Q", axis=axis, scale=scale))
    facet = alt.Facet("encoding:N", sort=order_of(table), title=unit_of(run.decides), header=alt.Header(labelLimit=108))
    whole = alt.layer(rule, dot, data=frame).properties(height=STEP * len(order)).facet(facet, columns=8)
    return whole.properties(usermeta={"beside": beside(order)})
