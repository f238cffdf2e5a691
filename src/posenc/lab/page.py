"""report.html of a comparison of texts."""

from __future__ import annotations

from html import escape
from typing import Any

from posenc.lab import words
from posenc.lab.charts import by_length, by_position
from posenc.lab.corpus import Facts
from posenc.lab.figures import colours
from posenc.lab.frame import badge, coloured_name, document, note, table, table_row
from posenc.lab.profiles import Settings
from posenc.lab.record import RunRecord
from posenc.lab.table import Row
from posenc.lab.verdict import DEGRADES, FAILS, FLAT, UNDEFINED, USES_CONTEXT

_VERDICT_COLOURS = {
    FLAT: "#0072B2",
    USES_CONTEXT: "#009E73",
    DEGRADES: "#E69F00",
    FAILS: "#D55E00",
    UNDEFINED: "#7F7F7F",
}


def render_page(rows: list[Row], record: RunRecord[Settings, Facts]) -> str:
    """The whole page."""
    settings, facts = record.settings, record.facts
    data = {
        "charts": [by_length(rows, record), by_position(rows, record)],
        "results": [_data(row) for row in rows],
    }
    body = f"""{note(words.CAUTION)}
<h2>Bits per byte by length of text</h2>
<div id="by-length" class="chart"></div>
<h2>Where it breaks: loss by position in the longest text</h2>
<div id="by-position" class="chart"></div>
<h2>The numbers</h2>
<div class="scroll">{_results_table(rows, settings)}</div>
{note(words.compressor_line(facts))}
{note(words.protocol_text(settings) + " " + words.WINDOW_NOTE)}
<h2>What the training cost</h2>
<div class="scroll">{_training_table(rows)}</div>"""
    return document(words.title(settings), words.summary(rows, settings, facts), body, data, record)


def _data(row: Row) -> dict[str, Any]:
    return {"spec": row.spec, "seeds": row.seeds, "bits": row.bits, "changes": row.changes, "verdict": row.verdict}


def _results_table(rows: list[Row], settings: Settings) -> str:
    colour = colours(rows)
    heads = [
        "encoding",
        *(f"{k}×" for k in settings.lengths),
        f"change at {settings.lengths[-1]}×",
        "perplexity",
        "verdict",
    ]
    lines = []
    for row in rows:
        bits = [words.with_spread(b, s) for b, s in zip(row.bits, row.spread, strict=True)]
        verdict = badge(row.verdict, _VERDICT_COLOURS[row.verdict])
        name = coloured_name(row.spec, colour[row.spec])
        cells = [name, *bits, words.change_text(row.changes[-1]), words.perplexity_text(row), verdict]
        lines.append(table_row(cells, "control" if row.control else ""))
    return table(heads, lines)


def _training_table(rows: list[Row]) -> str:
    return table(
        words.TRAINING_HEADS,
        [table_row([escape(c) for c in words.training_cells(r)]) for r in rows if not r.control],
    )
