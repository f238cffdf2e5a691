"""What a report leaves: report.html, one page, answer first; and for each run verdicts.json, table.md and charts/*.svg.

The page is one file that opens without a network. Every value on it is escaped, because names and texts of a run's
files may come from anybody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from posenc.lab.files import write_atomically
from posenc.lab.report import text
from posenc.lab.report.charts import Chart, charts_of
from posenc.lab.report.numbers import NamedTables, Table, build_table
from posenc.lab.report.tables import escaped, further_tables, main_table, markdown, training_table, unit_of
from posenc.lab.run.folder import Run

PAGE, CHARTS, VERDICTS, TABLE = "report.html", "charts", "verdicts.json", "table.md"
TEMPLATES = Path(__file__).parent / "templates"


def write_report(runs: Sequence[Run], out: Path, *, drawn: bool = True) -> list[Path]:
    """Write the report of some runs.

    A run whose folder lies in ``out`` has its table, verdicts and charts there; of several others each has a folder.

    Args:
        runs: with records.
        out: the folder to write to.
        drawn: whether to draw charts, which take seconds.

    Returns:
        The paths of what was written; for the charts of a run, their folder.
    """
    tables = named_tables(runs)
    charts = {label: list(charts_of(*pair)) if drawn else [] for label, pair in tables.items()}
    pictures = {label: {chart.name: chart.svg() for chart in charts[label]} for label in tables}
    paths = [_write(out / PAGE, page(tables, charts, pictures))]
    for n, (label, (run, table)) in enumerate(tables.items(), 1):
        inside = run.path if run.path.parent == out else out / f"{n}-{re.sub(r'[^A-Za-z0-9]+', '-', label)[:60]}"
        folder = out if len(tables) == 1 and run.path.parent != out else inside
        record = json.dumps(text.verdicts_record(run, table), indent=1) + "\n"
        paths += [_write(folder / TABLE, table_markdown(run, table)), _write(folder / VERDICTS, record)]
        for name, svg in pictures[label].items():
            _write(folder / CHARTS / f"{name}.svg", svg)
        paths += [folder / CHARTS] if pictures[label] else []
    return paths


def page(tables: NamedTables, charts: dict[str, list[Chart]], pictures: dict[str, dict[str, str]]) -> str:
    """The HTML of a report: runs, their charts and the SVG of each, by label."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    single = next(iter(tables.values()))[0] if len(tables) == 1 else None
    parts = [
        {
            "name": label, "words": run.words, "command": run.command, "facts": run_facts(run),
            "evidence": text.evidence(run, table), "caveats": text.caveats(run, table),
            "legend": text.legend(run, table), "main": main_table(run, table), "further": further_tables(run, table),
            "training": training_table(table), "unit": unit_of(table.metric),
            "charts": [(chart, Markup(pictures[label][chart.name])) for chart in charts[label]],
        }
        for label, (run, table) in tables.items()
    ]  # fmt: skip
    return environment.get_template("page.html").render(
        title=single.words.title if single else "Positional encodings compared",
        about=text.names([single.task, *list(single.facts.values())[:1]] if single else list(tables)),
        answer=text.headline(tables), runs=parts,
    )  # fmt: skip


def table_markdown(run: Run, table: Table) -> str:
    """table.md: the verdict, the evidence and limits, the tables, and how to reproduce them."""
    answers = (*text.unfinished(run), *text.beyond(run, table), *text.far(run, table))
    sentences = [f"**{escaped(line)}**" for line in answers]
    sentences += [escaped(line) for line in text.evidence(run, table)]
    sentences.append("\n".join(f"- {escaped(line)}" for line in text.caveats(run, table)))
    further = [f"## {escaped(each.title)}\n\n{markdown(each)}" for each in further_tables(run, table)]
    facts = [
        f"{title}: {'; '.join(f'{escaped(key)} {escaped(value)}' for key, value in entries.items())}  "
        for title, entries in run_facts(run).items()
    ]
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", run.command)), default=0))
    parts = [
        f"# {escaped(run.words.title)}", *sentences, f"In {unit_of(table.metric)}.", markdown(main_table(run, table)),
        escaped(text.legend(run, table)), *further, markdown(training_table(table)), "Command:",
        f"{fence}\n{run.command}\n{fence}", "\n".join(facts),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def terminal_summary(runs: Sequence[Run]) -> list[str]:
    """The lines that a terminal shows for runs: the answer, then the evidence and limits of each run."""
    tables = named_tables(runs)
    lines = text.headline(tables)
    for label, pair in tables.items():
        lines += [f"{label}:"] if len(tables) > 1 else []
        lines += [*text.evidence(*pair), *text.caveats(*pair)]
    return lines


def run_facts(run: Run) -> dict[str, dict[str, str]]:
    """What is needed to reproduce a run, in addition to its command."""
    facts = {
        "Settings": run.shown, "Data": run.facts, "Hashes of the data": run.data,
        "Tuned rates": {spec: rates for spec, rates in run.rates.items() if spec in run.tuning},
        "Rates as given, without recorded trials": {s: rates for s, rates in run.rates.items() if s not in run.tuning},
        "Versions": run.versions, "Machine": run.machine,
    }  # fmt: skip
    return {title: entries for title, entries in facts.items() if entries}


def named_tables(runs: Sequence[Run]) -> dict[str, tuple[Run, Table]]:
    """Runs with their tables, by a label that tells the runs apart."""
    return {label: (run, build_table(run)) for label, run in zip(run_labels(runs), runs, strict=True)}


def run_labels(runs: Sequence[Run]) -> list[str]:
    """A label for each run: its task, and up to three settings in which it differs from others of that task."""
    labels = []
    for run in runs:
        same_task = [other for other in runs if other.task == run.task]
        differing = [key for key in run.shown if len({other.shown.get(key) for other in same_task}) > 1]
        marks = [f"{key} {run.shown[key]}" for key in differing]
        if len({tuple(other.data.items()) for other in same_task}) > 1:
            marks.insert(0, next(iter(run.facts.values()), ""))
        labels.append(", ".join([run.task, *marks[:3]]))
    return [label if labels.count(label) == 1 else f"{label} ({n + 1})" for n, label in enumerate(labels)]


def _write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.encode())
    return path
