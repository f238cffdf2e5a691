"""What a report leaves for its readers: report.html, table.md and .tex, claims.md, CSV, charts as SVG, PNG and PDF."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from posenc.lab.cost.costs import Costs
from posenc.lab.files import write_atomically
from posenc.lab.report.charts import charts_of
from posenc.lab.report.charts_across import ACROSS, COSTS, across_chart, costs_chart
from posenc.lab.report.claims import Judged, asked, judged
from posenc.lab.report.drawing import Drawn
from posenc.lab.report.further import further_frame
from posenc.lab.report.latex import latex
from posenc.lab.report.page import counted, page
from posenc.lab.report.rows import Table, rows_of
from posenc.lab.report.said import CLAIMS
from posenc.lab.report.sentences import Parts, across, called, caveat, sentences
from posenc.lab.report.table import cells_frame, contrasts_frame, main_table, markdown
from posenc.lab.runs import Run
from posenc.lab.schema import refuse_links

PAGE, CHARTS = "report.html", "charts"


def write(runs: Sequence[Run], out: Path, *, own: Iterable[str] = (), costs: Costs | None = None) -> list[Path]:
    """Write everything about some runs; of several, tables and charts of each lie in a folder of its own.

    Args:
        runs: with records; those that belong together are `posenc.lab.runs.pooled` before.
        out: where to.
        own: charts of one's own, see `posenc.lab.report.charts`.
        costs: what posenc cost measured.

    Returns:
        The paths of what was written, of the charts of a run their folder.
    """
    parts = parts_of(runs)
    charts = {name: list(charts_of(run, table, own)) for name, (run, table) in parts.items()}
    said = judged(asked(CLAIMS, parts), parts)
    whole = across_chart(parts) if len(parts) > 1 else None
    overview = [] if whole is None else [Drawn("across", "What each encoding does in each run", ACROSS, whole)]
    drawn = costs_chart(costs.frame) if costs else None
    costly = (costs, Drawn("costs", "What encodings cost", COSTS, drawn)) if costs and drawn is not None else None
    html = page(parts, charts, said, overview, costly)
    paths = [_text(out / PAGE, html), _text(out / "claims.md", claims_markdown(said))]
    for chart in (*overview, *([costly[1]] if costly else [])):
        chart.write(_folder(out / CHARTS))
    for n, (name, part) in enumerate(parts.items()):
        folder = f"{n + 1}-{re.sub(r'[^A-Za-z0-9]+', '-', name)[:60]}"
        paths += _of_run(out if len(parts) == 1 else _folder(out / folder), *part, charts[name])
    return paths


def summary(runs: Sequence[Run]) -> list[str]:
    """What a terminal says of runs: the sentences of the page."""
    parts = parts_of(runs)
    told = {name: [*sentences(*part), caveat(*part)] for name, part in parts.items()}
    if len(parts) == 1:
        return next(iter(told.values()))
    return [*(line for name, lines in told.items() for line in (f"{name}:", *lines)), *across(parts)]


def parts_of(runs: Sequence[Run]) -> Parts:
    """Runs with their tables, by what they are called."""
    return {name: (run, rows_of(run)) for name, run in zip(called(runs), runs, strict=True)}


def claims_markdown(said: Sequence[Judged]) -> str:
    """claims.md."""
    rows = [f"| {one.claim.text} | {one.claim.source} | {one.outcome} | {one.words} |" for one in said if one.words]
    rest = [f"- {one.claim.text} ({one.claim.source})" for one in said if not one.words]
    head = ["# What is often said, beside what was measured\n", counted(said), ""]
    table = ["| claim | source | here | measured |", "| --- | --- | --- | --- |", *rows, ""] if rows else []
    return "\n".join([*head, *table, *(["Not testable with what was measured here:\n", *rest, ""] if rest else [])])


def _of_run(folder: Path, run: Run, table: Table, charts: Sequence[Drawn]) -> list[Path]:
    said = [*sentences(run, table), caveat(run, table)]
    paths = [_text(folder / "table.md", markdown(run, table, said))]
    paths.append(_text(folder / "table.tex", latex(*main_table(run, table)) + "\n"))
    for name, frame in (("cells", cells_frame(table)), ("contrasts", contrasts_frame(table))):
        paths.append(_text(folder / f"{name}.csv", frame.to_csv(index=False, float_format="%.6g")))
    rest = further_frame(run)
    if not rest.empty:
        paths.append(_text(folder / "further.csv", rest.to_csv(index=False, float_format="%.6g")))
    for chart in charts:
        chart.write(_folder(folder / CHARTS))
    return [*paths, *([folder / CHARTS] if charts else [])]


def _folder(path: Path) -> Path:
    refuse_links([path])
    path.mkdir(parents=True, exist_ok=True)
    return path


def _text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())
    return path
