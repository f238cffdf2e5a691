"""The part of a page about what encodings cost: time and memory by length, and quality against time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from posenc.lab.cost import Costs
from posenc.lab.cost.results import BASE, LAYER_PASSES
from posenc.lab.cost.tables import NOTES, missing, overview
from posenc.lab.report import frame
from posenc.lab.report.bubbles import bubble, front, name_where_there_is_room
from posenc.lab.report.palette import colours
from posenc.lab.report.section import Section
from posenc.lab.report.traces import curve, mark, meta
from posenc.lab.tasks.task import Row
from posenc.lab.text.charts import BITS_AXIS

QUALITY_NOTE = (
    f"Time of a training step of the whole model over that of {BASE} in the same round. The larger a bubble, the more "
    "memory. The dotted line joins those that nobody beats in both."
)
MACHINES_NOTE = "Each measuring has its own figures: times of different machines or conditions do not mix."
_DOUBLED = [2.0**n for n in range(-8, 18)]  # ticks


@dataclass(frozen=True)
class _Named:
    """An encoding without a verdict."""

    spec: str
    verdict: str = "measured"


def cost_sections(costs: Sequence[Costs], rows: Sequence[Any]) -> list[Section]:
    """A section for each measuring; ``rows`` are those of a comparison of texts, if there is one."""
    found = []
    for number, measured in enumerate(costs):
        known = {row.spec: row for row in rows}
        named: list[Row] = [known.get(spec, _Named(spec)) for spec in measured.encodings]
        several = f", {number + 1} of {len(costs)}" if len(costs) > 1 else ""
        name = "cost" + (f"-{number + 1}" if number else "")
        found.append(_section(name, f"What encodings cost{several}", measured, named, len(costs) > 1))
    return found


def _section(name: str, title: str, costs: Costs, rows: Sequence[Row], several: bool) -> Section:
    colour = colours(rows)
    time, memory = _time(f"{name}-time", costs, rows, colour), _memory(f"{name}-memory", costs, rows, colour)
    charts, table = [time, memory], overview(costs)
    html = frame.note(MACHINES_NOTE) if several else ""
    html += frame.note(", ".join(f"{key} {value}" for key, value in costs.machine.items()))
    quality = _quality(f"{name}-quality", costs, rows, colour)
    if quality["traces"]:
        charts.insert(0, quality)
        html += f"<h3>Quality against time</h3>{frame.chart_div(quality['id'])}{frame.note(QUALITY_NOTE)}"
    html += f"<h3>Time of one layer, over that of {BASE}</h3>{frame.chart_div(time['id'])}"
    html += f"<h3>Memory of one layer</h3>{frame.chart_div(memory['id'])}"
    lines = [
        frame.table_row([frame.coloured_name(cells[0], colour[cells[0]]), *map(escape, cells[1:])], spec=cells[0])
        for cells in table.lines
    ]
    numbers = frame.table(table.heads, lines, f"{name}-table")
    html += f'<h3>{escape(table.title)}</h3><div class="scroll">{numbers}</div>'
    html += "".join(map(frame.note, NOTES))
    if gaps := missing(costs):
        listed = "".join(f"<li>{escape(line)}</li>" for line in gaps)
        html += f"<details><summary>{len(gaps)} not measured</summary><ul>{listed}</ul></details>"
    return Section(name, title, html, charts)


def _time(name: str, costs: Costs, rows: Sequence[Row], colour: Mapping[str, str]) -> dict[str, Any]:
    """Time by length, a view for each pass."""
    shape, label = mark(1, BASE)
    views = []
    for work, words in LAYER_PASSES.items():
        traces = []
        for row in rows:
            cells = [costs.cell(row.spec, work, length) for length in costs.conditions.lengths]
            columns: dict[str, list[Any]] = {
                "low": [cell.low for cell in cells],
                "high": [cell.high for cell in cells],
                "milliseconds": [cell.milliseconds for cell in cells],
                "path": [cell.path for cell in cells],
            }
            hover = f"<b>{row.spec}</b>: %{{y:.2f}} × {BASE}<extra></extra>"
            known = meta(row, columns=columns)
            ratios = [cell.relative for cell in cells]
            traces.append(curve(row, colour[row.spec], _labels(costs), ratios, hovertemplate=hover, meta=known))
        views.append({"name": words, "traces": traces})
    axis = {"title": {"text": f"time, × {BASE}"}, "type": "log", "tickvals": _DOUBLED}
    marks = {"shapes": [shape], "annotations": [{**label, "y": 0}]}  # of a logarithmic axis: 10^0
    return {**_by_length(name, axis), **views[1], "views": [views[1], views[0], views[2]], **marks}


def _memory(name: str, costs: Costs, rows: Sequence[Row], colour: Mapping[str, str]) -> dict[str, Any]:
    """Memory by length, a view for each pass."""
    views = []
    for work, words in LAYER_PASSES.items():
        traces = []
        for row in rows:
            cells = [costs.cell(row.spec, work, length) for length in costs.conditions.lengths]
            sizes = [None if cell.memory is None else cell.memory / 2**20 for cell in cells]
            hover = f"<b>{row.spec}</b>: %{{y:.3g}} MiB<extra></extra>"
            traces.append(curve(row, colour[row.spec], _labels(costs), sizes, hovertemplate=hover))
        views.append({"name": words, "traces": traces})
    axis = {"title": {"text": "MiB beyond inputs and parameters"}, "type": "log", "tickvals": _DOUBLED}
    return {**_by_length(name, axis), **views[1], "views": [views[1], views[0], views[2]]}


def _quality(name: str, costs: Costs, rows: Sequence[Any], colour: Mapping[str, str]) -> dict[str, Any]:
    """Bits at the longest length against the time of a training step."""
    c, traces = costs.conditions, []
    known = [row for row in rows if getattr(row, "bits", None) and row.bits[-1] is not None]
    cells = {row.spec: costs.cell(row.spec, "model", c.train_length) for row in known}
    most = max((cell.memory or 1 for cell in cells.values()), default=1)
    for row in known:
        cell = cells[row.spec]
        if cell.relative is None:
            continue
        size, time = 8 + 20 * math.sqrt((cell.memory or 0) / most), cell.relative
        spread = {
            "type": "data", "symmetric": False, "array": [(cell.high or time) - time],
            "arrayminus": [time - (cell.low or time)], "thickness": 1, "width": 0, "color": colour[row.spec],
        }  # fmt: skip
        said = f"%{{y:.3f}} bits per byte, %{{x:.2f}} × {BASE}<extra></extra>"
        columns = meta(row, columns={"memory, bytes": [cell.memory]})
        traces.append(bubble(row, colour[row.spec], time, row.bits[-1], size, said, columns, error_x=spread))
    name_where_there_is_room(traces)
    traces = [*front(traces, faster=-1), *traces]
    return {
        "id": name, "traces": traces, "height": 480,
        "xaxis": {"title": {"text": f"time of a training step, × {BASE} (faster to the left)"}},
        "yaxis": {"title": {"text": "bits per byte at the longest length"}, **BITS_AXIS},
    }  # fmt: skip


def _by_length(name: str, axis: dict[str, Any]) -> dict[str, Any]:
    lengths = {"title": {"text": "tokens"}, "type": "category"}
    return {"id": name, "ends": True, "height": 440, "xaxis": lengths, "yaxis": axis}


def _labels(costs: Costs) -> list[str]:
    return [f"{length:,}" for length in costs.conditions.lengths]
