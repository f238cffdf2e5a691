"""What a run of a generated task leaves for its readers: table.md, results.jsonl, a PNG picture, parts of the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from posenc.lab.files import write_atomically
from posenc.lab.record import RunRecord
from posenc.lab.report import frame
from posenc.lab.report.accuracy import spread
from posenc.lab.report.curves import Curves
from posenc.lab.report.markdown import markdown_table, repetition
from posenc.lab.report.overview import glance
from posenc.lab.report.palette import colours
from posenc.lab.report.ranks import ranks_section
from posenc.lab.report.section import Section
from posenc.lab.report.standings import remarks
from posenc.lab.report.training import training_markdown, training_section
from posenc.lab.results import apart_by_machine, line_of
from posenc.lab.sequences import words
from posenc.lab.sequences.data import SequenceFacts
from posenc.lab.sequences.settings import SequenceSettings
from posenc.lab.sequences.table import COLLAPSES, DECLINES, HOLDS, UNDEFINED, UNLEARNT, SequenceRow
from posenc.lab.sequences.words import AnyPuzzle
from posenc.lab.text.report import add_column, cost_table

Record = RunRecord[SequenceSettings, SequenceFacts]

_TERMINAL_COLOURS = {HOLDS: "green", DECLINES: "yellow", COLLAPSES: "red", UNLEARNT: "dim", UNDEFINED: "dim"}


def write_report(out: Path, rows: list[SequenceRow], puzzle: AnyPuzzle, record: Record) -> list[Path]:
    """Write table, results and picture from whatever rows there are; returns their paths."""
    table, results = out / "table.md", out / "results.jsonl"
    picture = out / "accuracy_by_length.png"
    write_atomically(table, markdown(rows, puzzle, record).encode())
    write_atomically(results, "".join(json.dumps(_line(row, record), allow_nan=False) + "\n" for row in rows).encode())
    by_length(rows, puzzle, record.settings).save(picture)
    return [table, results, picture]


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
    settings, ranked = record.settings, words.standings(rows, record.settings)
    return "\n".join(
        [
            f"# {words.title(puzzle, settings)}\n",
            words.introduction(puzzle) + "\n",
            words.summary(rows, puzzle, settings) + "\n",
            words.CAUTION + "\n",
            *markdown_table(words.heads(settings, ranked), [words.cells(row, ranked) for row in rows]),
            "",
            words.protocol_text(rows, puzzle, settings) + "\n",
            *([remarks(ranked[-1]) + "\n"] if ranked else []),
            f"Per cent of {words.other_unit(puzzle)} right:\n",
            *markdown_table(words.heads(settings)[:-1], [words.other_cells(row) for row in rows]),
            "",
            *training_markdown([row for row in rows if not row.control], words.TRAINING_HEADS, words.training_cells),
            "",
            *repetition(record),
            "",
        ]
    )


def sections(rows: list[SequenceRow], puzzle: AnyPuzzle, record: Record) -> list[Section]:
    """The parts of the page: verdicts, ranks, curves, numbers, trainings."""
    if not rows:
        return []
    settings, colour, task = record.settings, colours(rows), record.settings.task
    curves = by_length(rows, puzzle, settings).chart(f"{task}-by-length")
    html = frame.chart_div(curves["id"]) + frame.note(words.CAUTION)
    ranked = words.standings(rows, settings)
    numbers = _table(
        f"{task}-results", rows, words.heads(settings, ranked), partial(words.cells, ranked=ranked), colour
    )
    others = _table(f"{task}-others", rows, words.heads(settings)[:-1], words.other_cells, colour)
    numbers += (
        frame.note(words.protocol_text(rows, puzzle, settings))
        + f"<h3>Per cent of {escape(words.other_unit(puzzle))} right</h3>{others}"
    )
    trained = [row for row in rows if not row.control]
    first = glance(task, rows, colour, words.MEANINGS)
    parts = [
        replace(first, html=frame.paragraph(words.introduction(puzzle)) + first.html),
        ranks_section(task, rows, ranked, colour),
        Section(f"{task}-length", f"Per cent of {words.unit(puzzle)} right, by length", html, [curves]),
        Section(f"{task}-numbers", "The numbers", numbers, []),
        training_section(task, trained, colour, words.TRAINING_HEADS, words.training_cells, settings.clip),
    ]
    return [part for part in parts if part.html]


def _table(
    name: str,
    rows: list[SequenceRow],
    heads: list[str],
    cells: Callable[[SequenceRow], list[str]],
    colour: Mapping[str, str],
) -> str:
    """A table of the page; a verdict in the last column has its badge."""
    lines = []
    for row in rows:
        spec, *rest = cells(row)
        shown = [frame.badge(cell) if cell == row.verdict else escape(cell) for cell in rest]
        kind = "control" if row.control else ""
        lines.append(frame.table_row([frame.coloured_name(spec, colour[spec]), *shown], kind, spec))
    return f'<div class="scroll">{frame.table(heads, lines, name)}</div>'


def terminal_table(rows: list[SequenceRow], settings: SequenceSettings) -> Table:
    """The main table for a terminal, 80 columns wide at five lengths: per cent, from the worst seed to the best."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for number, head in enumerate(words.heads(settings)):
        add_column(table, head, is_name=number == 0)
    for row in rows:
        found = [spread(row.accuracy(test)) for test in row.of_seeds]
        table.add_row(row.spec, *found, Text(row.verdict, style=_TERMINAL_COLOURS[row.verdict]))
    return table


def training_table(rows: list[SequenceRow]) -> Table:
    """The second table for a terminal."""
    trained, _ = apart_by_machine([row for row in rows if not row.control])
    return cost_table("seq./s", [words.training_cells(row) for row in trained])


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
        **line_of(record, row.runs),
    }
