"""Accuracy by test, with its range over seeds: as a PNG, and as data for Plotly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from posenc.lab.report.accuracy import Accuracy
from posenc.lab.report.palette import colours
from posenc.lab.report.traces import curve, mark, meta
from posenc.lab.text.figures import MARKERS, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Row(Protocol):
    """One spec of the table."""

    @property
    def spec(self) -> str: ...
    @property
    def verdict(self) -> str: ...

    def accuracy(self, test: str) -> Accuracy | None:
        """In one test; None where the encoding is undefined."""


@dataclass(frozen=True)
class Curves:
    """One picture: a curve of accuracy for each spec."""

    rows: Sequence[Row]
    tests: list[str]
    label: Callable[[str], str]
    title: str
    axis: str  # what the tests differ in
    right: str  # what it means to be right, one word
    guess: float  # accuracy of guessing
    joined: bool = True  # whether neighbouring tests are joined by lines

    def save(self, path: Path) -> None:
        """Write a PNG."""
        save_figure(path, partial(_draw, curves=self))

    def chart(self, name: str) -> dict[str, Any]:
        """For the page."""
        shape, label = mark(100 * self.guess, "guessing")
        return {
            "id": name,
            "traces": [_trace(self, row, colour) for row, colour in zip(self.rows, self._colours(), strict=True)],
            "ends": self.joined,
            "height": 460 if len(self.rows) > 8 else 400,
            "xaxis": {"title": {"text": self.axis}, "type": "category"},
            "yaxis": {"title": {"text": f"{self.right}, %"}, "range": [-2, 103]},
            "shapes": [shape],
            "annotations": [label],
        }

    def _colours(self) -> list[str]:
        shade = colours(self.rows)
        return [shade[row.spec] for row in self.rows]


def _draw(axes: Axes, curves: Curves) -> None:
    """Means with ranges over seeds; encodings stand beside each other, so that no range hides another."""
    rows, tests = curves.rows, curves.tests
    colour = colours(rows)
    for number, row in enumerate(rows):
        beside = 0.6 * ((number + 0.5) / len(rows) - 0.5)
        found = [(i + beside, accuracy) for i, test in enumerate(tests) if (accuracy := row.accuracy(test)) is not None]
        axes.errorbar(
            [x for x, _ in found],
            [100 * a.mean for _, a in found],
            yerr=([100 * (a.mean - a.low) for _, a in found], [100 * (a.high - a.mean) for _, a in found]),
            color=colour[row.spec], marker=MARKERS[number % len(MARKERS)], markersize=5, capsize=2, label=row.spec,
            linestyle="-" if curves.joined else "none", linewidth=1.2,
        )  # fmt: skip
    axes.axhline(100 * curves.guess, color="0.5", linewidth=1, linestyle=":")
    axes.set_xticks(range(len(tests)), [curves.label(test).replace(", ", "\n") for test in tests])
    axes.set_ylim(0, 102)
    axes.set_ylabel(f"{curves.right}, %; range over seeds; dotted: guessing")
    axes.set_title(curves.title)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.14))


def _trace(curves: Curves, row: Row, colour: str) -> dict[str, Any]:
    found = [row.accuracy(test) for test in curves.tests]
    columns = {
        "lowest seed": [None if a is None else round(100 * a.low, 3) for a in found],
        "highest seed": [None if a is None else round(100 * a.high, 3) for a in found],
    }
    error = {
        "type": "data", "symmetric": False, "thickness": 1.2, "width": 3, "color": colour,
        "array": [0 if a is None else 100 * (a.high - a.mean) for a in found],
        "arrayminus": [0 if a is None else 100 * (a.mean - a.low) for a in found],
    }  # fmt: skip
    labels = [curves.label(test).replace(", ", "<br>") for test in curves.tests]
    trace = curve(
        row, colour, labels, [None if a is None else 100 * a.mean for a in found], error_y=error,
        hovertemplate=f"<b>{row.spec}</b>: %{{y:.1f}} % {curves.right}<extra>{row.verdict}</extra>",
        meta=meta(row, columns=columns),
    )  # fmt: skip
    return trace if curves.joined else {**trace, "mode": "markers"}
