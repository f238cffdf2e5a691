"""The two pictures of a report as PNG: accuracy by the constant added to positions, and by the grid of tokens."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from matplotlib.axes import Axes

from posenc.lab.figures import MARKERS, colours, save_figure
from posenc.lab.images import words
from posenc.lab.images.measure import FINER, LARGE, SHIFT, TRAINED
from posenc.lab.images.pictures import PictureFacts
from posenc.lab.images.table import ImageRow

GRIDS = [TRAINED, SHIFT, *FINER, *LARGE]


def draw_figures(out: Path, rows: list[ImageRow], facts: PictureFacts) -> list[Path]:
    """Write ``accuracy_by_constant.png`` and ``accuracy_by_grid.png``."""
    constants = [TRAINED, *(rows[0].constants if rows else [])]
    paths = [out / "accuracy_by_constant.png", out / "accuracy_by_grid.png"]
    titles = ["A constant added to all positions", "The picture moved, finer tokens, enlarged"]
    for path, tests, title, joined in zip(paths, (constants, GRIDS), titles, (True, False), strict=True):
        save_figure(path, partial(_accuracy, rows=rows, tests=tests, title=title, joined=joined, facts=facts))
    return paths


def _accuracy(
    axes: Axes, *, rows: list[ImageRow], tests: list[str], title: str, joined: bool, facts: PictureFacts
) -> None:
    """Means with ranges over seeds; encodings stand beside each other, so that no range hides another."""
    colour = colours(rows)
    for number, row in enumerate(rows):
        beside = 0.6 * ((number + 0.5) / len(rows) - 0.5)
        found = [(i + beside, accuracy) for i, test in enumerate(tests) if (accuracy := row.accuracy(test)) is not None]
        axes.errorbar(
            [x for x, _ in found],
            [100 * a.mean for _, a in found],
            yerr=([100 * (a.mean - a.low) for _, a in found], [100 * (a.high - a.mean) for _, a in found]),
            color=colour[row.spec], marker=MARKERS[number % len(MARKERS)], markersize=5, capsize=2, label=row.spec,
            linestyle="-" if joined else "none", linewidth=1.2,
        )  # fmt: skip
    axes.axhline(100 / len(facts.classes), color="0.5", linewidth=1, linestyle=":")
    axes.set_xticks(range(len(tests)), [words.label(test).replace(", ", "\n") for test in tests])
    axes.set_ylim(0, 102)
    axes.set_ylabel("recognised, %; range over seeds; dotted: guessing")
    axes.set_title(title)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.14))
