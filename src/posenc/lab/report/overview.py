"""What a reader sees first: encodings under their verdicts, and with several tasks a table of verdicts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from html import escape

from posenc.lab.report import frame
from posenc.lab.report.palette import GOOD, grouped, verdict_colour
from posenc.lab.report.section import Section
from posenc.lab.specs import catalogue_order
from posenc.lab.tasks.task import Row
from posenc.lab.words import join, verb


def glance(task: str, rows: Sequence[Row], colour: Mapping[str, str], meanings: Mapping[str, str]) -> Section:
    """A card for each verdict with the encodings that have it.

    Args:
        task: its name, for the id.
        rows: of the table.
        colour: of each spec.
        meanings: of each verdict, in a few words.
    """
    cards = []
    for verdict, group in grouped(rows).items():
        chips = " ".join(
            frame.chip(row.spec, colour[row.spec], control=bool(getattr(row, "control", False))) for row in group
        )
        meaning = f"<small>{escape(meanings[verdict])}</small>" if verdict in meanings else "<small></small>"
        cards.append(f'<div style="--c:{verdict_colour(verdict)}"><b>{escape(verdict)}</b>{meaning}{chips}</div>')
    pick = frame.note("A click on a name follows it through all figures and tables of this page.")
    return Section(f"{task}-glance", "At a glance", f'<div class="glance">{"".join(cards)}</div>{pick}', [])


def across(parts: Mapping[str, Sequence[Row]]) -> str:
    """A sentence about who loses nothing past the trained length, in any of several tasks."""
    found: dict[str, list[str]] = defaultdict(list)
    for rows in parts.values():
        for row in rows:
            found[row.spec].append(row.verdict)
    several = {spec: verdicts for spec, verdicts in found.items() if len(verdicts) > 1}
    everywhere = [f"{spec} ({len(v)} tasks)" for spec, v in several.items() if all(verdict in GOOD for verdict in v)]
    text = f"{len(parts)} tasks; {len(several)} encodings stand in more than one."
    if everywhere:
        loses = verb(everywhere, "loses", "lose")
        return f"{text} Wherever measured, {join(everywhere)} {loses} nothing past what was trained."
    return f"{text} None of these keeps in every task what it can where it was trained." if several else text


def verdicts_by_task(parts: Mapping[str, Sequence[Row]]) -> Section:
    """A line for each encoding of several tasks, a column for each task; ``parts`` are rows by the task's name."""
    counts = Counter(row.spec for rows in parts.values() for row in rows)
    found = {task: {row.spec: row for row in rows if counts[row.spec] > 1} for task, rows in parts.items()}
    specs = sorted((spec for spec, n in counts.items() if n > 1), key=lambda spec: (catalogue_order(spec), spec))
    lines = []
    for spec in specs:
        cells = [frame.badge(rows[spec].verdict) if spec in rows else "–" for rows in found.values()]
        lines.append(frame.table_row([escape(spec), *cells], spec=spec))
    table = f'<div class="scroll">{frame.table(["encoding", *found], lines, "verdicts")}</div>'
    text = frame.note(
        "Each verdict is its own task's; its part says what it means. A dash: not measured there. "
        "What stands in one task alone is left out here."
    )
    return Section("overview", "All tasks at a glance", table + text, [])
