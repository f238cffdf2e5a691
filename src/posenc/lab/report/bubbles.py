"""Figures of quality against cost: a bubble for each encoding, and the line of those that nobody beats in both."""

from __future__ import annotations

import math
from typing import Any

from posenc.lab.report.traces import GREY
from posenc.lab.tasks.task import Row

_ROOM = (0.09, 0.04)  # of a figure's width and height, that a name takes


def bubble(
    row: Row,
    colour: str,
    x: float,
    bits: float | None,
    size: float,
    said: str,
    known: dict[str, Any],
    *,
    symbol: str = "circle",
    error_x: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One encoding.

    Args:
        row: of the table.
        colour: of the encoding.
        x: its cost.
        bits: its quality; more bits are worse.
        size: pixels.
        said: what a pointer finds, after the name.
        known: see `posenc.lab.traces.meta`.
        symbol: its form.
        error_x: of the cost, as Plotly has it.
    """
    marker = {"color": colour, "size": round(size, 1), "opacity": 0.75, "symbol": symbol}
    trace: dict[str, Any] = {
        "type": "scatter", "mode": "markers+text", "name": row.spec, "x": [round(x, 4)], "y": [bits],
        "text": [row.spec], "textposition": "top center", "textfont": {"size": 11}, "marker": marker,
        "hovertemplate": f"<b>{row.spec}</b>: {said}", "meta": known,
    }  # fmt: skip
    return {**trace, "error_x": error_x} if error_x else trace


def name_where_there_is_room(traces: list[dict[str, Any]]) -> None:
    """Take away names that would lie on another one; fewer bits go first, and a pointer still finds the rest."""
    taken: list[tuple[float, float]] = []
    costs = [trace["x"][0] for trace in traces] or [0.0]
    bits = [math.log(trace["y"][0]) for trace in traces] or [0.0]
    width, height = max(costs) - min(costs) or 1.0, max(bits) - min(bits) or 1.0
    for trace in sorted(traces, key=lambda trace: float(trace["y"][0])):
        place = trace["x"][0] / width, math.log(trace["y"][0]) / height
        if any(all(abs(a - b) < room for a, b, room in zip(place, other, _ROOM, strict=True)) for other in taken):
            trace["text"] = [""]
        else:
            taken.append(place)
    traces.sort(key=lambda trace: bool(trace["text"][0]))  # so that no bubble hides a name


def front(traces: list[dict[str, Any]], faster: int) -> list[dict[str, Any]]:
    """A line through those that are beaten by nobody in both; ``faster``: the sign of x that is better."""
    points = sorted((trace["x"][0] * -faster, trace["y"][0]) for trace in traces)
    best: list[tuple[float, float]] = []
    for cost, bits in points:
        if not best or bits < best[-1][1]:
            best.append((cost, bits))
    if len(best) < 2:
        return []
    line = {"color": GREY, "width": 1.2, "dash": "dot"}
    return [
        {
            "type": "scatter", "mode": "lines", "name": "beaten by nobody in both", "line": line, "hoverinfo": "skip",
            "x": [cost * -faster for cost, _ in best], "y": [bits for _, bits in best],
        }
    ]  # fmt: skip
