"""What a run of images leaves for its readers: table.md, results.jsonl, two PNG pictures, parts of the page."""

from __future__ import annotations

import json
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from posenc.lab.files import write_atomically
from posenc.lab.images import words
from posenc.lab.images.figures import by_constant, by_grid
from posenc.lab.images.measure import names_of
from posenc.lab.images.pictures import PictureFacts
from posenc.lab.images.settings import ImageSettings
from posenc.lab.images.table import COLLAPSES, LEAKS, UNDEFINED, UNMOVED, ImageRow
from posenc.lab.record import RunRecord
from posenc.lab.report import frame
from posenc.lab.report.accuracy import spread, with_spread
from posenc.lab.report.markdown import markdown_table, repetition
from posenc.lab.report.overview import glance
from posenc.lab.report.palette import colours
from posenc.lab.report.section import Section
from posenc.lab.report.training import training_markdown, training_section
from posenc.lab.results import apart_by_machine, line_of
from posenc.lab.text.report import add_column, cost_table

Record = RunRecord[ImageSettings, PictureFacts]

_TERMINAL_COLOURS = {UNMOVED: "green", LEAKS: "yellow", COLLAPSES: "red", UNDEFINED: "dim"}


def write_report(out: Path, rows: list[ImageRow], record: Record) -> list[Path]:
    """Write table, results and pictures from whatever rows there are; returns their paths."""
    table, results = out / "table.md", out / "results.jsonl"
    write_atomically(table, markdown(rows, record).encode())
    write_atomically(results, "".join(json.dumps(_line(row, record), allow_nan=False) + "\n" for row in rows).encode())
    figures = [out / "accuracy_by_constant.png", out / "accuracy_by_grid.png"]
    for path, curves in zip(figures, (by_constant(rows, record.facts), by_grid(rows, record.facts)), strict=True):
        curves.save(path)
    return [table, results, *figures]


def markdown(rows: list[ImageRow], record: Record) -> str:
    """table.md."""
    settings, facts = record.settings, record.facts
    return "\n".join(
        [
            f"# {words.title(settings)}\n",
            words.summary(rows, settings, facts) + "\n",
            words.CAUTION + "\n",
            *markdown_table(_heads(settings), [_cells(row, settings) for row in rows]),
            "",
            words.protocol_text(settings, facts) + "\n",
            *training_markdown(rows, words.TRAINING_HEADS, words.training_cells),
            "",
            *repetition(record),
            "",
        ]
    )


def sections(rows: list[ImageRow], record: Record) -> list[Section]:
    """The parts of the page: verdicts, two figures, numbers, trainings."""
    if not rows:
        return []
    settings, facts, colour = record.settings, record.facts, colours(rows)
    figures = (by_constant(rows, facts), by_grid(rows, facts))
    constant, grid = figures[0].chart("images-by-constant"), figures[1].chart("images-by-grid")
    lines = []
    for row in rows:
        _, *numbers, verdict = _cells(row, settings)
        name = frame.coloured_name(row.spec, colour[row.spec])
        lines.append(frame.table_row([name, *numbers, frame.badge(verdict)], spec=row.spec))
    table = frame.table(_heads(settings), lines, "images-results")
    caution = frame.note(words.CAUTION)
    numbers_html = f'<div class="scroll">{table}</div>{frame.note(words.protocol_text(settings, facts))}'
    return [
        glance("images", rows, colour, words.MEANINGS),
        Section("images-constant", figures[0].title, frame.chart_div(constant["id"]) + caution, [constant]),
        Section("images-grid", figures[1].title, frame.chart_div(grid["id"]), [grid]),
        Section("images-numbers", "The numbers", numbers_html, []),
        training_section("images", rows, colour, words.TRAINING_HEADS, words.training_cells, settings.clip),
    ]


def terminal_table(rows: list[ImageRow], settings: ImageSettings) -> Table:
    """The main table for a terminal, 80 columns wide: per cent recognised, from the worst seed to the best.

    There is no room for verdicts: they are the colours of the constants.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    for number, head in enumerate(_heads(settings)[:-1]):
        add_column(table, head.replace(", ", "\n"), is_name=number == 0)
    for row in rows:
        style = _TERMINAL_COLOURS[row.verdict]
        found = {test: spread(row.accuracy(test)) for test in names_of(settings)}
        cells = [Text(text, style=style if test in row.constants else "") for test, text in found.items()]
        table.add_row(row.spec, *cells)
    return table


def training_table(rows: list[ImageRow]) -> Table:
    """The second table for a terminal."""
    return cost_table("images/s", [words.training_cells(row) for row in apart_by_machine(rows)[0]])


def _heads(settings: ImageSettings) -> list[str]:
    return ["encoding", *(words.label(test) for test in names_of(settings)), "verdict"]


def _cells(row: ImageRow, settings: ImageSettings) -> list[str]:
    found = [with_spread(row.accuracy(test)) for test in names_of(settings)]
    return [row.spec, *found, row.verdict]


def _line(row: ImageRow, record: Record) -> dict[str, object]:
    """One line of results.jsonl."""
    return {
        "encoding": row.spec,
        "seeds": row.seeds,
        "accuracy": {test: None if (a := row.accuracy(test)) is None else a._asdict() for test in row.of_seeds},
        "accuracy_of_seeds": row.of_seeds,
        "verdict": row.verdict,
        "training": row.training,
        **line_of(record, row.runs),
    }
