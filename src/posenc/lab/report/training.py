"""The part of a page about the trainings: what they took, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from posenc.lab.report import frame
from posenc.lab.report.markdown import markdown_table
from posenc.lab.report.section import Section
from posenc.lab.results import T, apart_by_machine

NOTE = (
    "Speed and memory as they were in the run, with its jobs side by side on the machine; posenc cost measures "
    "encodings against each other."
)
GRADIENTS = (
    "Norm of the whole gradient before clipping, over the steps of a training, mean over seeds. Clipped: the share of "
    "steps whose norm was above the limit ({clip:g}). A high maximum with a low median is a rare jolt; a high median "
    "is a training that pulls hard all the time. Loss: mean over the last twentieth of the steps."
)
_TOOK, _GRADIENT = (0, 1, 2, 3, 9), (0, 4, 5, 6, 7, 8)  # columns of `posenc.lab.words.cost_heads`


def training_section(
    task: str,
    rows: Sequence[T],
    colour: Mapping[str, str],
    heads: Sequence[str],
    cells: Callable[[T], list[str]],
    clip: float,
) -> Section:
    """Two tables: parameters, speed and memory; gradient norms.

    Args:
        task: its name, for the ids.
        rows: without controls, which have no training of their own.
        colour: of each spec.
        heads: see `posenc.lab.words.cost_heads`.
        cells: a row in the order of ``heads``.
        clip: norm that gradients are clipped to.
    """
    split, machines = apart_by_machine(rows)
    lines = [(row.spec.partition(", machine ")[0], cells(row)) for row in split]
    took = _table(f"{task}-took", heads, lines, _TOOK, colour)
    gradients = _table(f"{task}-gradients", heads, lines, _GRADIENT, colour)
    notes = [NOTE, *hours_text(rows), *([machines_text(machines)] if machines else [])]
    html = f"{took}{''.join(map(frame.note, notes))}<h3>Gradients</h3>{gradients}"
    html += frame.note(GRADIENTS.format(clip=clip))
    return Section(f"{task}-training", "Training: what it took, and its gradients", html, [])


def training_markdown(rows: Sequence[T], heads: Sequence[str], cells: Callable[[T], list[str]]) -> list[str]:
    """The same for table.md, in one table."""
    split, machines = apart_by_machine(rows)
    lines = markdown_table(list(heads), [cells(row) for row in split])
    notes = [*hours_text(rows), *([machines_text(machines)] if machines else [])]
    return [*lines, "", " ".join(notes)] if notes else lines


def hours_text(rows: Sequence[T]) -> list[str]:
    """How long all trainings together took, if there are any."""
    seconds = [run["training"]["seconds"] for row in rows for run in row.runs]
    if not seconds:
        return []
    trainings = "The training" if len(seconds) == 1 else f"The {len(seconds)} trainings together"
    took = f"{sum(seconds) / 3600:.1f} hours" if sum(seconds) > 5400 else f"{sum(seconds) / 60:.1f} minutes"
    return [f"{trainings} took {took}, without what was measured after them; several may run at a time."]


def machines_text(machines: Mapping[str, str]) -> str:
    """Why times stand apart."""
    named = "; ".join(f"{short}: {words}" for short, words in machines.items())
    return f"Trained on {len(machines)} machines, whose times and memory have no common mean and stand apart. {named}."


def _table(
    name: str,
    heads: Sequence[str],
    lines: list[tuple[str, list[str]]],
    chosen: Sequence[int],
    colour: Mapping[str, str],
) -> str:
    rows = []
    for spec, cells in lines:
        first = frame.coloured_name(cells[0], colour[spec])
        rows.append(frame.table_row([first, *(escape(cells[i]) for i in chosen[1:])], spec=spec))
    return f'<div class="scroll">{frame.table([heads[i] for i in chosen], rows, name)}</div>'
