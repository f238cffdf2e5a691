"""The two charts of report.html, as data for Plotly. What depends on day or night is added on the page."""

from __future__ import annotations

from typing import Any

from posenc.lab.figures import colours
from posenc.lab.images import words
from posenc.lab.images.figures import GRIDS
from posenc.lab.images.measure import TRAINED
from posenc.lab.images.pictures import PictureFacts
from posenc.lab.images.table import ImageRow

_GREY = "#8a8f94"


def by_constant(rows: list[ImageRow], facts: PictureFacts) -> dict[str, Any]:
    """Accuracy by the constant added to all positions."""
    tests = [TRAINED, *(rows[0].constants if rows else [])]
    return _chart("by-constant", rows, tests, "tokens added to all positions", facts, joined=True)


def by_grid(rows: list[ImageRow], facts: PictureFacts) -> dict[str, Any]:
    """Accuracy by what happens to picture and tokens."""
    return _chart("by-grid", rows, GRIDS, "what the model is shown", facts, joined=False)


def _chart(
    name: str, rows: list[ImageRow], tests: list[str], axis: str, facts: PictureFacts, *, joined: bool
) -> dict[str, Any]:
    colour, guess = colours(rows), 100 / len(facts.classes)
    labels = [words.label(test) for test in tests]
    traces = []
    for row in rows:
        found = [row.accuracy(test) for test in tests]
        traces.append(
            {
                "type": "scatter", "mode": "lines+markers" if joined else "markers", "name": row.spec, "x": labels,
                "y": [None if a is None else 100 * a.mean for a in found],
                "error_y": {
                    "type": "data", "symmetric": False, "thickness": 1.2, "width": 3,
                    "array": [0 if a is None else 100 * (a.high - a.mean) for a in found],
                    "arrayminus": [0 if a is None else 100 * (a.mean - a.low) for a in found],
                },
                "line": {"color": colour[row.spec], "width": 2},
                "marker": {"size": 8, "color": colour[row.spec]},
                "hovertemplate": "%{y:.1f} % recognised, %{x}",
            }
        )  # fmt: skip
    line = {"color": _GREY, "dash": "dot", "width": 1}
    font = {"size": 11, "color": _GREY}
    return {
        "id": name,
        "traces": traces,
        "xaxis": {"title": {"text": axis}, "type": "category"},
        "yaxis": {"title": {"text": "recognised, %"}, "range": [0, 102]},
        "shapes": [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": guess, "y1": guess, "line": line}],
        "annotations": [
            {
                "xref": "paper", "x": 0.5, "y": guess, "text": "guessing", "showarrow": False, "yanchor": "bottom",
                "font": font,
            }
        ],
    }  # fmt: skip
