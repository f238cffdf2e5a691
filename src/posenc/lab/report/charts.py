"""Every chart of a report: one function each, registered by `chart`.

A chart is a function that returns an Altair chart, or None where a run lacks the numbers for it. Its scope says what it
receives: "run", a run and its table; "curve", these and a curve that the task declares; "runs", all runs with their
tables by label; "costs", the table of posenc cost. To add a chart, write one decorated function here; `draw_charts`
draws all charts of a scope, and writing files, the page and its CSV follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from posenc.lab.metrics import FULL, WINDOW, Curve, Metric
from posenc.lab.plugins import load_function
from posenc.lab.report.drawing import BAND, GREY, INK, PAPER, SOFT, DrawnChart, encoding_color
from posenc.lab.report.numbers import OWN_WINDOW, PROBE, Cell, NamedTables, Table
from posenc.lab.report.tables import unit_of
from posenc.lab.run.folder import Run
from posenc.lab.stats import Contrast

Scope = Literal["run", "curve", "runs", "costs"]
Draw = Callable[..., "alt.TopLevelMixin | None"]

ROW_HEIGHT = 17  # pixels from row to row
LETTER_WIDTH = 7  # pixels of a letter of a name, about
SYMLOG_FROM = 20  # margins: where changes are larger, their axis is logarithmic beyond the margin
CURVE_POINTS = 24  # of a curve, evenly spaced on its axis
LOG_RATIO = 20  # from the largest item of a curve to the smallest: from there on the axis is logarithmic
NAME_AXIS: dict[str, Any] = {  # an axis with a row for each encoding
    "title": None, "labelColor": INK, "labelFontSize": 12, "labelLimit": 140, "labelOverlap": False, "ticks": False,
    "domain": False, "grid": True,
}  # fmt: skip
SHAPES = {  # of verdicts
    "rises": "triangle-up", "falls": "triangle-down", "flat": "circle", "inconclusive": "diamond", "no value": "cross",
    "above single tokens": "square", "did not learn": "M.35,0A.35,.35,0,1,1,-.35,0A.35,.35,0,1,1,.35,0",
}  # fmt: skip


class Chart(NamedTuple):
    """A registered chart."""

    name: str  # of its files
    title: str
    caption: str
    scope: Scope
    draw: Draw


CHARTS: dict[str, Chart] = {}


def chart(name: str, *, title: str, caption: str, scope: Scope = "run") -> Callable[[Draw], Draw]:
    """Register a chart for all reports.

    Args:
        name: of its files; letters, digits and ``-``. The files of a curve's chart have the curve's name.
        title: above the chart; of a curve's chart, before the curve's axis.
        caption: what the chart shows, in a sentence or two.
        scope: what the function receives, see the module.
    """

    def register(draw: Draw) -> Draw:
        CHARTS[name] = Chart(name, title, caption, scope, draw)
        return draw

    return register


def draw_charts(scope: Scope, *data: Any) -> Iterator[DrawnChart]:
    """All charts of a scope for which ``data`` has numbers."""
    for registered in CHARTS.values():
        if registered.scope == scope and (altair_chart := registered.draw(*data)) is not None:
            yield DrawnChart(registered.name, registered.title, registered.caption, altair_chart)


def run_charts(run: Run, table: Table, custom: Iterable[str] = ()) -> Iterator[DrawnChart]:
    """The charts of a run and its curves; ``custom`` are a user's own, ``module:function``, which must be permitted."""
    yield from draw_charts("run", run, table)
    for curve in run.curves:
        for figure in draw_charts("curve", run, table, curve):
            title = f"{figure.title} {curve.axis.partition(',')[0]}"
            yield DrawnChart(_file_name(curve.name), title, figure.caption, figure.chart)
    for name in custom:
        draw = load_function(name)
        if (custom_chart := draw(run, table)) is not None:
            title = (draw.__doc__ or "").strip().partition("\n")[0].rstrip(".")
            yield DrawnChart(_file_name(name.rpartition(":")[2], "_"), title or name, f"Drawn by {name}.", custom_chart)


def _file_name(name: str, separator: str = "-") -> str:
    """The name of a file for a name from run.json or the command line, which may contain anything."""
    return re.sub(r"[^A-Za-z0-9]+", separator, name)


# ---- A run by length and by view ----


@chart(
    "dots",
    title="Training length, change with length, and difference to a sliding window",
    caption="Means with 95 % intervals over seeds and documents; better is to the right. Left: at the training length, "
    "hollow where the encoding did not learn the task. Middle: change from the training length to the longest length. "
    "Right: difference to the same weights under a sliding window of the training length. The band is the equivalence "
    "margin.",
)
def dots(run: Run, table: Table) -> alt.TopLevelMixin | None:
    """One row an encoding, with up to three intervals and the verdict."""
    frame = pd.DataFrame(_dots(table))
    if frame.empty or len(run.lengths) < 2:
        return None
    longest, order = f"{table.times}×", _encodings(table)
    minus = f"{longest} minus"
    titles = {"first": ["training", "length"], "change": [minus, "1×"], "window": [minus, "own window"]}
    shown = [panel for panel in titles if (frame["panel"] == panel).any()]
    parts = [_panel(frame[frame["panel"] == panel], titles[panel], run.decides, order) for panel in shown]
    verdicts = alt.Chart().mark_text(align="left", color=SOFT).transform_filter(_equal("panel", "first"))
    bare = alt.Axis(title=None, labels=False, ticks=False, domain=False)
    verdicts = verdicts.encode(x=alt.value(0), y=_encoding_axis(order, bare), text="verdict:N")
    width = LETTER_WIDTH * max(map(len, frame["verdict"]))
    parts.append(verdicts.properties(width=width, height=ROW_HEIGHT * len(order)))
    return alt.hconcat(*parts, data=frame).properties(usermeta={"label_width": _label_width(order)})


def _dots(table: Table) -> Iterator[dict[str, Any]]:
    for row in table.full_rows:
        panels: dict[str, Cell | Contrast | None] = {
            "first": row.cells.get(table.trained), "change": row.change, "window": row.contrasts.get(OWN_WINDOW),
        }  # fmt: skip
        for panel, value in panels.items():
            if value is not None:
                yield {
                    "panel": panel, "encoding": row.spec, "value": value.mean, "low": value.low, "high": value.high,
                    "freedom": value.freedom, "learned": row.learned, "verdict": row.verdict.kind,
                    "colour": encoding_color(row.spec),
                }  # fmt: skip


def _panel(frame: pd.DataFrame, title: list[str], metric: Metric, order: list[str]) -> alt.LayerChart | alt.FacetChart:
    """One column of intervals; the chart has all panels' data and filters its own."""
    panel, change = frame["panel"].iloc[0], frame["panel"].iloc[0] != "first"
    scale = alt.Scale(zero=change, reverse=metric.better == "lower", nice=False, padding=9)
    axis = alt.Axis(title=title, format=_number_format(metric, change=change), tickCount=3, grid=False, orient="top")
    reach = frame[["value", "low", "high"]].abs().max().max()
    if change and reach > SYMLOG_FROM * metric.margin:
        scale.type, scale.constant = "symlog", 2 * metric.margin
        worse = 1 if metric.better == "lower" else -1
        powers = worse * 10.0 ** np.arange(np.ceil(np.log10(4 * metric.margin)), np.log10(reach))
        axis.values, axis.labelExpr = [0, *powers], "datum.value == 0 ? '0' : datum.label"
    x, low = alt.X("value:Q", scale=scale, axis=axis), alt.X("low:Q", scale=scale, axis=axis)
    rows = _encoding_axis(order, alt.Axis(**({**NAME_AXIS, "labels": False} if change else NAME_AXIS)))
    base = alt.Chart().transform_filter(_equal("panel", panel)).encode(y=rows, color=_color())
    number = f"format(datum.value, '{_number_format(metric, change=change, digits=3)}')"
    points = base.transform_calculate(tip=f"datum.encoding + ', {' '.join(title)}: ' + {number}")
    points = points.mark_point(size=46, opacity=1, aria=True, strokeWidth=2)
    fill = alt.condition("datum.learned", _color(), alt.value(PAPER))
    rule = base.mark_rule(strokeWidth=2).encode(x=low, x2="high:Q")
    layers = [rule, points.encode(x=x, fill=fill, description="tip:N")]
    if change:
        band = alt.Chart(pd.DataFrame({"low": [-metric.margin], "high": [metric.margin]}))
        layers.insert(0, band.mark_rect(color=BAND).encode(x=low, x2="high:Q"))
    return alt.layer(*layers).properties(height=ROW_HEIGHT * len(order))


@chart(
    "lengths",
    title="Every encoding by length",
    caption="One encoding per panel with its 95 % interval, the others in grey; dashed, the same weights under a "
    "sliding window of the training length; dotted, the n-gram of the training text and, where losses come near, the "
    "entropy of single tokens. For a released model: the difference to the unmodified model at 1×.",
)
def lengths(run: Run, table: Table) -> alt.TopLevelMixin | None:
    """Small multiples over test lengths."""
    if len(run.lengths) < 2:
        return None
    lines = [
        {"encoding": row.spec, "view": row.view, "x": length / run.trained, "value": cell.mean, "low": cell.low,
         "high": cell.high, "freedom": cell.freedom}
        for row in table.rows
        for length, cell in (row.over_unmodified if run.pretrained else row.cells).items()
        if length >= run.trained or not run.pretrained
    ]  # fmt: skip
    times = [k for k in run.times if k >= 1] if run.pretrained else run.times
    shown = sorted({times[0], times[len(times) // 2], times[-1]})
    axis = alt.Axis(values=shown, title=None, labelExpr="datum.label + '×'", grid=False)
    x = alt.X("x:Q", scale=alt.Scale(type="log", base=2, nice=False), axis=axis)
    frame = pd.DataFrame(lines)
    return _multiples(frame, _encodings(table), run.decides, x, "test length", _levels(table, frame["value"].max()))


def _levels(table: Table, largest: float) -> list[float]:
    """What counting reaches: the n-gram, and single tokens if a loss comes near, which else would flatten all lines."""
    if table.baselines is None:
        return []
    ngram, unigram = table.baselines.ngram.mean, table.baselines.unigram
    return [ngram, unigram] if largest > (ngram + unigram) / 2 else [ngram]


@chart(
    "views",
    title="Every encoding under each view",
    caption="Means with 95 % intervals over seeds and documents, one encoding per panel.",
)
def views(run: Run, table: Table) -> alt.TopLevelMixin | None:
    """Small multiples over the views of a task, where length is not the question."""
    order = [FULL, *table.views]
    if not table.views:
        return None
    frame = pd.DataFrame(
        {"encoding": row.spec, "view": row.view, "value": cell.mean, "low": cell.low, "high": cell.high,
         "freedom": cell.freedom, "colour": encoding_color(row.spec)}
        for row in table.rows
        for cell in row.cells.values()
    )  # fmt: skip
    axis, scale = _value_axis(run.decides, ticks=2), alt.Scale(zero=False, nice=False, padding=6)
    y = alt.Y("view:N", sort=order, axis=alt.Axis(**{**NAME_AXIS, "labelFontSize": 11}))
    base = alt.Chart().encode(color=_color(), y=y)
    rule = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", axis=axis, scale=scale), x2="high:Q")
    dot = base.mark_point(filled=True, size=40, opacity=1).encode(x=alt.X("value:Q", axis=axis, scale=scale))
    header = alt.Header(labelLimit=108)
    facet = alt.Facet("encoding:N", sort=_encodings(table), title=unit_of(run.decides), header=header)
    panels = alt.layer(rule, dot, data=frame).properties(height=ROW_HEIGHT * len(order)).facet(facet, columns=8)
    return panels.properties(usermeta={"label_width": _label_width(order)})


# ---- Curves ----


@chart(
    "training",
    title="Course of the training runs",
    caption="The deciding metric at the training length on a few items, by step, mean over seeds. An encoding that is "
    "still improving at the end may rank differently after longer training.",
)
def training(run: Run, table: Table) -> alt.TopLevelMixin | None:
    """Small multiples of the probes."""
    frame = _curve_points(run, PROBE)
    if frame.empty:
        return None
    axis = alt.Axis(title=None, tickCount=2, format="~s", grid=False)
    x = alt.X("x:Q", axis=axis, scale=alt.Scale(zero=True, nice=False))
    return _multiples(frame, _encodings(table), run.decides, x, "training step")


@chart(
    "curve",
    scope="curve",
    title="By",
    caption="Means over seeds at the longest length where it was measured, one encoding per panel, the others in grey; "
    "dashed, the same weights under a sliding window of the training length.",
)
def curve_chart(run: Run, table: Table, curve: Curve) -> alt.TopLevelMixin | None:
    """Small multiples of what a task measures by something other than length."""
    frame = _curve_points(run, curve.name)
    if frame.empty:
        return None
    wide = frame["x"].max() > LOG_RATIO * frame["x"].min() > 0
    scale = alt.Scale(type="log", base=2, nice=False) if wide else alt.Scale(zero=False, nice=False)
    x = alt.X("x:Q", scale=scale, axis=alt.Axis(title=None, tickCount=3, format="~s", grid=False))
    metric = next(metric for metric in run.metrics if metric.name == curve.of)
    return _multiples(frame, _encodings(table), metric, x, curve.axis)


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


# ---- Several runs, and costs ----


@chart(
    "across",
    scope="runs",
    title="Verdicts at the longest length of each run",
    caption="Encodings that lose least over all runs come first. The numbers are in the runs below.",
)
def across(tables: NamedTables) -> alt.TopLevelMixin | None:
    """Encodings × runs of several lengths, one shape per verdict."""
    lines = [
        {"encoding": row.spec, "run": label, "verdict": row.verdict.kind, "colour": encoding_color(row.spec),
         "score": 1.0 if row.verdict.stable else 0.5 if row.verdict.change else 0.0,
         "value": row.cells[max(row.cells)].mean, "unit": table.metric.unit}
        for label, (_, table) in tables.items()
        for row in table.full_rows
        if len(table.lengths) > 1
    ]  # fmt: skip
    frame = pd.DataFrame(lines)
    if frame.empty or frame["run"].nunique() < 2:
        return None
    scores = frame.groupby("encoding")["score"].sum()
    order = list(scores.sort_values(ascending=False, kind="stable").index)
    kinds = [verdict for verdict in SHAPES if (frame["verdict"] == verdict).any()]
    scale = alt.Scale(domain=kinds, range=[SHAPES[verdict] for verdict in kinds])
    shape = alt.Shape("verdict:N", scale=scale, legend=alt.Legend(title=None, columns=4))
    labels = alt.Axis(orient="top", title=None, labelAngle=-35, labelColor=INK, labelOverlap=False, labelLimit=150)
    marks = alt.Chart(frame).mark_point(filled=True, opacity=1, size=75, aria=True)
    tip = "datum.encoding + ', ' + datum.run + ': ' + datum.verdict"
    encoded = marks.transform_calculate(tip=tip).encode(
        x=alt.X("run:N", sort=list(tables), axis=labels), y=_encoding_axis(order, alt.Axis(**NAME_AXIS)), shape=shape,
        color=_color(), description="tip:N",
    )  # fmt: skip
    properties = {"height": ROW_HEIGHT * len(order), "usermeta": {"label_width": _label_width(order)}}
    matrix: alt.TopLevelMixin = encoded.properties(**properties)
    return matrix


@chart(
    "costs",
    scope="costs",
    title="Cost of each encoding",
    caption="Time relative to the same pass without an encoding, at the longest length measured, with 95 % intervals.",
)
def costs(frame: pd.DataFrame) -> alt.TopLevelMixin | None:
    """Relative times of the measured passes: columns spec, pass, length, relative, low, high."""
    lines = frame.dropna(subset=["relative"]).rename(columns={"spec": "encoding", "relative": "value", "pass": "work"})
    lines = lines[lines["length"] == lines.groupby("work")["length"].transform("max")]
    if lines.empty:
        return None
    lines = lines[["encoding", "work", "length", "value", "low", "high"]]
    order = list(lines.groupby("encoding")["value"].mean().sort_values().index)
    lines = lines.assign(colour=lines["encoding"].map(encoding_color))
    axis, panels = alt.Axis(title=None, format=".2~f", orient="top", tickCount=3, grid=False), list[Any]()
    scale = alt.Scale(zero=False, nice=False, padding=9)
    for work in lines["work"].unique():
        rows = _encoding_axis(order, alt.Axis(**{**NAME_AXIS, "labels": not panels}))
        base = alt.Chart().transform_filter(_equal("work", work)).encode(y=rows, color=_color())
        rule = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q")
        dot = base.mark_point(filled=True, size=50, opacity=1).encode(x=alt.X("value:Q", scale=scale, axis=axis))
        width = {"width": 150} if work.startswith("model") else {}  # panels with a width are dropped on a telephone
        panels.append(alt.layer(rule, dot).properties(title=work, height=ROW_HEIGHT * len(order), **width))
    return alt.hconcat(*panels, data=lines).properties(usermeta={"label_width": _label_width(order)})


# ---- What charts share ----


def _number_format(metric: Metric, *, change: bool = False, digits: int = 2) -> str:
    """A d3 format for numbers of a metric; shares are shown as percent."""
    return ("+" if change else "") + (f".{digits - 2}%" if metric.percent else f".{digits}~f")


def _value_axis(metric: Metric, ticks: int = 4) -> alt.Axis:
    """An axis of a metric; its unit stands above the panels."""
    return alt.Axis(format=_number_format(metric), tickCount=ticks, title=None)


def _color() -> alt.Color:
    """Each encoding in its own color, which is a column of the data."""
    return alt.Color("colour:N", scale=None)


def _encoding_axis(order: Sequence[str], axis: alt.Axis) -> alt.Y:
    """A row for each encoding."""
    return alt.Y("encoding:N", sort=list(order), axis=axis, scale=alt.Scale(domain=list(order)))


def _label_width(order: Sequence[str]) -> float:
    """Pixels that the names take."""
    return LETTER_WIDTH * min(20, max(map(len, order))) + 40


def _encodings(table: Table) -> list[str]:
    """The encodings in the order of the table."""
    return [row.spec for row in table.full_rows]


def _equal(field: str, value: str) -> alt.FieldEqualPredicate:
    """A filter by value; an expression would evaluate quotes in names that come from a file."""
    return alt.FieldEqualPredicate(field=field, equal=value)


def _multiples(
    frame: pd.DataFrame, order: Sequence[str], metric: Metric, x: alt.X, by: str, levels: Sequence[float] = ()
) -> alt.FacetChart:
    """Small multiples: one encoding per panel in its color, dashed under its own window, all others in grey.

    Args:
        frame: columns encoding, view, x, value, and low and high where there is a band.
        order: of the encodings.
        metric: of the values.
        x: the horizontal axis.
        by: what the horizontal axis shows.
        levels: values at dotted lines.
    """
    alone = frame.groupby(["encoding", "view"])["x"].transform("size") == 1
    frame = frame.assign(colour=frame["encoding"].map(encoding_color), alone=alone)
    y = alt.Y("value:Q", scale=alt.Scale(zero=False, nice=False), axis=_value_axis(metric))
    lines = alt.Chart().encode(x=x, y=y, color=_color())
    layers = [
        lines.mark_line(strokeWidth=1.6, strokeDash=[4, 3]).transform_filter(_equal("view", WINDOW)),
        lines.mark_line(strokeWidth=2.2).transform_filter(_equal("view", FULL)),
        lines.mark_point(size=16, filled=True, opacity=1).transform_filter("datum.alone"),
    ]
    if "low" in frame:
        band = alt.Chart().transform_filter(_equal("view", FULL)).mark_area(opacity=0.25)
        layers.insert(0, band.encode(x=x, y="low:Q", y2="high:Q", color=_color()))
    if levels:
        dotted = alt.Chart(pd.DataFrame({"level": levels})).mark_rule(color=INK, strokeDash=[1, 3], strokeWidth=1)
        layers.append(dotted.encode(y="level:Q"))
    title, header = f"{unit_of(metric)}, by {by}", alt.Header(labelLimit=108)
    facet = alt.Facet("encoding:N", sort=list(order), title=title, header=header)
    layered = alt.layer(_grey_lines(frame, x, y), *layers, data=frame).properties(height=66)
    return layered.facet(facet, columns=8)


def _grey_lines(frame: pd.DataFrame, x: alt.X, y: alt.Y) -> alt.Chart:
    """Every encoding's line in grey, as one path with gaps between encodings."""
    parts = [part.sort_values("x")[["x", "value"]] for _, part in frame[frame["view"] == FULL].groupby("encoding")]
    gap = pd.DataFrame({"x": [None], "value": [None]}, dtype="float64")
    joined = pd.concat([piece for part in parts for piece in (part, gap)], ignore_index=True)
    line: alt.Chart = alt.Chart(joined.reset_index()).mark_line(
        color=GREY, strokeWidth=0.8, opacity=0.8, invalid="break-paths-show-path-domains"
    )
    return line.encode(x=x, y=y, order="index:Q")
