"""Drawing a chart without a network: into a page, and as SVG, PNG and PDF files; and the colors of encodings.

On a page a chart is static SVG. Its text and axes have the colors of the page's style, so that they follow light and
dark mode; names of encodings link to their formulas; a mark's meaning is its tooltip.

An encoding has one color, by its name, on every page and in every theme. The hue says which hook point it belongs to,
the shade which encoding of that hook point it is. Hues are from Okabe and Ito's palette, which color-blind readers can
distinguish; every shade is readable on white and on dark. Names accompany colors wherever shades must be told
apart.
"""

from __future__ import annotations

import colorsys
import copy
import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import altair as alt
import pandas as pd
import vl_convert as vlc

from posenc.catalogue import encoding_info, list_encodings
from posenc.lab.files import write_atomically

WIDE, NARROW = 1000, 354  # pixels: width of a page on a desktop, and on a telephone without its margins
HUES = {  # hue in [0, 1) and saturation
    "embedding": (0.105, 0.85),  # orange
    "rotary": (0.56, 0.85),  # blue
    "bias": (0.45, 0.85),  # bluish green
    "score": (0.055, 0.80),  # vermilion
    "weight": (0.90, 0.45),  # reddish purple
    "mixed": (0.72, 0.45),  # violet: mixes of several encodings, and a user's classes
    "none": (0.60, 0.08),  # grey
}
GOLDEN = (5**0.5 - 1) / 2
DARKEST, LIGHTEST = 0.13, 0.29  # relative luminance: at least 3 : 1 against white and against the dark page
PAGE = {  # variables of templates/page.css, by the color that a file has in their place
    "#1b1f24": "--ink", "#59636e": "--soft", "#dde3e9": "--line", "#bcc4cc": "--others", "#eef1f4": "--band",
    "#ffffff": "--paper",
}  # fmt: skip
INK, SOFT, LINE, GREY, BAND, PAPER = PAGE
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
_INVISIBLE = "class|role|aria-[a-z]+|pointer-events|font-family|version"  # attributes without a visible effect
_LONG = 300  # characters of a path that is worth an id if it occurs again
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
class DrawnChart:
    """A chart with its title and caption, drawn at any width."""

    id: str  # name of its files
    title: str
    caption: str
    chart: alt.TopLevelMixin

    @cached_property
    def _svg_by_width(self) -> dict[int, str]:
        return {}

    @cached_property
    def _spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.chart.to_dict()
        return {**spec, "config": {**spec.get("config", {}), **_CONFIG}}

    def svg(self, width: int = WIDE) -> str:
        """A self-contained file on white."""
        if width not in self._svg_by_width:
            self._svg_by_width[width] = vlc.vegalite_to_svg(fitted(self._spec, width))
        return self._svg_by_width[width]

    def inline(self, name: str, width: int = WIDE, linked: Collection[str] = ()) -> str:
        """Part of a page: its ids begin with ``name``, and encodings in ``linked`` link to ``#formula-NAME``."""
        return _for_page(self.svg(width), name, linked)

    def csv(self) -> str:
        """The numbers that the chart shows."""
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
    """A Vega-Lite specification at a width in pixels; charts that state their own width keep it.

    Charts side by side share the width, and on a telephone those with their own width are left out; panels that wrap
    get as many columns as are readable, and a single chart gets the whole width. The width of labels at the left is
    stated as ``usermeta={"label_width": pixels}``.
    """
    spec = copy.deepcopy(spec)
    label_width = spec.get("usermeta", {}).get("label_width", 60)
    if "hconcat" in spec:
        free = [part for part in spec["hconcat"] if "width" not in part]
        fixed = [part for part in spec["hconcat"] if "width" in part] if width > NARROW else []
        taken = label_width + sum(part["width"] for part in fixed) + 14 * (len(free) + len(fixed) - 1)
        spec["hconcat"] = [
            {"width": (width - taken) / len(free), **part} for part in spec["hconcat"] if part in free + fixed
        ]
    elif "facet" in spec:
        columns = min(width // 112, 8)
        spec["columns"] = columns
        spec["spec"].setdefault("width", (width - label_width - 12 * (columns - 1)) / columns)
    elif not any(part in spec for part in ("vconcat", "concat", "repeat")):
        spec.setdefault("width", width - label_width)
    return spec


def data_link(text: str, kind: str) -> str:
    """A data: URL that contains a text file."""
    return f"data:{kind};charset=utf-8,{quote(text, safe=' ,;:+-./()')}"


def _for_page(svg: str, name: str, linked: Collection[str]) -> str:
    svg = re.sub(r'<path class="(?:back|fore)ground"(?:(?!fill=)[^>])*/>', "", svg)  # invisible boxes of groups
    svg = re.sub(r'<rect width="[\d.]+" height="[\d.]+" fill="#ffffff"/>', "", svg, count=1)
    svg = re.sub(r"<(path|circle) aria-label=(\"[^\"]*\")([^>]*)/>", r"<\1\3><title>\2</title></\1>", svg)
    svg = re.sub(r'<title>"([^"]*)"</title>', r"<title>\1</title>", svg)
    svg = re.sub(rf' (?:{_INVISIBLE})="[^"]*"| (?:opacity|stroke-width)="1"', "", svg)
    svg = re.sub(r' (?:d|transform)="[^"]*"', lambda m: re.sub(r"(\d\.\d)\d+", r"\1", m[0]), svg)
    svg = re.sub(r'"(#[0-9a-f]{6})"', lambda m: f'"var({PAGE[m[1]]})"' if m[1] in PAGE else m[0], svg)
    for spec in linked:
        text = escape(spec)
        svg = re.sub(rf"(<text [^>]*>{re.escape(text)}</text>)", rf'<a href="#formula-{text}">\1</a>', svg)
    return _deduplicated(svg, name).replace("<svg ", f'<svg font-family="{FONT}" ', 1)


def _deduplicated(svg: str, name: str) -> str:
    """Repeated long paths, such as the grey lines of every panel, refer to their first occurrence."""
    known: dict[str, str] = {}

    def reference(match: re.Match[str]) -> str:
        path = match[0]
        if path in known:
            return f'<use href="#{known[path]}"/>'
        known[path] = f"{name}-{len(known)}"
        return f'<path id="{known[path]}"{path[5:]}'

    return re.sub(rf"<path [^>]{{{_LONG},}}/>", reference, svg)


def kind_of(spec: str) -> str:
    """The hook point of an encoding, a key of `HUES`."""
    if spec == "nope":
        return "none"
    return encoding_info(spec).hook_point if spec in list_encodings() else "mixed"


@cache
def encoding_color(spec: str) -> str:
    """The color of an encoding, ``#rrggbb``, which depends only on its name."""
    kind = kind_of(spec)
    if kind == "none":
        share = 0.5
    elif kind == "mixed":
        share = hashlib.sha256(spec.encode()).digest()[0] / 255
    else:
        share = (
            0.5 + GOLDEN * list_encodings(kind).index(spec)
        ) % 1  # neighbours differ, and a new encoding changes no other color
    hue, saturation = HUES[kind]
    return _shade(hue + 0.03 * (share - 0.5), saturation, DARKEST + share * (LIGHTEST - DARKEST))


def luminance(color: str) -> float:
    """Relative luminance of ``#rrggbb``, 0 to 1, as WCAG 2 defines it."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _shade(hue: float, saturation: float, target: float) -> str:
    """The color of a hue with luminance ``target``, by bisection: luminance grows with the lightness of HLS."""
    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        parts = colorsys.hls_to_rgb(hue % 1, middle, saturation)
        color = "#" + "".join(f"{round(255 * part):02x}" for part in parts)
        low, high = (middle, high) if luminance(color) < target else (low, middle)
    return color
