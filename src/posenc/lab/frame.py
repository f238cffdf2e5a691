"""The frame of report.html: one file with everything in it, that opens without a network, by day and night, on a phone.

A task fills in headline, paragraphs, charts as data for Plotly, and tables.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any

from plotly.offline import get_plotlyjs

from posenc.lab.record import RunRecord
from posenc.lab.tasks.task import Facts, Numbers

_STYLE = """
:root { --ink:#1b1f24; --soft:#57606a; --paper:#ffffff; --card:#f6f8fa;
  --line:#d8dee4; --grid:#e5e9ee; color-scheme:light dark; }
@media (prefers-color-scheme: dark) {
  :root { --ink:#e6e9ec; --soft:#9aa4ae; --paper:#14171a; --card:#1d2125; --line:#343a40; --grid:#2b3136; } }
* { box-sizing:border-box; }
body { margin:0; background:var(--paper); color:var(--ink);
  font:16px/1.6 system-ui,-apple-system,"Segoe UI",sans-serif; }
main { max-width:62rem; margin:0 auto; padding:2rem 1.1rem 4rem; }
.kicker { color:var(--soft); margin:0; }
h1 { font-size:clamp(1.7rem,5vw,2.6rem); line-height:1.15; margin:.2rem 0 1rem; }
h2 { font-size:1.25rem; margin:2.6rem 0 .4rem; }
.lead { font-size:1.1rem; max-width:48rem; }
.note { color:var(--soft); font-size:.92rem; max-width:48rem; }
.chart { width:100%; height:26rem; }
.scroll { overflow-x:auto; border:1px solid var(--line); border-radius:8px; }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums; font-size:.92rem; }
th,td { padding:.42rem .7rem; text-align:right; white-space:nowrap; border-bottom:1px solid var(--line); }
th { color:var(--soft); font-weight:600; } th:first-child,td:first-child { text-align:left; font-weight:600; }
tr:last-child td { border-bottom:0; } tr.control td:first-child { font-weight:400; font-style:italic; }
.dot { display:inline-block; width:.7em; height:.7em; border-radius:50%; margin-right:.5em; }
.verdict { padding:.08rem .5rem; border-radius:1rem; border:1.5px solid; font-size:.85rem; }
dl { display:grid; grid-template-columns:minmax(7rem,max-content) minmax(0,1fr);
  gap:.25rem 1rem; font-size:.92rem; margin:.4rem 0; }
dt { color:var(--soft); } dd { margin:0; overflow-wrap:anywhere; }
pre { background:var(--card); padding:.8rem 1rem; border-radius:8px; white-space:pre-wrap; overflow-wrap:anywhere; }
"""

_SCRIPT = """
const report = JSON.parse(document.getElementById("report-data").textContent);
function shade(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function draw() {
  const narrow = window.innerWidth < 620;
  for (const chart of report.charts) {
    const shades = {gridcolor: shade("--grid"), linecolor: shade("--line"), zeroline: false};
    const axis = extra => Object.assign({}, shades, extra);
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: {color: shade("--ink"), size: 13},
      margin: {l: 52, r: 12, t: 12, b: 50}, hovermode: "closest", xaxis: axis(chart.xaxis), yaxis: axis(chart.yaxis),
      legend: narrow ? {orientation: "h", y: -0.25} : {}, shapes: chart.shapes, annotations: chart.annotations,
    };
    Plotly.react(chart.id, chart.traces, layout, {responsive: true, displaylogo: false, displayModeBar: false});
  }
}
draw();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
"""


def document(title: str, lead: str, body: str, data: dict[str, Any], record: RunRecord[Numbers, Facts]) -> str:
    """The whole page.

    Args:
        title: the headline, plain text.
        lead: the paragraph below it, plain text.
        body: HTML between that and "How to repeat it"; each chart is an empty ``div`` with its id.
        data: ``charts``, and whatever else a reader of the file may want; plain data.
        record: of the run.
    """
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · posenc compare</title>
<link rel="icon" href="data:,">
<style>{_STYLE}</style>
</head>
<body>
<main>
<p class="kicker">posenc compare · {escape(record.facts.name)}</p>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
{body}
<h2>How to repeat it</h2>
<pre>{escape(record.command)}</pre>
{_definitions("Settings", record.settings.shown())}
{_definitions("Corpus", record.facts.shown())}
{_definitions("Versions", record.versions)}
{_definitions("Machine", record.machine)}
</main>
<script type="application/json" id="report-data">{_json(data)}</script>
<script>{get_plotlyjs()}</script>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def note(text: str) -> str:
    """A paragraph in small print."""
    return f'<p class="note">{escape(text)}</p>'


def table(heads: list[str], lines: list[str]) -> str:
    """A table; ``heads`` are plain text, ``lines`` come from `table_row`."""
    head = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def table_row(cells: list[str], kind: str = "") -> str:
    """A line of a table; ``cells`` are HTML."""
    return f'<tr class="{kind}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def coloured_name(spec: str, colour: str) -> str:
    """A spec behind a dot of its colour."""
    return f'<span class="dot" style="background:{colour}"></span>{escape(spec)}'


def badge(verdict: str, colour: str) -> str:
    """One word in a ring."""
    return f'<span class="verdict" style="border-color:{colour}">{verdict}</span>'


def _json(data: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")


def _definitions(name: str, facts: dict[str, str]) -> str:
    lines = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items())
    return f"<h2>{name}</h2><dl>{lines}</dl>"
