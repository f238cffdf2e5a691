"""Pieces of figures that tasks share, as data for Plotly. What depends on day, night and width is added on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posenc.lab.tasks.task import Row

GREY = "#8a8f94"
Value = float | None


def meta(row: Row, *, columns: Mapping[str, Sequence[Any]] | None = None, band: bool = False) -> dict[str, Any]:
    """What ties a trace to its encoding: the page lists it under its verdict, and tones it down when others are picked.

    Args:
        row: of the table.
        columns: what else goes into the downloaded data, a value for each point.
        band: whether it is an area, which is not downloaded.
    """
    control = bool(getattr(row, "control", False))
    found: dict[str, Any] = {"spec": row.spec, "group": row.verdict, "control": control}
    return {**found, **({"columns": dict(columns)} if columns else {}), **({"band": True} if band else {})}


_meta = meta  # `curve` has an argument of that name


def curve(
    row: Row,
    colour: str,
    x: Sequence[Any],
    y: Sequence[Value],
    *,
    markers: bool = True,
    hovertemplate: str | None = None,
    meta: dict[str, Any] | None = None,
    line: dict[str, Any] | None = None,
    opacity: float | None = None,
    error_y: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A line for one encoding; a control is dashed.

    Args:
        row: of the table.
        colour: of the encoding.
        x: places.
        y: values; None where there is none.
        markers: whether each point has one.
        hovertemplate, line, opacity, error_y: as Plotly has them.
        meta: from the function of that name, if it has more than the row.
    """
    known = meta or _meta(row)
    trace: dict[str, Any] = {
        "type": "scatter", "mode": "lines+markers" if markers else "lines", "name": row.spec, "x": list(x),
        "y": [None if value is None else round(value, 5) for value in y],
        "line": line or {
            "color": colour, "dash": "dash" if known["control"] else "solid", "width": 2.2 if markers else 1.8,
        },
        "meta": known,
    }  # fmt: skip
    if markers:
        trace["marker"] = {"size": 7, "color": colour, "symbol": "circle-open" if known["control"] else "circle"}
    more = {"hovertemplate": hovertemplate, "opacity": opacity, "error_y": error_y}
    return {**trace, **{key: value for key, value in more.items() if value is not None}}


def band(row: Row, colour: str, x: Sequence[Any], low: Sequence[float], high: Sequence[float]) -> dict[str, Any]:
    """The area between two lines of one encoding."""
    return {
        "type": "scatter", "name": row.spec, "x": [*x, *reversed(x)], "y": [*high, *reversed(low)], "fill": "toself",
        "fillcolor": f"{colour}30", "line": {"width": 0, "color": colour}, "mode": "lines", "hoverinfo": "skip",
        "meta": meta(row, band=True),
    }  # fmt: skip


def mark(value: Any, name: str, *, vertical: bool = False, dash: str = "dot") -> tuple[dict[str, Any], dict[str, Any]]:
    """A line across a figure at one value, and its name: a shape and an annotation."""
    along, across = ("y", "x") if vertical else ("x", "y")
    shape = {
        "type": "line", f"{along}ref": "paper", f"{along}0": 0, f"{along}1": 1, f"{across}0": value,
        f"{across}1": value, "line": {"color": GREY, "dash": dash, "width": 1.2}, "layer": "below",
    }  # fmt: skip
    label = {
        f"{along}ref": "paper", along: 1 if vertical else 0.01, across: value, "text": name, "showarrow": False,
        "xanchor": "left", "yanchor": "top" if vertical else "bottom", "font": {"size": 11, "color": GREY},
    }  # fmt: skip
    return shape, label
