"""report.html: one file with everything in it, that opens without a network, by day and night, on a telephone.

It is made of the templates beside this file. Charts are drawn twice, for a desktop and for a telephone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

from posenc.catalogue import info, list_encodings
from posenc.catalogue.entry import Entry
from posenc.lab.cost.costs import Costs
from posenc.lab.report.claims import OUTCOMES, SOME, Judged
from posenc.lab.report.drawing import NARROW, Drawn, data_link
from posenc.lab.report.further import further
from posenc.lab.report.rows import Table
from posenc.lab.report.sentences import Parts, across, caveat, names, sentences
from posenc.lab.report.table import cells_frame, facts_of, main_table, note, training_table
from posenc.lab.runs import Run

FIRST = ("dots", "lengths", "views")  # charts that stand before the details
TEMPLATES = Path(__file__).parent / "templates"


def page(
    parts: Parts, charts: Mapping[str, Sequence[Drawn]], said: Sequence[Judged], overview: Sequence[Drawn] = (),
    costs: tuple[Costs, Drawn] | None = None,
) -> str:  # fmt: skip
    """The HTML.

    Args:
        parts: runs with their tables, by what they are called.
        charts: of each run.
        said: claims, judged.
        overview: charts of all runs together.
        costs: what posenc cost measured, and its chart.
    """
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True)
    environment.filters["arxiv"] = _with_links
    specs = list(dict.fromkeys(row.spec for _, table in parts.values() for row in table.rows))
    single = next(iter(parts.values()))[0] if len(parts) == 1 else None
    return environment.get_template("page.html").render(
        title=single.words.title if single else "Positional encodings compared",
        kicker=names([single.task, *list(single.facts.values())[:1]] if single else list(parts)),
        across=[] if single else across(parts),
        overview=[_figure(chart, f"all{n}", specs) for n, chart in enumerate(overview)],
        runs=[_run(name, f"run{n}", parts[name], charts[name], specs) for n, name in enumerate(parts)],
        costs=costs and {"figure": _figure(costs[1], "costs", specs), "of": costs[0]},
        claims=[one for one in said if one.words], untested=[one.claim for one in said if not one.words],
        counted=counted(said), glossary={spec: entries(spec) for spec in specs}, style=_asset("page.css"),
        script=_asset("page.js"),
    )  # fmt: skip


def counted(said: Sequence[Judged]) -> str:
    """How many claims have which outcome."""
    found = {outcome: sum(one.outcome == outcome for one in said) for outcome in (*OUTCOMES.values(), SOME)}
    if not said:
        return "No claim of the literature that is kept here speaks of these tasks."
    untested = found.pop(OUTCOMES[None])
    told = names([f"{count} {outcome}" for outcome, count in found.items() if count or outcome != SOME])
    counts = (
        f"Of {len(said)} claims about what was asked, {untested} cannot be tested with what was measured here; of the "
        f"others {told}."
        if len(said) > 1
        else f"One claim is about what was asked: {said[0].outcome}."
    )
    return (
        f"{counts} Small models decide for their size, their data and their budget alone. "
        "Each claim is tested by itself, at 5 %."
    )


def entries(spec: str) -> list[Entry]:
    """What the catalogue knows of the encodings in a spec."""
    known = set(list_encodings())
    parts = dict.fromkeys(re.split(r"[+/]|@\w+|:[0-9]+", spec))
    return [info(name) for name in parts if name in known]


def _run(name: str, key: str, part: tuple[Run, Table], charts: Sequence[Drawn], specs: Sequence[str]) -> dict[str, Any]:
    run, table = part
    figures = [_figure(chart, f"{key}-{chart.id}", specs) for chart in charts]
    return {
        "name": name, "title": run.words.title, "asked": run.words.asked, "shows": run.words.shows,
        "sentences": sentences(run, table), "caveat": caveat(run, table), "command": run.command,
        "first": [figure for figure in figures if figure["id"] in FIRST],
        "more": [figure for figure in figures if figure["id"] not in FIRST],
        "main": main_table(run, table), "further": further(run, table), "note": note(table),
        "training": training_table(table),
        "csv": data_link(cells_frame(table).to_csv(index=False, float_format="%.5g"), "text/csv"),
        "remarks": run.remarks,
        "facts": facts_of(run),
    }  # fmt: skip


def _figure(chart: Drawn, name: str, specs: Sequence[str]) -> dict[str, Any]:
    """What the templates need of a chart; the SVG is our own and needs no escaping."""
    return {
        "id": chart.id, "title": chart.title, "caption": chart.caption,
        "wide": Markup(chart.inline(f"{name}-w", linked=specs)),
        "narrow": Markup(chart.inline(f"{name}-n", NARROW, linked=specs)),
        "csv": data_link(chart.csv(), "text/csv"),
    }  # fmt: skip


def _with_links(source: str) -> Markup:
    """A source with its papers linked."""
    linked = r'<a href="https://arxiv.org/abs/\1">arXiv \1</a>'
    return Markup(re.sub(r"arXiv (\d{4}\.\d{5})", linked, str(escape(source))))


def _asset(name: str) -> Markup:
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))
