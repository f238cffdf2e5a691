"""What a figure shows, as data: a map, curves, bars, vectors in a plane, tokens on a grid, a flow chart; and texts."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Heat:
    """A map: rows of numbers, drawn the stronger the larger; numbers that are not finite are hatched.

    Attributes:
        rows: from the top.
        across, down: what columns and rows are.
        label: alternative text: what is to be seen.
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
        across, down: what x and y are, with the unit in parentheses.
        label: alternative text: what is to be seen.
        caption: what the figure shows.
        log, log_x: y, or x, is drawn by its logarithm.
        levels: values of y that a dashed line marks, by name.
    """

    series: Mapping[str, Sequence[tuple[float, float]]]
    across: str
    down: str
    label: str
    caption: str
    log: bool = False
    log_x: bool = False
    levels: Mapping[str, float] = field(default_factory=dict)

    def table(self) -> str:
        """The numbers as CSV, a line a point; a level has no x."""
        cells: list[tuple[object, ...]] = [(name, x, y) for name, line in self.series.items() for x, y in line]
        cells += [(name, "", y) for name, y in self.levels.items()]
        return _csv(("series", self.across, self.down), cells)


@dataclass(frozen=True)
class Bars:
    """Horizontal bars: a row for each name, a column of bars for each quantity.

    Attributes:
        names: of the rows, from the top; a name may occur more than once.
        columns: numbers from 0 on, a quantity's one for each row.
        down: what the rows are.
        label: alternative text: what is to be seen.
        caption: what the figure shows.

    Raises:
        ValueError: for a column with more or fewer numbers than there are rows, or with a negative number.
    """

    names: Sequence[str]
    columns: Mapping[str, Sequence[float]]
    down: str
    label: str
    caption: str

    def __post_init__(self) -> None:
        for name, numbers in self.columns.items():
            if len(numbers) != len(self.names) or min(numbers) < 0:
                raise ValueError(f"column {name!r} needs {len(self.names)} numbers from 0 on, got {list(numbers)}")

    def table(self) -> str:
        """The numbers as CSV, a line a row."""
        return _csv((self.down, *self.columns), list(zip(self.names, *self.columns.values(), strict=True)))


@dataclass(frozen=True)
class Plane:
    """Vectors in the plane, drawn from the centre of unit circles.

    Attributes:
        circles: by title, the vectors (x, y) of each by name.
        across, down: what x and y are; of many small circles, what their columns and rows are.
        label: alternative text: what is to be seen.
        caption: what the figure shows.
        trail: each circle has one vector at successive positions, which are the names.
    """

    circles: Mapping[str, Mapping[str, tuple[float, float]]]
    across: str
    down: str
    label: str
    caption: str
    trail: bool = False

    def table(self) -> str:
        """The numbers as CSV, a line a vector."""
        cells = [(title, name, x, y) for title, vectors in self.circles.items() for name, (x, y) in vectors.items()]
        return _csv(("circle", "vector", "x", "y"), cells)


@dataclass(frozen=True)
class Stacked:
    """Horizontal bars of segments that follow one another: how a whole is divided.

    Attributes:
        rows: by the name of the bar, from the top, its segments: their kind and their length, above 0.
        across: what a length is.
        label: alternative text: what is to be seen.
        caption: what the figure shows.
    """

    rows: Mapping[str, Sequence[tuple[str, float]]]
    across: str
    label: str
    caption: str

    def table(self) -> str:
        """The segments as CSV, a line each."""
        cells = [(name, kind, length) for name, segments in self.rows.items() for kind, length in segments]
        return _csv(("row", "segment", self.across), cells)


@dataclass(frozen=True)
class Tokens:
    """Tokens at two coordinates, in panels with scales of their own; a sign and a colour for each kind of token.

    Attributes:
        panels: by title, the points (across, down) of each kind by name; equal points are drawn once.
        across, down: what the coordinates are; `down` grows downwards, as rows of a picture do.
        label: alternative text: what is to be seen.
        caption: what the figure shows.
    """

    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]
    across: str
    down: str
    label: str
    caption: str

    def table(self) -> str:
        """The tokens as CSV, a line each."""
        cells = [
            (title, kind, x, y) for title, kinds in self.panels.items() for kind, points in kinds.items()
            for x, y in points
        ]  # fmt: skip
        return _csv(("panel", "tokens", self.across, self.down), cells)


Figure = Heat | Curves | Bars | Plane | Stacked | Tokens


def _csv(heads: Sequence[str], cells: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heads, *cells])
    return text.getvalue()
