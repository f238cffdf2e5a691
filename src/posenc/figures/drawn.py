"""What a figure shows, as data: a heat map, curves, or a flow chart, with its texts."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Heat:
    """A map: rows of numbers, drawn the stronger the larger.

    Attributes:
        rows: from the top.
        across, down: what columns and rows are.
        label: alternative text.
        caption: what the figure shows.
    """

    rows: Sequence[Sequence[float]]
    across: str
    down: str
    label: str
    caption: str

    def table(self) -> str:
        """The numbers as CSV, a line a square."""
        cells = [(x, y, number) for y, row in enumerate(self.rows) for x, number in enumerate(row)]
        return _csv((self.across, self.down, "value"), cells)


@dataclass(frozen=True)
class Curves:
    """Lines through points (x, y) by name.

    Attributes:
        series: the points of each.
        across, down: what x and y are.
        label: alternative text.
        caption: what the figure shows.
        log, log_x: y, or x, is drawn by its logarithm.
    """

    series: Mapping[str, Sequence[tuple[float, float]]]
    across: str
    down: str
    label: str
    caption: str
    log: bool = False
    log_x: bool = False

    def table(self) -> str:
        """The numbers as CSV, a line a point."""
        cells = [(name, x, y) for name, line in self.series.items() for x, y in line]
        return _csv(("series", self.across, self.down), cells)


@dataclass(frozen=True)
class Flow:
    """A flow chart of components, from the bottom to the top.

    Attributes:
        boxes: the column and the row of each by its words, from 0, the left one and the lowest.
        arrows: from which box to which.
        label: alternative text.
        caption: what the figure shows.

    Raises:
        ValueError: for an arrow from or to no box.
    """

    boxes: Mapping[str, tuple[float, float]]
    arrows: Sequence[tuple[str, str]]
    label: str
    caption: str

    def __post_init__(self) -> None:
        lost = {end for arrow in self.arrows for end in arrow} - set(self.boxes)
        if lost:
            raise ValueError(f"arrows lead from box to box; there is none named {', '.join(sorted(lost))}")

    def table(self) -> str:
        """The arrows as CSV, a line each."""
        return _csv(("from", "to"), self.arrows)


Figure = Heat | Curves | Flow


def _csv(heads: Sequence[str], cells: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heads, *cells])
    return text.getvalue()
