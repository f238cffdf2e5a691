"""A chart of a run: a function of a run and its table, registered by `chart` under the name of its files.

What the charts have in common is here: the axis of a metric, and small multiples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from posenc.lab.metrics import Metric
from posenc.lab.records import FULL, WINDOW
from posenc.lab.report.palette import INK, OTHERS, colour
from posenc.lab.report.rows import Table
from posenc.lab.runs import Run

STEP = 17  # pixels from row to row
LETTER = 7  # pixels of a name's letter, about
NAMES: dict[str, Any] = {  # of an axis with a row for each encoding
    "title": None, "labelColor": INK, "labelFontSize": 12, "labelLimit": 140, "labelOverlap": False, "ticks": False,
    "domain": False, "grid": True,
}  # fmt: skip
Draw = Callable[[Run, Table], "alt.TopLevelMixin | None"]


class Known(NamedTuple):
    """A chart that every report has, if its run has what it shows."""

    title: str
    caption: str
    draw: Draw


CHARTS: dict[str, Known] = {}


def chart(name: str, *, title: str, caption: str) -> Callable[[Draw], Draw]:
    """Register a chart for all reports.

    Args:
        name: of its files; letters, digits and ``-``.
        title: over it.
        caption: what is seen, a sentence or two.
    """

    def register(draw: Draw) -> Draw:
        CHARTS[name] = Known(title, caption, draw)
        return draw

    return register


def number_format(metric: Metric, *, change: bool = False, digits: int = 2) -> str:
    """How numbers of a metric are written, in d3's words; shares are shown as percent."""
    return ("+" if change else "") + (f".{digits - 2}%" if metric.percent else f".{digits}~f")


def value_axis(metric: Metric, ticks: int = 4) -> alt.Axis:
    """An axis of a metric; its unit stands over the panels."""
    return alt.Axis(format=number_format(metric), tickCount=ticks, title=None)


def unit_of(metric: Metric) -> str:
    """What stands over the panels."""
    return f"% {metric.unit}" if metric.percent else metric.unit


def coloured() -> alt.Color:
    """Each encoding in its colour, which is a column of the data."""
    return alt.Color("colour:N", scale=None)


def rows_axis(order: Sequence[str], axis: alt.Axis) -> alt.Y:
    """A row for each encoding."""
    return alt.Y("encoding:N", sort=list(order), axis=axis, scale=alt.Scale(domain=list(order)))


def beside(order: Sequence[str]) -> float:
    """Pixels that the names take."""
    return LETTER * min(20, max(map(len, order))) + 40


def order_of(table: Table) -> list[str]:
    """The encodings, in the order of the table."""
    return list(dict.fromkeys(row.spec for row in table.rows if row.view == FULL))


def multiples(frame: pd.DataFrame, order: Sequence[str], metric: Metric, x: alt.X, by: str) -> alt.FacetChart:
    """Small multiples: one encoding each in its colour, dashed under its own window, all the others grey.

    Args:
        frame: columns encoding, view, x, value, and low and high where there is a band.
        order: of the encodings.
        metric: of the values.
        x: the horizontal axis.
        by: what it shows, in words.
    """
    alone = frame.groupby(["encoding", "view"])["x"].transform("size") == 1
    frame = frame.assign(colour=frame["encoding"].map(colour), alone=alone)
    y = alt.Y("value:Q", scale=alt.Scale(zero=False, nice=False), axis=value_axis(metric))
    lines = alt.Chart().encode(x=x, y=y, color=coloured())
    window = lines.mark_line(strokeWidth=1.6, strokeDash=[4, 3])
    own = [
        window.transform_filter(f"datum.view == '{WINDOW}'"),
        lines.mark_line(strokeWidth=2.2).transform_filter(f"datum.view == '{FULL}'"),
        lines.mark_point(size=16, filled=True, opacity=1).transform_filter("datum.alone"),
    ]
    if "low" in frame:
        band = alt.Chart().transform_filter(f"datum.view == '{FULL}'").mark_area(opacity=0.25)
        own.insert(0, band.encode(x=x, y="low:Q", y2="high:Q", color=coloured()))
    title, header = f"{unit_of(metric)}, by {by}", alt.Header(labelLimit=108)
    facet = alt.Facet("encoding:N", sort=list(order), title=title, header=header)
    layered = alt.layer(_others(frame, x, y), *own, data=frame).properties(height=66)
    return layered.facet(facet, columns=8)


def _others(frame: pd.DataFrame, x: alt.X, y: alt.Y) -> alt.Chart:
    """Every encoding's line in grey, as one path that is interrupted between them."""
    parts = [part.sort_values("x")[["x", "value"]] for _, part in frame[frame["view"] == FULL].groupby("encoding")]
    gap = pd.DataFrame({"x": [None], "value": [None]}, dtype="float64")
    joined = pd.concat([piece for part in parts for piece in (part, gap)], ignore_index=True)
    line: alt.Chart = alt.Chart(joined.reset_index()).mark_line(
        color=OTHERS, strokeWidth=0.8, opacity=0.8, invalid="break-paths-show-path-domains"
    )
    return line.encode(x=x, y=y, order="index:Q")
