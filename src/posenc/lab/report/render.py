"""What a report leaves: report.html, verdicts.json, table.md, table.tex, claims.md, CSV and charts.

Text is written by Jinja from `templates`: text.jinja has every sentence, the other files are layouts. Each format has
its own environment, which escapes every value that is printed, because names and texts of a run's files may come from
anybody. report.html is one file that opens without a network, in light and dark mode, on a telephone and on a desktop.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from posenc.catalogue import encoding_info, list_encodings
from posenc.entry import Entry
from posenc.lab.cost.costs import Costs
from posenc.lab.files import write_atomically
from posenc.lab.metrics import Metric
from posenc.lab.report.charts import draw_charts, run_charts
from posenc.lab.report.claims import JudgedClaim, judge, outcome_counts, relevant_claims
from posenc.lab.report.drawing import NARROW, DrawnChart, data_link
from posenc.lab.report.literature import CLAIMS
from posenc.lab.report.numbers import NamedTables, Row, Table
from posenc.lab.report.summary import RunSummary, named_tables, summaries, verdicts_record
from posenc.lab.report.tables import (
    TextTable,
    amount,
    cells_frame,
    contrasts_frame,
    further_frame,
    further_tables,
    latex,
    main_table,
    number,
    training_table,
    unit_of,
    with_error,
)
from posenc.lab.run.folder import Run
from posenc.lab.schema import refuse_links

PAGE, CHART_FOLDER, VERDICTS_FILE = "report.html", "charts", "verdicts.json"
MOST_NAMES = 8  # of a list in a sentence
END = "\x1e"  # of a paragraph; no text of a file has this character, see `posenc.lab.schema`
BEFORE_DETAILS = ("dots", "lengths", "views")  # charts that stand above the tables
TEMPLATES = Path(__file__).parent / "templates"

Format = Literal["html", "markdown", "plain"]


# ---- Files ----


def write_report(
    runs: Sequence[Run], out: Path, *, custom: Iterable[str] = (), costs: Costs | None = None, drawn: bool = True
) -> list[Path]:
    """Write the report of some runs; tables and charts of several runs lie in a folder for each.

    A run whose folder lies in ``out`` has them in its folder.

    Args:
        runs: with records; runs that belong together are joined before by `posenc.lab.run.folder.pooled`.
        out: the folder to write to.
        custom: charts of the user, see `posenc.lab.report.charts.run_charts`.
        costs: measurements of posenc cost.
        drawn: whether to draw charts, which take seconds.

    Returns:
        The paths of what was written; for the charts of a run, their folder.
    """
    tables, custom = named_tables(runs), list(custom)
    charts = {
        label: list(run_charts(run, table, custom)) if drawn else [] for label, (run, table) in tables.items()
    }  # fmt: skip
    judged = judge(relevant_claims(CLAIMS, tables), tables)
    overview = list(draw_charts("runs", tables)) if len(tables) > 1 and drawn else []
    cost_charts = list(draw_charts("costs", costs.frame)) if costs else []
    html = page(tables, charts, judged, overview=overview, cost_charts=cost_charts, costs=costs)
    paths = [_write(out / PAGE, html), _write(out / "claims.md", claims_markdown(judged))]
    for chart in (*overview, *cost_charts):
        chart.write(_folder(out / CHART_FOLDER))
    for n, (label, (run, table)) in enumerate(tables.items()):
        if run.path.parent == out:
            folder = run.path
        else:
            name = f"{n + 1}-{re.sub(r'[^A-Za-z0-9]+', '-', label)[:60]}"
            folder = out if len(tables) == 1 else _folder(out / name)
        paths += _write_run(folder, run, table, charts[label])
    return paths


def page(
    tables: NamedTables, charts: Mapping[str, Sequence[DrawnChart]], judged: Sequence[JudgedClaim], *,
    overview: Sequence[DrawnChart] = (), cost_charts: Sequence[DrawnChart] = (), costs: Costs | None = None,
) -> str:  # fmt: skip
    """The HTML of a report.

    Args:
        tables: runs with their tables, by label.
        charts: of each run.
        judged: claims with their outcomes.
        overview: charts of all runs together.
        cost_charts: charts of posenc cost.
        costs: what they were drawn from.
    """
    specs = list(dict.fromkeys(row.spec for _, table in tables.values() for row in table.rows))
    single = next(iter(tables.values()))[0] if len(tables) == 1 else None
    return _environment("html").get_template("page.html").render(
        title=single.words.title if single else "Positional encodings compared",
        kicker=_names("html", [single.task, *list(single.facts.values())[:1]] if single else list(tables)),
        summaries=summaries(tables),
        overview=[_figure(chart, f"all{n}", specs) for n, chart in enumerate(overview)],
        runs=[_run(label, f"run{n}", *tables[label], charts[label], specs) for n, label in enumerate(tables)],
        cost_charts=[_figure(chart, f"costs{n}", specs) for n, chart in enumerate(cost_charts)],
        costs=costs,
        judged=judged,
        counts=outcome_counts(judged),
        glossary={spec: catalogue_entries(spec) for spec in specs},
        style=_asset("page.css"),
        script=_asset("page.js"),
    )  # fmt: skip


def table_markdown(run: Run, table: Table) -> str:
    """table.md: the verdict, the evidence and caveats, the tables, and how to reproduce them."""
    return _environment("markdown").get_template("table.md").render(
        summary=RunSummary(run, table), main=main_table(run, table), unit=unit_of(table.metric),
        further=further_tables(run, table), training=training_table(table), facts=run_facts(run),
    )  # fmt: skip


def claims_markdown(judged: Sequence[JudgedClaim]) -> str:
    """claims.md: every claim with its source, outcome and evidence."""
    template = _environment("markdown").get_template("claims.md")
    return template.render(judged=judged, counts=outcome_counts(judged))


def terminal_summary(runs: Sequence[Run]) -> list[str]:
    """The lines that a terminal shows for runs: the answer, then the evidence and limits of each run."""
    text, tables = _sentences("plain"), named_tables(runs)
    lines = _paragraphs(text.headline(summaries(tables)))
    for label, (run, table) in tables.items():
        summary = RunSummary(run, table)
        lines += [Markup(f"{label}:")] if len(tables) > 1 else []
        lines += [*_paragraphs(text.evidence(summary)), *_paragraphs(text.caveats(summary))]
    return [str(line) for line in lines]


def claim_evidence(judged: JudgedClaim) -> str:
    """The numbers behind a claim's outcome, in words."""
    return str(_line(_sentences("plain").claim_evidence(judged)))


def run_facts(run: Run) -> dict[str, dict[str, str]]:
    """What is needed to reproduce a run, in addition to its command."""
    facts = {
        "Settings": run.shown, "Data": run.facts, "Hashes of the data": run.data,
        "Tuned rates": {spec: rates for spec, rates in run.rates.items() if spec in run.tuning},
        "Rates as given, without recorded trials": {s: rates for s, rates in run.rates.items() if s not in run.tuning},
        "Versions": run.versions, "Machine": run.machine,
    }  # fmt: skip
    return {title: entries for title, entries in facts.items() if entries}


def catalogue_entries(spec: str) -> list[Entry]:
    """What the catalogue knows of the encodings in a spec."""
    known = set(list_encodings())
    parts = dict.fromkeys(re.split(r"[+/]|@\w+|:[0-9]+", spec))
    return [encoding_info(name) for name in parts if name in known]


def _write_run(folder: Path, run: Run, table: Table, charts: Sequence[DrawnChart]) -> list[Path]:
    paths = [_write(folder / "table.md", table_markdown(run, table))]
    paths.append(_write(folder / "table.tex", latex(main_table(run, table)) + "\n"))
    paths.append(_write(folder / VERDICTS_FILE, json.dumps(verdicts_record(run, table), indent=1) + "\n"))
    frames = {"cells": cells_frame(table), "contrasts": contrasts_frame(table), "further": further_frame(run)}
    for name, frame in frames.items():
        if name != "further" or not frame.empty:
            paths.append(_write(folder / f"{name}.csv", _csv(frame)))
    for chart in charts:
        chart.write(_folder(folder / CHART_FOLDER))
    return [*paths, *([folder / CHART_FOLDER] if charts else [])]


def _csv(frame: pd.DataFrame) -> str:
    text: str = frame.to_csv(index=False, float_format="%.6g")
    return text


def _folder(path: Path) -> Path:
    refuse_links([path])
    path.mkdir(parents=True, exist_ok=True)
    return path


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())
    return path


# ---- Parts of the page ----


def _run(
    label: str, key: str, run: Run, table: Table, charts: Sequence[DrawnChart], specs: Sequence[str]
) -> dict[str, Any]:
    figures = [_figure(chart, f"{key}-{chart.id}", specs) for chart in charts]
    return {
        "name": label, "summary": RunSummary(run, table), "facts": run_facts(run),
        "first": [figure for figure in figures if figure["id"] in BEFORE_DETAILS],
        "more": [figure for figure in figures if figure["id"] not in BEFORE_DETAILS],
        "main": main_table(run, table), "further": further_tables(run, table), "training": training_table(table),
        "csv": data_link(cells_frame(table).to_csv(index=False, float_format="%.5g"), "text/csv"),
    }  # fmt: skip


def _figure(chart: DrawnChart, name: str, specs: Sequence[str]) -> dict[str, Any]:
    """A chart for the templates; vl_convert has escaped the texts of its SVG."""
    return {
        "id": chart.id, "title": chart.title, "caption": chart.caption,
        "wide": Markup(chart.inline(f"{name}-w", linked=specs)),
        "narrow": Markup(chart.inline(f"{name}-n", NARROW, linked=specs)),
        "csv": data_link(chart.csv(), "text/csv"),
    }  # fmt: skip


def _asset(name: str) -> Markup:
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


# ---- Environments ----


@cache
def _environment(kind: Format) -> Environment:
    """Templates that escape for a format. Macros return Markup, which is not escaped again."""
    escapes: Callable[[Any], Any] | None = None if kind == "html" else lambda value: _escaped(kind, value)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, finalize=escapes, undefined=StrictUndefined
    )
    environment.globals |= {"END": Markup(END)}
    environment.filters |= {
        "amount": amount,
        "arxiv": _arxiv_links,
        "big": _big,
        "change": lambda value, metric, row: _number(kind, value, metric, row, change=True),
        "count": lambda value: f"{value:,.0f}",
        "error": lambda value, metric: with_error(value, metric, change=True),
        "fenced": _fenced,
        "line": _line,
        "name": lambda spec: _name(kind, spec),
        "names": lambda items: _names(kind, items),
        "number": lambda value, metric, row: _number(kind, value, metric, row),
        "paragraphs": _paragraphs,
        "table": _markdown_table,
    }
    return environment


def _sentences(kind: Format) -> Any:
    """The macros of text.jinja."""
    return _environment(kind).get_template("text.jinja").module


def _escaped(kind: Format, value: object) -> Markup:
    """A value as text of a format; Markup is such text already."""
    if isinstance(value, Markup):
        return value
    if kind == "html":
        return escape(value)
    return Markup(_markdown_escaped(str(value)) if kind == "markdown" else str(value))


def _markdown_escaped(text: str) -> str:
    """Text in which no character has a meaning in Markdown or HTML, on one line."""
    text = re.sub(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", re.sub(r"\s+", " ", text))
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text).replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"^ ?(?=[#=]|[-+] |\d+[.)] )", r"\\", text)


def _name(kind: Format, spec: str) -> Markup:
    """The name of an encoding, on a page with a link to its formula."""
    link = Markup('<a class="name" href="#formula-{0}">{0}</a>')
    return link.format(spec) if kind == "html" else _escaped(kind, spec)


def _number(kind: Format, value: float, metric: Metric, row: Row, *, change: bool = False) -> Markup:
    """A number of a row; a page carries the full value and the row's name, which tests compare with the records."""
    text, data = number(value, metric, change=change), Markup('<data value="{}" data-encoding="{}">{}</data>')
    return data.format(f"{value:.9g}", row.spec, text) if kind == "html" else _escaped(kind, text)


def _names(kind: Format, items: Sequence[Row | str]) -> Markup:
    """``a, b and c``; of many, the first ones and how many more; of none, ``none``."""
    parts = [_escaped(kind, item) if isinstance(item, str) else _name(kind, item.spec) for item in items[:MOST_NAMES]]
    parts += [Markup(f"{len(items) - MOST_NAMES} more")] if len(items) > MOST_NAMES else []
    return Markup(" and ").join([Markup(", ").join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts or ["none"])


def _big(ends: tuple[float, float]) -> str:
    """``4.9 million``; ``866,000 to 867,000``, or one number where both are written alike."""
    return " to ".join(dict.fromkeys(f"{x / 1e6:.3g} million" if x >= 1e6 else f"{x:,.0f}" for x in ends))


def _paragraphs(block: str) -> list[Markup]:
    """The paragraphs of a block, each on one line."""
    return [line for part in str(block).split(END) if (line := _line(part))]


def _line(block: str) -> Markup:
    """A block on one line."""
    return Markup(" ".join(str(block).split()))


def _fenced(text: str) -> Markup:
    """A block of code, with a fence that is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return Markup(f"{fence}\n{text}\n{fence}")


def _markdown_table(table: TextTable) -> Markup:
    rule = ["---", *["---:"] * (len(table.heads) - 1)]
    lines = [list(map(_markdown_escaped, cells)) for cells in (table.heads, *table.lines)]
    return Markup("\n".join(f"| {' | '.join(cells)} |" for cells in (lines[0], rule, *lines[1:])))


def _arxiv_links(source: str) -> Markup:
    """A source with its papers linked."""
    linked = r'<a href="https://arxiv.org/abs/\1">arXiv \1</a>'
    return Markup(re.sub(r"arXiv (\d{4}\.\d{5})", linked, str(escape(source))))
