"""Figures of mechanisms, for papers and for the guide: what they show as data, drawn as SVG, written to files."""

from __future__ import annotations

from posenc.figures.drawn import Bars, Curves, Figure, Heat, Plane, Stacked, Tokens
from posenc.figures.named import figure, names, save
from posenc.figures.svg import alone, in_page

__all__ = [
    "Bars",
    "Curves",
    "Figure",
    "Heat",
    "Plane",
    "Stacked",
    "Tokens",
    "alone",
    "figure",
    "in_page",
    "names",
    "save",
]
