"""A figure as files: SVG, PDF, and its numbers as CSV."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from posenc.catalogue import CATALOGUE, find
from posenc.figures.drawn import Figure
from posenc.figures.mechanisms import figure_of
from posenc.figures.named import NAMED
from posenc.figures.svg import alone

KINDS = (".svg", ".pdf")


def figure(name: str) -> Figure:
    """What a name shows: a mechanism of `NAMED`, or what an encoding of the catalogue does.

    Raises:
        ValueError: for another name.

    >>> figure("alibi").across
    'distance (tokens back)'
    """
    return NAMED[name]() if name in NAMED else figure_of(find(name))


def names() -> list[str]:
    """All names."""
    return [*NAMED, *CATALOGUE]


def save(shown: Figure, file: Path) -> list[Path]:
    """Write a figure, and its numbers as CSV next to it; returns the files.

    Args:
        shown: the figure.
        file: with the ending .svg, or .pdf, which needs vl-convert of the extra ``lab``.

    Raises:
        ValueError: for another ending, and for a PDF without vl-convert.
        OSError: for a place that cannot be written to.
    """
    if file.suffix not in KINDS:
        raise ValueError(f"a figure ends in {' or '.join(KINDS)}, got {file.name}")
    drawing, csv_file = alone(shown), file.with_suffix(".csv")
    if file.suffix == ".pdf":
        if find_spec("vl_convert") is None:
            raise ValueError("a PDF needs vl-convert: pip install 'posenc[lab]', in a clone '.[lab]', or write an .svg")
        import vl_convert

        file.write_bytes(vl_convert.svg_to_pdf(drawing))
    else:
        file.write_text(drawing, encoding="utf-8")
    csv_file.write_text(shown.table(), encoding="utf-8")
    return [file, csv_file]
