"""The parts of a page about a comparison of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from posenc.lab import words
from posenc.lab.report import frame
from posenc.lab.report.overview import glance
from posenc.lab.report.palette import colours
from posenc.lab.report.ranks import ranks_section
from posenc.lab.report.section import Section
from posenc.lab.report.standings import Standing, standings_of
from posenc.lab.report.training import training_section
from posenc.lab.text.charts import Record, against_cost, by_length, by_position
from posenc.lab.text.table import Row

COST_NOTE = (
    "To the right: trained faster. Down: fewer bits. The larger, the more memory the training took. The dotted line "
    "joins those that nobody beats in both. Speeds are those of the run, with its jobs side by side."
)


def sections(rows: list[Row], record: Record) -> list[Section]:
    """At a glance, ranks, curves, numbers, costs."""
    if not rows:
        return []
    settings, colour = record.settings, colours(rows)
    standings = standings_of(rows, settings.lengths)
    trained = [row for row in rows if not row.control]
    parts = [glance("text", rows, colour, words.MEANINGS), ranks_section("text", rows, standings, colour)]
    length = by_length("text-by-length", rows, record, colour)
    html = frame.chart_div(length["id"]) + frame.note(words.CAUTION)
    parts.append(Section("text-length", "Bits per byte, by length of text", html, [length]))
    position = by_position("text-by-position", rows, record, colour)
    html = frame.chart_div(position["id"])
    parts.append(Section("text-position", "Where it breaks: loss by position in the longest text", html, [position]))
    parts.append(Section("text-numbers", "The numbers", _numbers(rows, record, standings, colour), []))
    cost = against_cost("text-against-cost", trained, record, colour)
    html = frame.chart_div(cost["id"]) + frame.note(COST_NOTE)
    parts.append(Section("text-cost", "Quality and cost", html, [cost]))
    heads, cells = words.TRAINING_HEADS, words.training_cells
    parts.append(training_section("text", trained, colour, heads, cells, settings.clip))
    return [part for part in parts if part.html]


def _numbers(rows: Sequence[Row], record: Record, standings: Sequence[Standing], colour: Mapping[str, str]) -> str:
    lines = []
    for row in rows:
        name, *cells, verdict = words.result_cells(row, standings)
        first = frame.coloured_name(name, colour[row.spec])
        kind = "control" if row.control else ""
        lines.append(frame.table_row([first, *map(frame.numbers, cells), frame.badge(verdict)], kind, row.spec))
    table = frame.table(words.result_heads(record.settings, standings), lines, "text-results")
    notes = (
        f"{words.amount_text(record.settings, record.facts)} {words.compressor_line(record.facts)}",
        f"{words.protocol_text(record.settings)} {words.WINDOW_NOTE}",
    )
    return f'<div class="scroll">{table}</div>{"".join(map(frame.note, notes))}'
