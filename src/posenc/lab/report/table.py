"""The rows of a run as tables: Markdown, a terminal's, CSV; and its numbers in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd
from rich import box
from rich.table import Table as TerminalTable
from rich.text import Text

from posenc.lab.records import FULL, WINDOW
from posenc.lab.report.further import further
from posenc.lab.report.rows import OWN_WINDOW, Cell, Row, Table
from posenc.lab.report.said_numbers import caution_words, number, with_error
from posenc.lab.runs import Run

STYLES = {"gains": "green", "holds": "green", "undecided": "cyan", "declines": "yellow", "fails": "red"}
NOTE = (
    "± is half of the 95 % interval over seeds and documents, ν the degrees of freedom of its Student's t. "
    "Changes are paired. The verdict is on the change from 1× to the longest length, or to another view, of the seeds "
    "that learnt the task: holds, within ± {margin} of none; gains and declines, beyond that; fails, beyond {fails}; "
    "undecided, where none of these could be shown."
)
WINDOWED = " Own window: the same weights that see the last {window} tokens alone."
ENDED = "No number: a row that ends before the longest length, or was not measured there yet."
TRAINING = {  # what a training leaves, by its name in the records: heading, and format
    "parameters": ("parameters", ",.0f"), "encoding_parameters": ("of the encoding", ",.0f"),
    "seconds": ("seconds", ",.0f"), "train_loss": ("loss at the end", ".3f"),
    "grad_norm_median": ("gradient norm, median", ".2f"), "grad_norm_max": ("largest after a tenth", ".2f"),
    "clipped_share": ("share clipped", ".0%"), "peak_memory": ("peak memory, bytes", ".3g"),
}  # fmt: skip


def main_table(run: Run, table: Table) -> tuple[list[str], list[list[str]]]:
    """Headings and lines, one an encoding: every length, change, own window and the baselines; or every view."""
    metric, times, views = table.metric, [f"{k}×" for k in run.times], table.views
    labels = {label for row in table.rows for label in row.against}
    baselines = sorted(labels, key=lambda label: (label != OWN_WINDOW, label))
    several, found = len(times) > 1, []
    for row in (row for row in table.rows if row.view == FULL):
        steps = "–" if row.criterion is None else f"{row.criterion:,.0f}"
        cells = [row.spec, *([] if run.given else [f"{row.share.count} of {row.share.seeds}", steps])]
        cells += [with_error(row.cells.get(length), metric) for length in table.lengths]
        if several:
            cells += [_change(row, table), row.verdict, _last(table.row(row.spec, WINDOW), table)]
            cells += [with_error(row.against.get(label), metric, change=True) for label in baselines]
        else:
            shown = [table.row(row.spec, view) for view in views]
            cells += ["–" if one is None else f"{_last(one, table)} {one.verdict}" for one in shown]
        found.append(cells)
    more = [f"{times[-1]} − 1×", "verdict", f"own window, {times[-1]}", *(f"− {label}" for label in baselines)]
    return [
        "encoding",
        *([] if run.given else ["learnt", "after steps"]),
        *(times if several else ["as trained"]),
        *(more if several else views),
    ], found


def training_table(table: Table) -> tuple[list[str], list[list[str]]]:
    """What the trainings took, means over seeds: headings and lines."""
    rows = [row for row in table.rows if row.view == FULL]
    there = [name for name in TRAINING if any(name in row.training for row in rows)]
    cells = [
        [row.spec, *(f"{row.training[name]:{TRAINING[name][1]}}" if name in row.training else "–" for name in there)]
        for row in rows
    ]
    return ["encoding", *(TRAINING[name][0] for name in there)], cells


def markdown(run: Run, table: Table, said: Sequence[str]) -> str:
    """table.md: what is said, the tables, and how to repeat it."""
    unit = f"% {table.metric.unit}" if table.metric.percent else table.metric.unit
    facts = [f"{name}: {'; '.join(f'{k} {v}' for k, v in found.items())}  " for name, found in facts_of(run).items()]
    parts = [
        f"# {run.words.title}", *said, f"In {unit}.", _markdown(*main_table(run, table)), note(table),
        *(f"## {one.title}\n\n{_markdown(one.heads, one.lines)}" for one in further(run, table)),
        _markdown(*training_table(table)), f"Command:\n\n```\n{run.command}\n```", *run.remarks, "\n".join(facts),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def facts_of(run: Run) -> dict[str, dict[str, str]]:
    """What is needed to repeat a run, beside its command."""
    found = {
        "Numbers": run.shown, "Data": run.facts, "Hashes of the data": run.data, "Tuned rates": run.rates,
        "Versions": run.versions, "Machine": run.machine,
    }  # fmt: skip
    return {name: facts for name, facts in found.items() if facts}


def note(table: Table) -> str:
    """How to read the table, and what is missing in it."""
    metric = table.metric
    fails = number(metric.fails, metric) if math.isfinite(metric.fails) else "chance level"
    said = NOTE.format(margin=number(metric.margin, metric), fails=fails)
    if any(row.view == WINDOW for row in table.rows):
        said += WINDOWED.format(window=f"{table.trained:,}")
    cautions = dict[str, list[str]]()
    for row in table.rows:
        if row.view == FULL and row.caution:
            cautions.setdefault(row.caution, []).append(row.spec)
    every = sum(row.view == FULL for row in table.rows)
    told = [text if len(specs) == every else f"{', '.join(specs)}: {text}" for text, specs in cautions.items()]
    ended = [ENDED] if any(row.verdict == "no number" for row in table.rows) else []
    return " ".join([said, *ended, *table.remarks, *told])


def terminal_table(run: Run, table: Table) -> TerminalTable:
    """The ends of the main table for a terminal of 80 columns; also shown while jobs run."""
    shown = TerminalTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    k, first, last = table.times, table.trained, table.lengths[-1]
    several = last > first
    shown.add_column("encoding", overflow="fold")  # where it is narrow, a name is broken before a number
    for head in ("1×", f"{k}×", "own window", f"{k}× − 1×", "verdict") if several else ("as trained", *table.views):
        shown.add_column(head, justify="right", no_wrap=several)
    for row in (row for row in table.rows if row.view == FULL):
        window, others = table.row(row.spec, WINDOW), [table.row(row.spec, view) for view in table.views]
        ends = [row.cells.get(last), window.cells.get(last) if window else None]
        under = [one.cells[max(one.cells)] if one else None for one in others]
        means = [_mean(cell, table) for cell in (row.cells.get(first), *(ends if several else under))]
        verdict = Text(row.verdict, style=STYLES.get(row.verdict, "dim"))
        rest: list[str | Text] = [_change(row, table), verdict] if several else []
        shown.add_row(row.spec, *means, *rest)
    return shown


def _mean(cell: Cell | None, table: Table) -> str:
    return "–" if cell is None else number(cell.mean, table.metric)


def _change(row: Row, table: Table) -> str:
    return with_error(row.change, table.metric, change=True)


def cells_frame(table: Table) -> pd.DataFrame:
    """Every cell: a line for each encoding, view and length."""
    return pd.DataFrame(
        {"encoding": row.spec, "view": row.view, **asdict(cell), "learnt": row.learnt, "verdict": row.verdict}
        for row in table.rows
        for cell in row.cells.values()
    )  # fmt: skip


def contrasts_frame(table: Table) -> pd.DataFrame:
    """Every contrast at the longest length, as ``encoding − against``; ``1x`` is the row itself at 1×."""
    return pd.DataFrame(_contrasts(table))


def _contrasts(table: Table) -> Iterator[dict[str, Any]]:
    for row in table.rows:
        for name, found in {"1x": row.change, **row.against}.items():
            if found is not None:
                yield {"encoding": row.spec, "view": row.view, "against": name, **asdict(found),
                       "caution": caution_words(found.caution)}  # fmt: skip


def _last(row: Row | None, table: Table) -> str:
    """The cell of a row at its longest length."""
    return "–" if row is None or not row.cells else with_error(row.cells[max(row.cells)], table.metric)


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *body))
