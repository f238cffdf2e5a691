"""Writes what a run of extensions leaves for its readers: table.md, results.jsonl, a PNG picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from posenc.lab.extension import words
from posenc.lab.extension.figures import draw_figure
from posenc.lab.extension.settings import ExtensionSettings
from posenc.lab.extension.table import KINDS, UNCOMPARED, ExtensionRow
from posenc.lab.files import write_atomically
from posenc.lab.record import RunRecord
from posenc.lab.report.markdown import markdown_table, repetition
from posenc.lab.report.standings import remarks
from posenc.lab.report.training import training_markdown
from posenc.lab.results import line_of
from posenc.lab.text.corpus import Facts
from posenc.lab.text.report import add_column
from posenc.lab.text.verdict import DEGRADES, FAILS, FLAT, USES_CONTEXT
from posenc.lab.words import TRAINING_HEADS, number

Record = RunRecord[ExtensionSettings, Facts]

_TERMINAL_COLOURS = {FLAT: "cyan", USES_CONTEXT: "green", DEGRADES: "yellow", FAILS: "red", UNCOMPARED: "dim"}


def write_report(out: Path, rows: list[ExtensionRow], record: Record) -> list[Path]:
    """Write all files but the page from whatever rows there are; returns their paths."""
    table, results = out / "table.md", out / "results.jsonl"
    write_atomically(table, markdown(rows, record).encode())
    lines = [json.dumps(line(row, record), allow_nan=False) + "\n" for row in rows]
    write_atomically(results, "".join(lines).encode())
    figure = draw_figure(out / "bits_by_length.png", rows, record.settings)
    return [table, results, figure]


def markdown(rows: list[ExtensionRow], record: Record) -> str:
    """table.md."""
    settings, parts, ranked = record.settings, [], words.standings(rows, record.settings)
    for kind in KINDS:
        members = [row for row in rows if row.kind == kind]
        if members:
            parts += [
                f"## {kind.capitalize()}\n",
                *markdown_table(words.heads(settings, ranked), [words.cells(row, ranked) for row in members]),
                "",
            ]
    return "\n".join(
        [
            f"# {words.title(settings)}\n",
            words.summary(rows, settings) + "\n",
            words.CAUTION + "\n",
            *parts,
            words.protocol_text(settings) + "\n",
            words.window_note(settings) + "\n",
            *(remarks(found) + "\n" for found in ranked),
            "## What the trainings cost\n",
            *training_markdown([row for row in rows if row.own_training], TRAINING_HEADS, words.training_cells),
            "",
            *repetition(record),
            "",
        ]
    )


def terminal_table(rows: list[ExtensionRow], settings: ExtensionSettings) -> Table:
    """The main table for a terminal; also shown live while jobs run."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    judged = f"− window, {settings.fine_tune_length}×"
    for place, head in enumerate(["", *(f"{k}×" for k in settings.lengths), judged, "holds to"]):
        add_column(table, head, is_name=place == 0)
    for row in rows:
        style = _TERMINAL_COLOURS[row.verdict]
        against = Text(words.against_text(row.at_judged), style=style)
        table.add_row(row.spec, *(number(bits, 2) for bits in row.bits), against, words.holds_text(row))
    return table


def line(row: ExtensionRow, record: Record) -> dict[str, Any]:
    """One line of results.jsonl."""
    return {
        "encoding": row.spec,
        "kind": row.kind,
        "seeds": row.seeds,
        "lengths": [k * record.settings.train_length for k in row.lengths],
        "bits_per_byte": row.bits,
        "seed_deviation": row.spread,
        "window": row.window,
        "against_window": [None if interval is None else interval.mean for interval in row.against],
        "against_window_error": [None if interval is None else interval.error for interval in row.against],
        "holds_to": row.holds_to,
        "verdict": row.verdict,
        "training": row.training,
        **line_of(record, row.runs),
    }
