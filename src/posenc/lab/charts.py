"""The two charts of report.html, as data for Plotly. What depends on day or night is added on the page."""

from __future__ import annotations

from typing import Any

from posenc.lab.corpus import Facts
from posenc.lab.figures import colours
from posenc.lab.profiles import Settings
from posenc.lab.record import RunRecord
from posenc.lab.table import Row, thinned

_GREY = "#8a8f94"


def by_length(rows: list[Row], record: RunRecord[Settings, Facts]) -> dict[str, Any]:
    """Bits per byte by length of text, with the compressors as lines."""
    settings, facts, colour = record.settings, record.facts, colours(rows)
    labels = [f"{k}× · {k * settings.train_length}" for k in settings.lengths]
    traces = [
        {
            "type": "scatter", "mode": "lines+markers", "name": row.spec, "x": labels, "y": row.bits,
            "line": {"color": colour[row.spec], "dash": "dash" if row.control else "solid", "width": 2.5},
            "marker": {"size": 8, "symbol": "circle-open" if row.control else "circle"},
            "hovertemplate": "%{y:.3f} bits per byte at %{x} bytes",
        }
        for row in rows
    ]  # fmt: skip
    lines = (("zlib -9", facts.zlib_bits), ("lzma", facts.lzma_bits))
    return {
        "id": "by-length",
        "traces": traces,
        "xaxis": {"title": {"text": "text the model reads, bytes"}, "type": "category"},
        "yaxis": {"title": {"text": "bits per byte"}},
        "shapes": [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": y,
                "y1": y,
                "line": {"color": _GREY, "dash": "dot", "width": 1},
            }
            for _, y in lines
        ],
        "annotations": [
            {
                "xref": "paper",
                "x": 0.5,
                "y": y,
                "text": name,
                "showarrow": False,
                "yanchor": "bottom",
                "font": {"size": 11, "color": _GREY},
            }
            for name, y in lines
        ],
    }


def by_position(rows: list[Row], record: RunRecord[Settings, Facts]) -> dict[str, Any]:
    """Bits per byte by position in the longest text."""
    colour, length = colours(rows), record.settings.train_length
    traces = [
        {
            "type": "scatter", "mode": "lines", "name": row.spec,
            "x": [round(x) for x, _ in thinned(row.positions)], "y": [round(y, 4) for _, y in thinned(row.positions)],
            "line": {"color": colour[row.spec], "dash": "dash" if row.control else "solid", "width": 2},
            "hovertemplate": "%{y:.3f} bits per byte around byte %{x}",
        }
        for row in rows
    ]  # fmt: skip
    return {
        "id": "by-position",
        "traces": traces,
        "xaxis": {
            "title": {"text": "position, bytes"},
            "type": "log",
            "tickvals": _powers_of_two(record.settings.longest),
        },
        "yaxis": {"title": {"text": "bits per byte"}},
        "shapes": [
            {
                "type": "line",
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "x0": length,
                "x1": length,
                "line": {"color": _GREY, "dash": "dot", "width": 1.5},
            }
        ],
        "annotations": [],
    }


def _powers_of_two(last: int) -> list[int]:
    """8, 16, … up to ``last``."""
    return [2**n for n in range(3, last.bit_length())]
