"""The charts of a report: one function each, an Altair chart, or None where a run lacks the numbers for it.

An encoding's color says which hook point it belongs to; names stand beside colors wherever rows must be told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import pandas as pd
import vl_convert as vlc

from posenc.catalogue import encoding_info, list_encodings
from posenc.lab.metrics import ATTENTION, FULL, WINDOW, Metric
from posenc.lab.report.numbers import Table
from posenc.lab.report.tables import unit_of
from posenc.lab.run.folder import Run

CURVE_POINTS = 24  # of a curve, evenly spaced on its axis
LOG_RATIO = 20  # from the largest item of a curve to the smallest: from there on the axis is logarithmic
INK, SOFT, LINE, GREY = "#1b1f24", "#59636e", "#dde3e9", "#bcc4cc"
COLORS = {  # of hook points, after Okabe and Ito, dark enough on white
    "none": "#6b6b6b", "embedding": "#a86d00", "rotary": "#0a6aa8", "bias": "#00795a", "score": "#b84a00",
    "weight": "#a05080", "mixed": "#6a5acd",
}  # fmt: skip
STYLE: dict[str, Any] = {
    "background": "#ffffff", "font": "sans-serif", "view": {"stroke": None},
    "axis": {"labelColor": SOFT, "titleColor": SOFT, "gridColor": LINE, "domainColor": LINE},
    "header": {"labelColor": INK, "titleColor": SOFT},
}  # fmt: skip


class Chart(NamedTuple):
    """A chart with its words."""

    name: str  # of its file
    title: str
    caption: str
    chart: alt.TopLevelMixin

    def svg(self) -> str:
        """A self-contained picture on white; vl_convert escapes its texts."""
        text: str = vlc.vegalite_to_svg({**self.chart.to_dict(), "config": STYLE})
        return text


def charts_of(run: Run, table: Table) -> Iterator[Chart]:
    """Every chart that a run has the numbers for."""
    window = "dashed, the same weights under a sliding window of the training length"
    charts: list[tuple[str, str, str, alt.TopLevelMixin | None]] = [
        ("lengths", "Every encoding by length",
         f"With its 95 % interval, the others in grey; {window}; dotted, the n-gram of the training text and, where "
         "losses come near, the entropy of single tokens.", lengths(run, table)),
        ("attention", "How far back each head attends",
         "Share of a head's attention by distance in tokens, at the training length; a row for each layer and head, "
         "mean over seeds.", attention_reach(run, table)),
        *((_file_name(curve.name), f"By {curve.axis.partition(',')[0]}",
           f"Means over seeds at the longest length where it was measured, the others in grey; {window}.",
           _multiples(_curve_points(run, curve.name), table, next(m for m in run.metrics if m.name == curve.of),
                      curve.axis)) for curve in run.curves),
    ]  # fmt: skip
    for name, title, caption, chart in charts:
        if chart is not None:
            yield Chart(name, title, caption, chart)


def lengths(run: Run, table: Table) -> alt.TopLevelMixin | None:
    """Small multiples over test lengths."""
    if len(run.lengths) < 2:
        return None
    frame = pd.DataFrame(
        {"encoding": row.spec, "view": row.view, "x": length / run.trained, "value": cell.mean, "low": cell.low,
         "high": cell.high}
        for row in table.rows
        for length, cell in row.cells.items()
    )  # fmt: skip
    levels = list[float]()
    if (counting := table.baselines) is not None:
        near = frame["value"].max() > (counting.ngram.mean + counting.unigram) / 2  # else it would flatten all lines
        levels = [counting.ngram.mean, *([counting.unigram] if near else [])]
    return _multiples(frame, table, run.decides, "test length in training lengths", levels)


def attention_reach(run: Run, table: Table) -> alt.TopLevelMixin | None:
    """A map for each encoding: heads down, distance across, the share of attention as darkness."""
    lines = run.records[(run.records["metric"] == ATTENTION) & (run.records["view"] == FULL)]
    if lines.empty:
        return None
    frame = lines.groupby(["spec", "document", "item"], observed=True, as_index=False)["value"].mean()
    frame = frame.rename(columns={"spec": "encoding", "document": "head", "item": "distance", "value": "share"})
    heads = int(run.numbers.get("heads", 1))
    frame["head"] = [f"{head // heads + 1}.{head % heads + 1}" for head in frame["head"]]
    order = [f"{n // heads + 1}.{n % heads + 1}" for n in range(len(frame["head"].unique()))]
    x = alt.X("distance:O", title=None, axis=alt.Axis(labelAngle=0, labelOverlap=True))
    y = alt.Y("head:N", sort=order, title="layer.head", axis=alt.Axis(labelOverlap=True, ticks=False, domain=False))
    shade = alt.Color("share:Q", scale=alt.Scale(scheme="blues", domain=[0, 1]), title="share")
    cells = (
        alt.Chart(frame).mark_rect().encode(x=x, y=y, color=shade, tooltip=["encoding", "head", "distance", "share"])
    )
    cells = cells.properties(width=130, height=9 * len(order))
    maps: alt.FacetChart = cells.facet(_facet(table, "distance in tokens, at most"), columns=5)
    return maps


def _multiples(
    frame: pd.DataFrame, table: Table, metric: Metric, by: str, levels: Sequence[float] = ()
) -> alt.FacetChart | None:
    """Small multiples: one encoding per panel in its color, dashed under its own window, all others in grey.

    Args:
        frame: columns encoding, view, x, value, and low and high where there is a band.
        table: gives the order.
        metric: of the values.
        by: what the horizontal axis shows.
        levels: values at dotted lines.
    """
    if frame.empty:
        return None
    wide = frame["x"].max() > LOG_RATIO * frame["x"].min() > 0 or by.startswith("test length")
    alone = frame.groupby(["encoding", "view"])["x"].transform("size") == 1
    frame = frame.assign(color=frame["encoding"].map(color_of), alone=alone)
    scale = alt.Scale(type="log", base=2, nice=False) if wide else alt.Scale(zero=False, nice=False)
    x = alt.X("x:Q", scale=scale, axis=alt.Axis(title=None, tickCount=3, format="~s", grid=False))
    axis = alt.Axis(format=".0%" if metric.percent else ".2~f", tickCount=4, title=None)
    y = alt.Y("value:Q", scale=alt.Scale(zero=False, nice=False), axis=axis)
    lines = alt.Chart().encode(x=x, y=y, color=alt.Color("color:N", scale=None))
    window, full = (alt.FieldEqualPredicate(field="view", equal=view) for view in (WINDOW, FULL))
    layers: list[alt.Chart] = [
        _grey_lines(frame, x, y),
        lines.mark_line(strokeWidth=1.6, strokeDash=[4, 3]).transform_filter(window),
        lines.mark_line(strokeWidth=2.2).transform_filter(full),
        lines.mark_point(size=16, filled=True, opacity=1).transform_filter("datum.alone"),
    ]
    if "low" in frame:
        band = alt.Chart().transform_filter(full).mark_area(opacity=0.25)
        layers.insert(1, band.encode(x=x, y="low:Q", y2="high:Q", color=alt.Color("color:N", scale=None)))
    if levels:
        dotted = alt.Chart(pd.DataFrame({"level": levels})).mark_rule(color=INK, strokeDash=[1, 3], strokeWidth=1)
        layers.append(dotted.encode(y="level:Q"))
    panels = alt.layer(*layers, data=frame).properties(height=66, width=130)
    return panels.facet(_facet(table, f"{unit_of(metric)}, by {by}"), columns=5)


def _grey_lines(frame: pd.DataFrame, x: alt.X, y: alt.Y) -> alt.Chart:
    """Every encoding's line in grey, as one path with gaps between encodings."""
    parts = [part.sort_values("x")[["x", "value"]] for _, part in frame[frame["view"] == FULL].groupby("encoding")]
    gap = pd.DataFrame({"x": [None], "value": [None]}, dtype="float64")
    joined = pd.concat([piece for part in parts for piece in (part, gap)], ignore_index=True)
    line: alt.Chart = alt.Chart(joined.reset_index()).mark_line(
        color=GREY, strokeWidth=0.8, opacity=0.8, invalid="break-paths-show-path-domains"
    )
    return line.encode(x=x, y=y, order="index:Q")


def _curve_points(run: Run, name: str) -> pd.DataFrame:
    """Means over seeds by encoding, view and item at the longest length; neighbours are joined to `CURVE_POINTS`."""
    lines = run.records[(run.records["metric"] == name) & run.records["view"].isin([FULL, WINDOW])]
    lines = lines[lines["length"] == lines["length"].max()].astype({"spec": str, "view": str})
    lines = lines.rename(columns={"spec": "encoding", "item": "x"})
    items = np.sort(lines["x"].unique())
    if len(items) > CURVE_POINTS:
        wide = items[-1] > LOG_RATIO * max(items[0], 1)
        at = np.log2(np.maximum(lines["x"], 1)) if wide else lines["x"].astype(float)
        lines = lines.assign(x=lines["x"].groupby(pd.cut(at, CURVE_POINTS, labels=False)).transform("mean"))
    return lines.groupby(["encoding", "view", "x"], as_index=False)["value"].mean()


def _facet(table: Table, title: str) -> alt.Facet:
    order = [row.spec for row in table.full_rows]
    return alt.Facet("encoding:N", sort=order, title=title, header=alt.Header(labelLimit=130))


def _file_name(name: str) -> str:
    """The name of a file for a name from run.json, which may contain anything."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name)


def color_of(spec: str) -> str:
    """The color of an encoding, by its hook point."""
    kind = "none" if spec == "nope" else encoding_info(spec).hook_point if spec in list_encodings() else "mixed"
    return COLORS[kind]
