"""The figures of a comparison of texts: bits by length, by position, and against what a training costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from posenc.lab.record import RunRecord
from posenc.lab.report.bubbles import bubble, front, name_where_there_is_room
from posenc.lab.report.traces import band, curve, mark, meta
from posenc.lab.results import by_machine
from posenc.lab.text.corpus import Facts
from posenc.lab.text.profiles import Settings
from posenc.lab.text.table import Row, thinned

Record = RunRecord[Settings, Facts]
# Who fails by several bits would leave no room for the rest on a linear axis.
BITS_AXIS = {"type": "log", "tickvals": [1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8]}


def by_length(name: str, rows: Sequence[Row], record: Record, colour: Mapping[str, str]) -> dict[str, Any]:
    """Bits per byte by length of text, with bands over seeds and the compressors as lines."""
    settings, facts = record.settings, record.facts
    labels = [f"{k}×<br>{k * settings.train_length:,}" for k in settings.lengths]
    traces = [area for row in rows for area in _bands(row, colour[row.spec], labels)]
    for row in rows:
        seeds = [row.of_seeds(k) for k in range(len(labels))]
        columns = {
            "lowest seed": [min(found) if found else None for found in seeds],
            "highest seed": [max(found) if found else None for found in seeds],
        }
        hover = f"<b>{row.spec}</b>: %{{y:.3f}} bits per byte<extra>{row.verdict}</extra>"
        known = meta(row, columns=columns if row.runs else {})
        traces.append(curve(row, colour[row.spec], labels, row.bits, hovertemplate=hover, meta=known))
    lines = [mark(facts.zlib_bits, "zlib -9"), mark(facts.lzma_bits, "lzma")]
    axis = {"title": {"text": "bits per byte"}}
    views = [{"name": "all", "yaxis": axis}]
    if close := _close(rows):
        views.append({"name": "the best ones, closer", "yaxis": {**axis, "range": close}})
    return {
        "id": name,
        "traces": traces,
        "ends": True,
        "height": 640 if len(rows) > 16 else 520 if len(rows) > 10 else 440,
        "xaxis": {"title": {"text": "bytes of text that the model reads"}, "type": "category"},
        "yaxis": axis,
        "shapes": [shape for shape, _ in lines],
        "annotations": [label for _, label in lines],
        **({"views": views} if len(views) > 1 else {}),
    }


def _bands(row: Row, colour: str, labels: list[str]) -> list[dict[str, Any]]:
    """From the lowest seed to the highest, over the lengths where there are several."""
    found = [row.of_seeds(k) for k in range(len(labels))] if len(row.runs) > 1 else []
    known = [(label, seeds) for label, seeds in zip(labels, found, strict=False) if seeds]
    if not known:
        return []
    x, seeds = [label for label, _ in known], [values for _, values in known]
    return [band(row, colour, x, [min(values) for values in seeds], [max(values) for values in seeds])]


def _close(rows: Sequence[Row]) -> list[float] | None:
    """A range of bits in which those that do not fail can be told apart, where others fail so far that it is needed."""
    every = [bits for row in rows for bits in row.bits if bits is not None]
    good = [bits for row in rows if row.verdict != "fails" for bits in row.bits if bits is not None]
    if not good or max(every) - min(every) < 3 * (max(good) - min(good)):
        return None
    room = 0.06 * (max(good) - min(good)) + 0.005
    return [min(good) - room, max(good) + room]


def by_position(name: str, rows: Sequence[Row], record: Record, colour: Mapping[str, str]) -> dict[str, Any]:
    """Bits per byte by position in the longest text."""
    length, longest = record.settings.train_length, record.settings.longest
    traces = []
    for row in rows:
        points = thinned(row.positions)
        hover = f"<b>{row.spec}</b>: %{{y:.3f}} bits per byte around byte %{{x}}<extra>{row.verdict}</extra>"
        x, y = [round(x) for x, _ in points], [y for _, y in points]
        traces.append(curve(row, colour[row.spec], x, y, markers=False, hovertemplate=hover))
    shape, label = mark(length, " trained length", vertical=True)
    return {
        "id": name,
        "traces": traces,
        "ends": True,
        "height": 640 if len(rows) > 16 else 460,
        "xaxis": {
            "title": {"text": "position in the text, bytes"}, "type": "log",
            "tickvals": [2**n for n in range(3, longest.bit_length())],
        },
        "yaxis": {"title": {"text": "bits per byte"}},
        "shapes": [shape],
        "annotations": [{**label, "x": math.log10(length)}],
    }  # fmt: skip


def against_cost(name: str, rows: Sequence[Row], record: Record, colour: Mapping[str, str]) -> dict[str, Any]:
    """Bits at the longest and at the training length against the speed of training; a bubble is as large as memory."""
    lengths = record.settings.lengths
    order = dict.fromkeys((len(lengths) - 1, 0))
    views = [_cost_view(rows, k, f"at {lengths[k]}×", colour) for k in order]
    return {"id": name, "height": 480, **views[0], "views": views}


def _cost_view(rows: Sequence[Row], k: int, label: str, colour: Mapping[str, str]) -> dict[str, Any]:
    traces, symbols, shapes = [], dict[str, str](), ("circle", "diamond", "square", "cross", "x")
    trained = [row for row in rows if row.bits[k] is not None and not row.control]
    most = max((row.training["peak_memory"] for row in trained), default=1.0)
    for row in trained:
        for machine, took in (by_machine(row.runs) or {"": row.training}).items():
            symbol = symbols.setdefault(machine, shapes[len(symbols) % len(shapes)])
            speed, memory = took["bytes_per_second"] / 1000, took["peak_memory"]
            said = f"%{{y:.3f}} bits per byte, %{{x:.1f}} kB/s, {memory / 1e6:.0f} MB<extra>{machine}</extra>"
            known = meta(row, columns={"peak memory, MB": [round(memory / 1e6)], "machine": [machine]})
            size = 8 + 20 * math.sqrt(memory / most)
            traces.append(bubble(row, colour[row.spec], speed, row.bits[k], size, said, known, symbol=symbol))
    name_where_there_is_room(traces)
    return {
        "name": label,
        "traces": [*front(traces, faster=1), *traces] if len(symbols) == 1 else traces,
        "xaxis": {"title": {"text": "trained, kB/s (faster to the right)"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": f"bits per byte {label}"}, **BITS_AXIS},
    }
