"""Facts in columns as wide as the terminal; where the output is no terminal, one record a line, however long."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import TextIO

from posenc_cli.printable import fitting

NARROW = 60  # columns; below, a value stands under its label
_LABEL = 24  # columns that labels take at most


def width_of(stream: TextIO) -> int | None:
    """Columns of a terminal; None where the stream is none, and nothing is to be wrapped."""
    return max(20, shutil.get_terminal_size().columns) if stream.isatty() else None


def labelled(facts: Sequence[tuple[str, str]], stream: TextIO) -> list[str]:
    """A line for each fact: its label, and its value, wrapped next to it, or below it where there is no room."""
    width, lines = width_of(stream), list[str]()
    room = max((len(label) for label, _ in facts if len(label) <= _LABEL), default=0)
    for label, value in facts:
        text = fitting(value, stream)
        if width is None:
            lines.append(f"{label:<{room}}  {text}")
        elif width < NARROW or len(label) > room:
            lines += [label, *wrapped(text, width, "    " if width < NARROW else " " * (room + 2))]
        else:
            first, *rest = wrapped(text, width, " " * (room + 2)) or [""]
            lines += [f"{label:<{room}}  {first.strip()}", *rest]
    return lines


def paragraph(text: str, stream: TextIO) -> list[str]:
    """Text in lines as wide as the terminal."""
    width = width_of(stream)
    return [fitting(text, stream)] if width is None else wrapped(fitting(text, stream), width)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int, stream: TextIO) -> list[str]:
    """A table whose last two columns are wrapped to share what the others leave of the width."""
    cells = [[fitting(cell, stream) for cell in row] for row in [heads, *rows]]
    unwrapped = [max(len(row[i]) for row in cells) for i in range(len(heads) - 2)]
    left = width - sum(unwrapped) - 2 * (len(heads) - 1)
    last = min(max(len(row[-1]) for row in cells), left // 3)
    widths = [*unwrapped, left - last, last]
    lines = []
    for number, row in enumerate(cells):
        parts = [textwrap.wrap(cell, w) or [""] for cell, w in zip(row, widths, strict=True)]
        for i in range(max(map(len, parts))):
            line = (p[i] if i < len(p) else "" for p in parts)
            lines.append("  ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)).rstrip())
        if number == 0:
            lines.append("-" * width)
    return lines


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Lines of at most ``width`` columns."""
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
