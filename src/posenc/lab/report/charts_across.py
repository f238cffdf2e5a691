"""Several runs beside each other, and what encodings cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from posenc.lab.records import FULL
from posenc.lab.report.chart import NAMES, STEP, beside, coloured, rows_axis
from posenc.lab.report.palette import INK, colour
from posenc.lab.report.rows import Table
from posenc.lab.runs import Run

SHAPES = {
    "gains": "triangle-up", "holds": "circle", "undecided": "diamond", "declines": "triangle-down", "fails": "cross",
    "no number": "square", "not learnt": "M.35,0A.35,.35,0,1,1,-.35,0A.35,.35,0,1,1,.35,0",
}  # fmt: skip
SCORES = {"holds": 1.0, "gains": 1.0, "undecided": 0.5, "declines": 0.4}  # for the order of the rows alone
ACROSS = (
    "What each encoding does at the longest length of each run; the more it holds, the higher it stands. Numbers are "
    "in the runs below."
)
COSTS = "Time over that of the same work without an encoding, at the longest length measured, with 95 % intervals."


def across_chart(parts: Mapping[str, tuple[Run, Table]]) -> alt.TopLevelMixin | None:
    """Encodings × runs of several lengths, a shape for each verdict; ``parts`` are runs by what they are called."""
    found = [
        {"encoding": row.spec, "run": name, "verdict": row.verdict, "colour": colour(row.spec),
         "value": row.cells[max(row.cells)].mean, "unit": table.metric.unit}
        for name, (_, table) in parts.items()
        for row in table.rows
        if row.view == FULL and len(table.lengths) > 1
    ]  # fmt: skip
    frame = pd.DataFrame(found)
    if frame.empty or frame["run"].nunique() < 2:
        return None
    scores = frame["verdict"].map(SCORES).fillna(0).groupby(frame["encoding"]).sum()
    order = list(scores.sort_values(ascending=False, kind="stable").index)
    kinds = [verdict for verdict in SHAPES if (frame["verdict"] == verdict).any()]
    scale = alt.Scale(domain=kinds, range=[SHAPES[verdict] for verdict in kinds])
    shape = alt.Shape("verdict:N", scale=scale, legend=alt.Legend(title=None, columns=4))
    labels = alt.Axis(orient="top", title=None, labelAngle=-35, labelColor=INK, labelOverlap=False, labelLimit=150)
    marks = alt.Chart(frame).mark_point(filled=True, opacity=1, size=75, aria=True)
    tip = "datum.encoding + ', ' + datum.run + ': ' + datum.verdict"
    encoded = marks.transform_calculate(tip=tip).encode(
        x=alt.X("run:N", sort=list(parts), axis=labels), y=rows_axis(order, alt.Axis(**NAMES)), shape=shape,
        color=coloured(), description="tip:N",
    )  # fmt: skip
    whole: alt.TopLevelMixin = encoded.properties(height=STEP * len(order), usermeta={"beside": beside(order)})
    return whole


def costs_chart(costs: pd.DataFrame) -> alt.TopLevelMixin | None:
    """Relative times of the passes that were measured: columns spec, pass, length, relative, low, high."""
    found = costs.dropna(subset=["relative"]).rename(columns={"spec": "encoding", "relative": "value", "pass": "work"})
    found = found[found["length"] == found.groupby("work")["length"].transform("max")]
    if found.empty:
        return None
    found = found[["encoding", "work", "length", "value", "low", "high"]]
    order = list(found.groupby("encoding")["value"].mean().sort_values().index)
    found = found.assign(colour=found["encoding"].map(colour))
    axis, parts = alt.Axis(title=None, format=".2~f", orient="top", tickCount=3, grid=False), list[Any]()
    scale = alt.Scale(zero=False, nice=False, padding=9)
    for work in found["work"].unique():
        rows = rows_axis(order, alt.Axis(**{**NAMES, "labels": not parts}))
        base = alt.Chart().transform_filter(f"datum.work == '{work}'").encode(y=rows, color=coloured())
        rule = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q")
        dot = base.mark_point(filled=True, size=50, opacity=1).encode(x=alt.X("value:Q", scale=scale, axis=axis))
        own = {"width": 150} if work.startswith("model") else {}  # where there is no room, these are left out
        parts.append(alt.layer(rule, dot).properties(title=work, height=STEP * len(order), **own))
    return alt.hconcat(*parts, data=found).properties(usermeta={"beside": beside(order)})
