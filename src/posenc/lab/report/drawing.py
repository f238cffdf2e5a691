"""One specification of a chart, drawn without a network: into a page, and as SVG, PNG and PDF files.

On a page a chart is static SVG. Its text and axes have colours of the page's style, so that they follow light and
dark; names of encodings are links to their formulas; what a mark stands for is its tooltip.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import altair as alt
import pandas as pd
import vl_convert as vlc

from posenc.lab.files import write_atomically
from posenc.lab.report.palette import INK, LINE, PAGE, PAPER, SOFT

WIDE, NARROW = 1000, 354  # pixels: of a desktop's page, and of a telephone's without its margins
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
_SILENT = "class|role|aria-[a-z]+|pointer-events|font-family|version"  # attributes that show nothing
_LONG = 300  # signs of a path that is worth naming where it comes again
_CONFIG = {
    "aria": False, "background": PAPER, "font": "sans-serif", "padding": 4,
    "view": {"stroke": None}, "concat": {"spacing": 14}, "facet": {"spacing": 12},
    "axis": {
        "labelColor": SOFT, "titleColor": SOFT, "gridColor": LINE, "domainColor": LINE, "tickColor": LINE,
        "labelFontSize": 11, "titleFontSize": 11.5, "titleFontWeight": "normal", "tickSize": 3, "labelOverlap": True,
    },
    "header": {"labelColor": INK, "labelFontSize": 12, "labelFontWeight": 600, "titleColor": SOFT, "labelPadding": 3},
    "legend": {
        "labelColor": INK, "titleColor": SOFT, "labelFontSize": 11.5, "orient": "top", "symbolSize": 70,
        "symbolFillColor": SOFT, "symbolStrokeColor": SOFT,
    },
    "title": {"color": INK, "fontSize": 12.5, "anchor": "start"},
    "text": {"color": INK, "fontSize": 11},
}  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """A chart with what is said of it."""

    id: str  # of its files
    title: str
    caption: str
    chart: alt.TopLevelMixin

    @cached_property
    def _drawn(self) -> dict[int, str]:
        return {}

    @cached_property
    def _spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.chart.to_dict()
        return {**spec, "config": {**spec.get("config", {}), **_CONFIG}}

    def svg(self, width: int = WIDE) -> str:
        """A file by itself, on white."""
        if width not in self._drawn:
            self._drawn[width] = vlc.vegalite_to_svg(fitted(self._spec, width))
        return self._drawn[width]

    def inline(self, name: str, width: int = WIDE, linked: Collection[str] = ()) -> str:
        """A part of a page: ``name`` begins its ids, names in ``linked`` lead to ``#formula-NAME``."""
        return _for_page(self.svg(width), name, linked)

    def csv(self) -> str:
        """The numbers that it shows."""
        frame = pd.DataFrame(next(iter(self._spec.get("datasets", {}).values()), []))
        text: str = frame.drop(columns=["colour", "alone"], errors="ignore").to_csv(index=False, float_format="%.5g")
        return text

    def write(self, folder: Path) -> list[Path]:
        """Write ID.svg, ID.png and ID.pdf."""
        svg = self.svg()
        kinds = {"svg": svg.encode(), "png": vlc.svg_to_png(svg, scale=2), "pdf": vlc.svg_to_pdf(svg)}
        for kind, content in kinds.items():
            write_atomically(folder / f"{self.id}.{kind}", content)
        return [folder / f"{self.id}.{kind}" for kind in kinds]


def fitted(spec: dict[str, Any], width: int) -> dict[str, Any]:
    """A specification at a width in pixels; one that states its own widths keeps them.

    Charts side by side share the width, without those that have their own where it is narrow; panels that wrap get as
    many columns as are readable, and one alone gets all of it. What stands beside the charts, such as names, says its
    width as ``usermeta={"beside": pixels}``.
    """
    spec = copy.deepcopy(spec)
    beside = spec.get("usermeta", {}).get("beside", 60)
    if "hconcat" in spec:
        free = [part for part in spec["hconcat"] if "width" not in part]
        fixed = [part for part in spec["hconcat"] if "width" in part] if width > NARROW else []
        taken = beside + sum(part["width"] for part in fixed) + 14 * (len(free) + len(fixed) - 1)
        spec["hconcat"] = [
            {"width": (width - taken) / len(free), **part} for part in spec["hconcat"] if part in free + fixed
        ]
    elif "facet" in spec:
        columns = min(width // 112, 8)
        spec["columns"] = columns
        spec["spec"].setdefault("width", (width - beside - 12 * (columns - 1)) / columns)
    elif not any(part in spec for part in ("vconcat", "concat", "repeat")):
        spec.setdefault("width", width - beside)
    return spec


def data_link(text: str, kind: str) -> str:
    """An address that holds a text file itself."""
    return f"data:{kind};charset=utf-8,{quote(text, safe=' ,;:+-./()')}"


def _for_page(svg: str, name: str, linked: Collection[str]) -> str:
    svg = re.sub(r'<path class="(?:back|fore)ground"(?:(?!fill=)[^>])*/>', "", svg)  # of groups, and invisible
    svg = re.sub(r'<rect width="[\d.]+" height="[\d.]+" fill="#ffffff"/>', "", svg, count=1)
    svg = re.sub(r"<(path|circle) aria-label=(\"[^\"]*\")([^>]*)/>", r"<\1\3><title>\2</title></\1>", svg)
    svg = re.sub(r'<title>"([^"]*)"</title>', r"<title>\1</title>", svg)
    svg = re.sub(rf' (?:{_SILENT})="[^"]*"| (?:opacity|stroke-width)="1"', "", svg)
    svg = re.sub(r' (?:d|transform)="[^"]*"', lambda m: re.sub(r"(\d\.\d)\d+", r"\1", m[0]), svg)
    svg = re.sub(r'"(#[0-9a-f]{6})"', lambda m: f'"var({PAGE[m[1]]})"' if m[1] in PAGE else m[0], svg)
    for spec in linked:
        text = escape(spec)
        svg = re.sub(rf"(<text [^>]*>{re.escape(text)}</text>)", rf'<a href="#formula-{text}">\1</a>', svg)
    return _once(svg, name).replace("<svg ", f'<svg font-family="{FONT}" ', 1)


def _once(svg: str, name: str) -> str:
    """Long paths that come again, as what is grey in every panel does, refer to the first of them."""
    known: dict[str, str] = {}

    def placed(match: re.Match[str]) -> str:
        path = match[0]
        if path in known:
            return f'<use href="#{known[path]}"/>'
        known[path] = f"{name}-{len(known)}"
        return f'<path id="{known[path]}"{path[5:]}'

    return re.sub(rf"<path [^>]{{{_LONG},}}/>", placed, svg)
