"""The frame of report.html: one file with everything in it, that opens without a network, by day and night, on a phone.

Style and scripts lie in the folder assets. What a task says stands in `posenc.lab.section.Section`s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from posenc.lab.report.palette import VERDICTS, verdict_colour
from posenc.lab.report.section import Section

_SCRIPTS = ("selection.js", "charts.js", "tables.js")


def document(kicker: str, title: str, body: str, charts: list[dict[str, Any]], data: Mapping[str, Any]) -> str:
    """The whole page.

    Args:
        kicker: a line above the headline, plain text.
        title: the headline, plain text.
        body: HTML below it; each chart is an empty ``div`` with its id.
        charts: see `Section`.
        data: whatever else a reader of the file may want; plain data.
    """
    from plotly.offline import get_plotlyjs  # not before: a worker writes no page

    known = {"charts": charts, "verdicts": list(VERDICTS), "colours": VERDICTS, **data}
    scripts = "".join(f"<script>{_asset(name)}</script>\n" for name in _SCRIPTS)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · posenc</title>
<link rel="icon" href="data:,">
<style>{_asset("page.css")}</style>
</head>
<body>
<main>
<p class="kicker">{escape(kicker)}</p>
<h1>{escape(title)}</h1>
{body}
</main>
<script type="application/json" id="report-data">{_json(known)}</script>
<script>{get_plotlyjs()}</script>
{scripts}</body>
</html>
"""


def section_html(section: Section) -> str:
    """A section with its heading."""
    return f'<section id="{section.id}"><h2>{escape(section.title)}</h2>\n{section.html}</section>'


def navigation(links: Sequence[tuple[str, str]]) -> str:
    """Links to ids of the page: id and words of each."""
    found = "".join(f'<a href="#{name}">{escape(words)}</a>' for name, words in links)
    return f"<nav>{found}</nav>"


def chart_div(name: str) -> str:
    """Where the chart with this id will stand."""
    return f'<div id="{name}" class="chart"></div>'


def note(text: str) -> str:
    """A paragraph in small print."""
    return f'<p class="note">{escape(text)}</p>'


def paragraph(text: str) -> str:
    """A paragraph."""
    return f"<p>{escape(text)}</p>"


def table(heads: Sequence[str], lines: Sequence[str], name: str = "") -> str:
    """A table of numbers, which the page makes sortable; it stands in a ``div`` of class scroll.

    ``heads`` are plain text, ``lines`` come from `table_row`.
    """
    head = "".join(f"<th>{escape(head)}</th>" for head in heads)
    known = f' id="{name}"' if name else ""
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<table class="numbers"{known}>{body}</table>'


def table_row(cells: Sequence[str], kind: str = "", spec: str = "") -> str:
    """A line of a table; ``cells`` are HTML. With a ``spec`` it can be picked."""
    known = f' data-spec="{escape(spec)}"' if spec else ""
    return f'<tr class="{kind}"{known}>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def numbers(text: str) -> str:
    """Plain text of a cell as HTML, with what follows ± in small print."""
    value, sign, error = escape(text).partition(" ± ")
    return f"{value} <small>± {error}</small>" if sign else value


def coloured_name(spec: str, colour: str) -> str:
    """A spec behind a dot of its colour."""
    return f'<span class="dot" style="--c:{colour}"></span>{escape(spec)}'


def badge(verdict: str, colour: str | None = None) -> str:
    """One word in a ring of its colour."""
    return f'<span class="verdict" style="--c:{colour or verdict_colour(verdict)}">{escape(verdict)}</span>'


def chip(spec: str, colour: str, *, control: bool = False) -> str:
    """A spec as a button that picks it in all figures and tables."""
    kind = "chip control" if control else "chip"
    dot = f'<i style="--c:{colour}"></i>'
    return f'<button type="button" class="{kind}" data-spec="{escape(spec)}">{dot}{escape(spec)}</button>'


def definitions(facts: Mapping[str, str]) -> str:
    """Names and what they mean."""
    lines = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items())
    return f"<dl>{lines}</dl>"


def _asset(name: str) -> str:
    return (files("posenc.lab.report") / "assets" / name).read_text(encoding="utf-8")


def _json(data: Mapping[str, Any]) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
