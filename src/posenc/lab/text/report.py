"""What a run of texts leaves for its readers: table.md, results.jsonl and two PNG curves; tables for a terminal."""

from __future__ import annotations

import json
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from posenc.lab import words
from posenc.lab.files import write_atomically
from posenc.lab.record import RunRecord
from posenc.lab.report.markdown import markdown_table, repetition
from posenc.lab.report.standings import remarks, standings_of
from posenc.lab.report.summary import summary
from posenc.lab.report.training import training_markdown
from posenc.lab.results import apart_by_machine, line_of
from posenc.lab.text.corpus import Facts
from posenc.lab.text.figures import draw_figures
from posenc.lab.text.profiles import Settings
from posenc.lab.text.table import Row
from posenc.lab.text.verdict import DEGRADES, FAILS, FLAT, UNDEFINED, USES_CONTEXT

_TERMINAL_COLOURS = {FLAT: "cyan", USES_CONTEXT: "green", DEGRADES: "yellow", FAILS: "red", UNDEFINED: "dim"}


def write_report(out: Path, rows: list[Row], record: RunRecord[Settings, Facts]) -> list[Path]:
    """Write table, results and figures from whatever rows there are; returns their paths."""
    table, results = out / "table.md", out / "results.jsonl"
    write_atomically(table, markdown(rows, record).encode())
    write_atomically(results, "".join(json.dumps(line(row, record), allow_nan=False) + "\n" for row in rows).encode())
    return [table, results, *draw_figures(out, rows, record.settings, record.facts)]


def markdown(rows: list[Row], record: RunRecord[Settings, Facts]) -> str:
    """table.md."""
    settings, facts, standings = record.settings, record.facts, standings_of(rows, record.settings.lengths)
    trained, heads = [row for row in rows if not row.control], words.result_heads(settings, standings)
    return "\n".join(
        [
            f"# {words.title(settings)}\n",
            summary(rows, settings, facts) + "\n",
            words.CAUTION + "\n",
            *markdown_table(heads, [words.result_cells(row, standings) for row in rows]),
            "",
            f"{words.amount_text(settings, facts)} {words.compressor_line(facts)}\n",
            words.protocol_text(settings) + " " + words.WINDOW_NOTE + "\n",
            *([remarks(standings[-1]) + "\n"] if standings else []),
            *training_markdown(trained, words.TRAINING_HEADS, words.training_cells),
            "",
            *repetition(record),
            "",
        ]
    )


def terminal_table(rows: list[Row], lengths: tuple[int, ...]) -> Table:
    """The main table for a terminal, 80 columns wide at five lengths; also shown live while jobs run."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    heads = ["encoding", *(f"{k}×" for k in lengths), f"{lengths[-1]}× − 1×", "verdict"]
    for number, head in enumerate(heads):
        add_column(table, head, is_name=number == 0)
    for row in rows:
        bits = [words.number(value) for value in row.bits]
        verdict = Text(row.verdict, style=_TERMINAL_COLOURS[row.verdict])
        table.add_row(row.spec, *bits, words.change_text(row.changes[-1]), verdict)
    return table


def training_table(rows: list[Row]) -> Table:
    """The second table for a terminal."""
    trained, _ = apart_by_machine([row for row in rows if not row.control])
    return cost_table("kB/s", [words.training_cells(row) for row in trained])


def cost_table(speed: str, lines: list[list[str]]) -> Table:
    """The second table for a terminal, in any task; ``lines`` come from `words.cost_cells`."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, head in enumerate(["encoding", "parameters", "own", speed, "gradient", "p95", "clipped", "MB"]):
        add_column(table, head, is_name=number == 0)
    for spec, total, own, rate, _, median, p95, _, clipped, memory in lines:
        table.add_row(spec, total, own, rate, median, p95, clipped, memory)
    return table


def add_column(table: Table, head: str, *, is_name: bool) -> None:
    """Where the terminal is too narrow, long names are broken before a number loses a digit."""
    if is_name:
        table.add_column(head, overflow="fold")
    else:
        table.add_column(head, justify="right", no_wrap=True)


def line(row: Row, record: RunRecord[Settings, Facts]) -> dict[str, object]:
    """One line of results.jsonl."""
    return {
        "encoding": row.spec,
        "seeds": row.seeds,
        "lengths": [k * record.settings.train_length for k in record.settings.lengths],
        "bits_per_byte": row.bits,
        "seed_deviation": row.spread,
        "change": [None if change is None else change.mean for change in row.changes],
        "change_error": [None if change is None else change.error for change in row.changes],
        "verdict": row.verdict,
        "loss_by_position": row.positions,
        "training": row.training,
        **line_of(record, row.runs),
    }
