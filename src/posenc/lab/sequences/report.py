"""Writes what a run of a generated task leaves for its readers: table.md, results.jsonl, a PNG picture, report.html."""

from __future__ import annotations

import json
from dataclasses import asdict
from html import escape
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from posenc.lab import frame
from posenc.lab.accuracy import spread
from posenc.lab.curves import Curves
from posenc.lab.figures import colours
from posenc.lab.files import write_atomically
from posenc.lab.markdown import markdown_table, repetition
from posenc.lab.record import RunRecord
from posenc.lab.report import add_column, cost_table
from posenc.lab.sequences import words
from posenc.lab.sequences.data import SequenceFacts
from posenc.lab.sequences.settings import SequenceSettings
from posenc.lab.sequences.table import COLLAPSES, DECLINES, HOLDS, UNDEFINED, UNLEARNT, SequenceRow
from posenc.lab.sequences.words import AnyPuzzle
from posenc.lab.tasks import to_record

Record = RunRecord[SequenceSettings, SequenceFacts]

_TERMINAL_COLOURS = {HOLDS: "green", DECLINES: "yellow", COLLAPSES: "red", UNLEARNT: "dim", UNDEFINED: "dim"}
_PAGE_COLOURS = {
    HOLDS: "#009E73", DECLINES: "#E69F00", COLLAPSES: "#D55E00", UNLEARNT: "#7F7F7F", UNDEFINED: "#7F7F7F"
}  # fmt: skip


def write_report(out: Path, rows: list[SequenceRow], puzzle: AnyPuzzle, record: Record) -> list[Path]:
    """Write all files of a report from whatever rows there are; returns their paths."""
    table, results, page = out / "table.md", out / "results.jsonl", out / "report.html"
    picture = out / "accuracy_by_length.png"
    write_atomically(table, markdown(rows, puzzle, record).encode())
    write_atomically(results, "".join(json.dumps(_line(row, record), allow_nan=False) + "\n" for row in rows).encode())
    by_length(rows, puzzle, record.settings).save(picture)
    write_atomically(page, render_page(rows, puzzle, record).encode())
    return [table, results, picture, page]


def by_length(rows: list[SequenceRow], puzzle: AnyPuzzle, settings: SequenceSettings) -> Curves:
    """The picture: accuracy by length."""
    tokens = dict(zip(names_of(settings), settings.tested, strict=True))
    return Curves(
        rows, list(tokens), label=lambda test: f"{test}, {tokens[test]:,}", title=puzzle.title,
        axis="length, tokens", right="right", guess=puzzle.chance(settings),
    )  # fmt: skip


def names_of(settings: SequenceSettings) -> list[str]:
    """The test lengths, as they stand in tables."""
    return [f"{k}×" for k in settings.lengths]


def markdown(rows: list[SequenceRow], puzzle: AnyPuzzle, record: Record) -> str:
    """table.md."""
    settings = record.settings
    return "\n".join(
        [
            f"# {words.title(puzzle, settings)}\n",
            words.introduction(puzzle) + "\n",
            words.summary(rows, puzzle, settings) + "\n",
            words.CAUTION + "\n",
            *markdown_table(_heads(settings), [words.cells(row) for row in rows]),
            "",
            words.protocol_text(rows, puzzle, settings) + "\n",
            f"Per cent of {words.other_unit(puzzle)} right:\n",
            *markdown_table(_heads(settings)[:-1], [words.other_cells(row) for row in rows]),
            "",
            *markdown_table(words.TRAINING_HEADS, [words.training_cells(row) for row in rows if not row.control]),
            "",
            *repetition(record),
            "",
        ]
    )


def render_page(rows: list[SequenceRow], puzzle: AnyPuzzle, record: Record) -> str:
    """report.html."""
    settings, colour = record.settings, colours(rows)
    lines, others = [], []
    for row in rows:
        _, *numbers, verdict = words.cells(row)
        name, kind = frame.coloured_name(row.spec, colour[row.spec]), "control" if row.control else ""
        lines.append(frame.table_row([name, *numbers, frame.badge(verdict, _PAGE_COLOURS[verdict])], kind))
        others.append(frame.table_row([name, *words.other_cells(row)[1:]], kind))
    costs = [frame.table_row([escape(c) for c in words.training_cells(row)]) for row in rows if not row.control]
    body = f"""{frame.note(words.introduction(puzzle))}
{frame.note(words.CAUTION)}
<h2>Per cent of {escape(words.unit(puzzle))} right, by length</h2>
<div id="by-length" class="chart"></div>
<h2>The numbers</h2>
<div class="scroll">{frame.table(_heads(settings), lines)}</div>
{frame.note(words.protocol_text(rows, puzzle, settings))}
<h2>Per cent of {escape(words.other_unit(puzzle))} right</h2>
<div class="scroll">{frame.table(_heads(settings)[:-1], others)}</div>
<h2>What the training cost</h2>
<div class="scroll">{frame.table(words.TRAINING_HEADS, costs)}</div>"""
    data = {
        "charts": [by_length(rows, puzzle, settings).chart("by-length")],
        "results": [{"spec": row.spec, "accuracy": row.of_seeds, "verdict": row.verdict} for row in rows],
    }
    return frame.document(words.title(puzzle, settings), words.summary(rows, puzzle, settings), body, data, record)


def terminal_table(rows: list[SequenceRow], settings: SequenceSettings) -> Table:
    """The main table for a terminal, 80 columns wide at five lengths: per cent, from the worst seed to the best."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for number, head in enumerate(_heads(settings)):
        add_column(table, head, is_name=number == 0)
    for row in rows:
        found = [spread(row.accuracy(test)) for test in row.of_seeds]
        table.add_row(row.spec, *found, Text(row.verdict, style=_TERMINAL_COLOURS[row.verdict]))
    return table


def training_table(rows: list[SequenceRow]) -> Table:
    """The second table for a terminal."""
    return cost_table("seq./s", [words.training_cells(row) for row in rows if not row.control])


def _heads(settings: SequenceSettings) -> list[str]:
    return ["encoding", *names_of(settings), "verdict"]


def _line(row: SequenceRow, record: Record) -> dict[str, object]:
    """One line of results.jsonl."""
    return {
        "encoding": row.spec,
        "seeds": row.seeds,
        "lengths": list(record.settings.tested),
        "accuracy": {test: None if (a := row.accuracy(test)) is None else a._asdict() for test in row.of_seeds},
        "accuracy_of_seeds": row.of_seeds,
        "other_accuracy_of_seeds": row.others,
        "guessing": row.chance,
        "verdict": row.verdict,
        "training": row.training,
        "settings": to_record(record.settings),
        "corpus": asdict(record.facts),
        "versions": record.versions,
        "machine": record.machine,
        "command": record.command,
    }
