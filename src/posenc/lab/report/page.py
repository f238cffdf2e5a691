"""report.html: the parts of one task or several, what encodings cost, claims beside measurements, how to repeat it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

from posenc.lab.cost import Costs
from posenc.lab.files import write_atomically
from posenc.lab.record import RunRecord
from posenc.lab.report import frame
from posenc.lab.report.claims_page import claims_section
from posenc.lab.report.cost import cost_sections
from posenc.lab.report.evidence import Evidence
from posenc.lab.report.overview import across, verdicts_by_task
from posenc.lab.report.section import Section
from posenc.lab.tasks import task_of
from posenc.lab.tasks.task import Row
from posenc.lab.words import join

FILE = "report.html"


@dataclass(frozen=True)
class Part:
    """What is shown of one task."""

    rows: list[Row]
    record: RunRecord[Any, Any]
    remarks: tuple[str, ...] = ()  # on where the rows come from

    @property
    def task(self) -> str:
        """Its name."""
        return str(self.record.settings.task)


@dataclass(frozen=True)
class Page:
    """Everything that a page shows: each task once, and any number of measurements of cost."""

    parts: list[Part]
    costs: list[Costs] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The headline."""
        if len(self.parts) == 1:
            return task_of(self.parts[0].record.settings).title(self.parts[0].record.settings)
        tasks = [part.task for part in self.parts]
        return f"Positional encodings compared: {join(tasks)}" if tasks else "What positional encodings cost"

    def render(self) -> str:
        """The HTML."""
        shared = self._shared()
        if len(self.parts) == 1:
            part = self.parts[0]
            sections = _sections(part)
            body = _lead(part) + frame.navigation([*_links([*sections, *shared]), ("repeat", "How to repeat it")])
            body += "".join(map(frame.section_html, (*sections, *shared))) + _repeat(self.parts, self.costs)
            charts = [chart for section in (*sections, *shared) for chart in section.charts]
        else:
            body, charts = self._several(shared)
        names = list(dict.fromkeys(part.record.facts.name for part in self.parts))
        kicker = " · ".join(["posenc", *(names if len(names) < 3 else [f"{len(self.parts)} tasks"])])
        results = {part.task: [_result(row) for row in part.rows] for part in self.parts}
        return frame.document(kicker, self.title, body, charts, {"results": results})

    def write(self, out: Path) -> Path:
        """Write OUT/report.html; returns its path."""
        path = out / FILE
        write_atomically(path, self.render().encode())
        return path

    def _shared(self) -> list[Section]:
        """What belongs to no single task."""
        rows = next((part.rows for part in self.parts if part.task == "text"), [])
        return [*cost_sections(self.costs, rows), *([claims_section(self.evidence)] if self.parts else [])]

    @property
    def evidence(self) -> Evidence:
        """What claims are held against."""
        return Evidence.of([(part.rows, part.record) for part in self.parts], self.costs)

    def _several(self, shared: list[Section]) -> tuple[str, list[dict[str, Any]]]:
        """Body and charts of a page with a part for each task."""
        found = {part.task: (part, [_folded(section) for section in _sections(part)]) for part in self.parts}
        rows = {part.task: part.rows for part in self.parts}
        overview = [verdicts_by_task(rows)] if found else []
        links = [("overview", "Overview")] if found else []
        links += [(f"task-{task}", task.capitalize()) for task in found]
        links += _links(shared)
        body = f'<p class="lead">{escape(across(rows))}</p>' if found else ""
        body += frame.navigation([*links, ("repeat", "How to repeat it")])
        body += "".join(map(frame.section_html, overview))
        for task, (part, sections) in found.items():
            title = task_of(part.record.settings).title(part.record.settings)
            body += f'<h2 class="part" id="task-{task}">{escape(title)}</h2>{_lead(part)}'
            body += "".join(map(frame.section_html, sections))
        body += "".join(map(frame.section_html, shared)) + _repeat(self.parts, self.costs)
        every = [*(section for _, sections in found.values() for section in sections), *shared]
        return body, [chart for section in every for chart in section.charts]


def _sections(part: Part) -> list[Section]:
    return list(task_of(part.record.settings).sections(part.rows, part.record))


def _folded(section: Section) -> Section:
    """What a training took is behind a click where there are many trainings."""
    if not section.id.endswith("-training"):
        return section
    return replace(section, html=f"<details><summary>Show</summary>{section.html}</details>")


def _links(sections: Sequence[Section]) -> list[tuple[str, str]]:
    """Ids, and the beginnings of titles."""
    return [(section.id, re.split("[:,]", section.title)[0]) for section in sections]


def _lead(part: Part) -> str:
    summary = task_of(part.record.settings).summary(part.rows, part.record)
    return f'<p class="lead">{escape(summary)}</p>{"".join(map(frame.note, part.remarks))}'


def _result(row: Row) -> dict[str, Any]:
    """For programs that read the page."""
    found = {"spec": row.spec, "verdict": row.verdict}
    for name in ("seeds", "bits", "changes", "of_seeds"):
        value = getattr(row, name, None)
        if value is not None and not callable(value):
            found["accuracy" if name == "of_seeds" else name] = value
    return found


def _repeat(parts: Sequence[Part], costs: Sequence[Costs]) -> str:
    """Commands, settings, data, versions, machines."""
    blocks = []
    for part in parts:
        record = part.record
        head = f"<h3>{escape(part.task.capitalize())}</h3>" if len(parts) > 1 else ""
        facts = {"Settings": record.settings.shown(), "Data": record.facts.shown(), "Versions": record.versions}
        if record.rates:
            facts["Tuned rates"] = record.rates
        facts["Machine"] = record.machine
        blocks.append(f"{head}<pre>{escape(record.command)}</pre>{''.join(_details(n, f) for n, f in facts.items())}")
    for cost in costs:
        facts = {"Versions": cost.versions, "Machine": cost.machine}
        blocks.append(
            f"<h3>Costs</h3><pre>{escape(cost.command)}</pre>{''.join(_details(n, f) for n, f in facts.items())}"
        )
    return f'<section id="repeat"><h2>How to repeat it</h2>{"".join(blocks)}</section>'


def _details(name: str, facts: dict[str, str]) -> str:
    return f"<details><summary>{escape(name)}</summary>{frame.definitions(facts)}</details>"
