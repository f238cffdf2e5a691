"""Ranks as figures: the ranks that each encoding may have, and who is better than whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from posenc.lab.report.standings import LEVEL, Standing, reach
from posenc.lab.report.traces import meta
from posenc.lab.statistics.intervals import paired
from posenc.lab.tasks.task import Row

_LINE = 24  # pixels of a row
_BETTER, _WORSE, _OPEN = 1, -1, 0
_SHADES = ((0.0, "--bad"), (0.33, "--bad"), (0.34, "--none"), (0.66, "--none"), (0.67, "--good"), (1.0, "--good"))


class _Pair(NamedTuple):
    """A cell of the matrix: the row against the column."""

    state: int | None
    said: str
    difference: float | None  # as the report shows it
    p: float


def rank_chart(
    name: str, standings: Sequence[Standing], rows: Sequence[Row], colour: Mapping[str, str]
) -> dict[str, Any]:
    """A bar from the best rank to the worst, for each encoding; a view for each length, the last one first."""
    views = [_rank_view(found, {row.spec: row for row in rows}, colour) for found in reversed(standings)]
    return {"id": name, **views[0], "views": views}


def _rank_view(found: Standing, rows: Mapping[str, Row], colour: Mapping[str, str]) -> dict[str, Any]:
    traces, names, scale = [], [one.name for one in found.ranked], found.scale
    for one in found.ranked:
        mean = round(scale.start + scale.factor * one.interval.mean, 5)
        low, high = (round(end, 5) for end in scale.ends(one.interval, scale.start))
        said = (
            f"<b>{one.name}</b><br>rank {reach(one)} of {len(names)}<br>"
            f"{scale.value(one.interval.mean)}, 95 %: {scale.between(one.interval)}<extra></extra>"
        )
        shade, columns = colour[one.name], {"mean": [mean] * 2, "low": [low] * 2, "high": [high] * 2}
        traces.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": one.name, "x": [one.best, one.worst],
                "y": [one.name] * 2, "line": {"color": shade, "width": 9}, "marker": {"size": 9, "color": shade},
                "hovertemplate": said, "meta": meta(rows[one.name], columns=columns),
            }
        )  # fmt: skip
    ticks = 1 if len(names) < 12 else 4
    return {
        "name": f"at {found.label}",
        "traces": traces,
        "height": 80 + _LINE * len(names),
        "xaxis": {"title": {"text": "rank"}, "range": [0.4, len(names) + 0.6], "dtick": ticks, "tick0": 1},
        "yaxis": {
            "type": "category", "categoryorder": "array", "categoryarray": names[::-1], "showgrid": False, "dtick": 1,
            "range": [-0.7, len(names) - 0.3],
        },
    }  # fmt: skip


def pair_chart(name: str, standings: Sequence[Standing]) -> dict[str, Any]:
    """Who is better than whom: row against column; a view for each length, the last one first."""
    views = [_pair_view(found) for found in reversed(standings)]
    return {"id": name, **views[0], "views": views}


def _pair_view(found: Standing) -> dict[str, Any]:
    names = list(found.tests.names)
    pairs = [[_pair(found, i, j) for j in range(len(names))] for i in range(len(names))]
    columns = {
        f"difference, {found.scale.step}": [[pair.difference for pair in line] for line in pairs],
        "p, adjusted": [[pair.p for pair in line] for line in pairs],
    }
    trace = {
        "type": "heatmap", "name": f"at {found.label}", "x": names, "y": names,
        "z": [[pair.state for pair in line] for line in pairs], "zmin": -1, "zmax": 1,
        "colorscale": [list(shade) for shade in _SHADES], "showscale": False, "xgap": 1, "ygap": 1,
        "text": [[pair.said for pair in line] for line in pairs], "hovertemplate": "%{text}<extra></extra>",
        "meta": {"columns": columns},
    }  # fmt: skip
    axis = {"type": "category", "showgrid": False, "tickfont": {"size": 11}, "dtick": 1}
    return {
        "name": f"at {found.label}",
        "traces": [trace],
        "crowded": len(names) > 12,
        "height": 150 + 21 * len(names),
        "xaxis": {**axis, "tickangle": -60},
        "yaxis": {**axis, "autorange": "reversed"},
    }


def _pair(found: Standing, i: int, j: int) -> _Pair:
    names, p = found.tests.names, round(float(found.tests.matrix[i, j]), 6)
    row, column = names[i], names[j]
    if i == j:
        return _Pair(None, row, None, p)
    difference = paired(found.values[row], found.values[column])
    state, said = _OPEN, f"<b>{row}</b> cannot be told from <b>{column}</b>"
    if p <= LEVEL:
        state = _BETTER if difference.mean < 0 else _WORSE
        said = f"<b>{row}</b> is {'better' if state == _BETTER else 'worse'} than <b>{column}</b>"
    said += f"<br>{found.scale.difference(difference)}<br>p = {p:.2g}"
    return _Pair(state, said, round(found.scale.factor * difference.mean, 5), p)
