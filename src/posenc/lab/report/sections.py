"""The parts of a page about a comparison of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from posenc.lab import words
from posenc.lab.report import frame
from posenc.lab.report.overview import glance
from posenc.lab.report.palette import colours
from posenc.lab.report.rank_charts import pair_chart, rank_chart
from posenc.lab.report.section import Section
from posenc.lab.report.standings import Standing, leading, remarks, standings_of
from posenc.lab.report.training import training_section
from posenc.lab.text.charts import Record, against_cost, by_length, by_position
from posenc.lab.text.table import Row

COST_NOTE = (
    "To the right: trained faster. Down: fewer bits. The larger, the more memory the training took. The dotted line "
    "joins those that nobody beats in both. Speeds are those of the run, with its jobs side by side."
)
RANKS_NOTE = (
    "A bar reaches from the best rank that an encoding may have to the worst; where bars overlap, the order is open."
)
PAIRS_NOTE = "Green: the encoding of the line is better than that of the column, beyond chance. Red: worse. Grey: open."


def sections(rows: list[Row], record: Record) -> list[Section]:
    """At a glance, ranks, curves, numbers, costs."""
    if not rows:
        return []
    settings, colour = record.settings, colours(rows)
    standings = standings_of(rows, settings)
    trained = [row for row in rows if not row.control]
    parts = [glance("text", rows, colour, words.MEANINGS), _ranks(rows, standings, colour)]
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


def _ranks(rows: Sequence[Row], standings: Sequence[Standing], colour: Mapping[str, str]) -> Section:
    """Ranks, who is better than whom; empty where nothing can be ranked."""
    if not standings:
        return Section("text-ranks", "Ranks", "", [])
    ranks, pairs = rank_chart("text-ranking", standings, rows, colour), pair_chart("text-pairs", standings)
    html = (
        frame.paragraph(" ".join(leading(found) for found in standings))
        + frame.chart_div(ranks["id"])
        + frame.note(RANKS_NOTE)
        + "<h3>Who is better than whom</h3>"
        + frame.chart_div(pairs["id"])
        + frame.note(f"{PAIRS_NOTE} {remarks(standings[-1])}")
    )
    return Section("text-ranks", "Ranks", html, [ranks, pairs])


def _numbers(rows: Sequence[Row], record: Record, standings: Sequence[Standing], colour: Mapping[str, str]) -> str:
    lines = []
    for row in rows:
        name, *cells, verdict = words.result_cells(row, standings)
        first = frame.coloured_name(name, colour[row.spec])
        kind = "control" if row.control else ""
        lines.append(frame.table_row([first, *map(frame.numbers, cells), frame.badge(verdict)], kind, row.spec))
    table = frame.table(words.result_heads(record.settings, standings), lines, "text-results")
    notes = (
        words.compressor_line(record.facts),
        f"{words.protocol_text(record.settings)} {words.WINDOW_NOTE}",
    )
    return f'<div class="scroll">{table}</div>{"".join(map(frame.note, notes))}'
