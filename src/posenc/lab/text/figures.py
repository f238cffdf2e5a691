"""The two curves of a report as PNG: bits by length, loss by position."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from posenc.lab.files import write_atomically
from posenc.lab.report.palette import colours
from posenc.lab.text.corpus import Facts
from posenc.lab.text.profiles import Settings
from posenc.lab.text.table import Row, thinned
from posenc.lab.words import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEIGHT = 4.8  # inches
MARKERS = "osD^vPX*"
STYLE: dict[Any, Any] = {
    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25,
    "axes.titlelocation": "left", "axes.titleweight": "bold", "figure.constrained_layout.use": True,
}  # fmt: skip


def draw_figures(out: Path, rows: list[Row], settings: Settings, facts: Facts) -> list[Path]:
    """Write ``bits_by_length.png`` and ``loss_by_position.png``."""
    paths = [out / "bits_by_length.png", out / "loss_by_position.png"]
    for path, draw in zip(paths, (_by_length, _by_position), strict=True):
        save_figure(
            path, partial(draw, rows=rows, settings=settings, facts=facts), height=max(_HEIGHT, 0.23 * len(rows) + 1)
        )
    return paths


def save_figure(path: Path, draw: Callable[[Axes], None], height: float = _HEIGHT) -> None:
    """Write what ``draw`` puts on an empty pair of axes; ``height`` in inches, so that all names have room."""
    import matplotlib as mpl  # not before: a worker draws nothing
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, height), dpi=150)
        draw(figure.subplots())
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    write_atomically(path, buffer.getvalue())


class _Label(NamedTuple):
    """A name at the right end of a curve."""

    y: float
    text: str
    colour: str


def _by_length(axes: Axes, rows: list[Row], settings: Settings, facts: Facts) -> None:
    shade, labels = colours(rows), list[_Label]()
    for number, row in enumerate(rows):
        points = [(i, bits) for i, bits in enumerate(row.bits) if bits is not None]
        marker = MARKERS[number % len(MARKERS)]
        style = "--" if row.control else "-"
        axes.plot(*zip(*points, strict=True), color=shade[row.spec], marker=marker, markersize=5, linestyle=style)
        if row.bits[-1] is not None:
            labels.append(_Label(row.bits[-1], row.spec, shade[row.spec]))
        else:
            text, (x, y) = f"{row.spec}: undefined past its table", points[-1]
            axes.annotate(text, (x, y), xytext=(8, 3), textcoords="offset points", color=shade[row.spec], fontsize=9)
    for name, bits in (("zlib -9", facts.zlib_bits), ("lzma", facts.lzma_bits)):
        axes.axhline(bits, color="0.5", linewidth=1, linestyle=":")
        labels.append(_Label(bits, name, "0.5"))
    axes.set_xticks(range(len(settings.lengths)), [f"{k}×\n{k * settings.train_length}" for k in settings.lengths])
    axes.set_xlabel("bytes of text the model reads")
    axes.set_ylabel("bits per byte, same bytes scored at every length")
    axes.set_title(title(settings))
    axes.margins(x=0.02)
    _name_ends(axes, labels)


def _by_position(axes: Axes, rows: list[Row], settings: Settings, facts: Facts) -> None:
    colour, labels, last = colours(rows), list[_Label](), max((row.positions[-1][0] for row in rows), default=0.0)
    for row in rows:
        points = thinned(row.positions)
        style = "--" if row.control else "-"
        axes.plot(*zip(*points, strict=True), color=colour[row.spec], linestyle=style, linewidth=1.5)
        if row.positions[-1][0] == last:
            labels.append(_Label(points[-1][1], row.spec, colour[row.spec]))
        else:
            axes.annotate(
                row.spec, points[-1], xytext=(4, 0), textcoords="offset points", color=colour[row.spec], fontsize=9
            )
    axes.axvline(settings.train_length, color="0.4", linewidth=1, linestyle=":")
    where = (settings.train_length, 1)
    axes.annotate(" trained length", where, xycoords=("data", "axes fraction"), va="top", fontsize=8, color="0.35")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("position in the longest window, bytes")
    axes.set_ylabel("bits per byte")
    axes.set_title("Where it breaks: loss by position")
    axes.margins(x=0.02)
    _name_ends(axes, labels)


def _name_ends(axes: Axes, labels: list[_Label]) -> None:
    """Write names beside the right ends, as near as they can be without overlapping, each with a line to its end."""
    low, high = axes.get_ylim()
    labels = sorted(labels)
    gap = 0.043 * _HEIGHT / _inches(axes) * (high - low)
    heights = [max(low + i * gap, y) for i, y in enumerate(spread([label.y for label in labels], gap))]
    for label, height in zip(labels, heights, strict=True):
        axes.annotate(
            label.text, (1, label.y), xytext=(1.05, height), xycoords=("axes fraction", "data"),
            textcoords=("axes fraction", "data"), color=label.colour, fontsize=9, va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": label.colour, "linewidth": 0.6, "shrinkB": 0, "relpos": (0, 0.5)},
        )  # fmt: skip


def _inches(axes: Axes) -> float:
    """The height of the figure that a pair of axes stands in."""
    figure = axes.get_figure(root=True)
    return _HEIGHT if figure is None else float(figure.get_figheight())


def spread(heights: list[float], gap: float) -> list[float]:
    """Growing heights moved apart to at least ``gap``; those that collide are centred where they belong."""
    groups: list[list[float]] = []  # each: wanted heights of labels that stand in one stack
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _bottom(groups[-1], gap) - _top(groups[-2], gap) < gap:
            groups[-2:] = [groups[-2] + groups[-1]]
    return [_bottom(group, gap) + i * gap for group in groups for i in range(len(group))]


def _bottom(group: list[float], gap: float) -> float:
    return sum(group) / len(group) - gap * (len(group) - 1) / 2


def _top(group: list[float], gap: float) -> float:
    return sum(group) / len(group) + gap * (len(group) - 1) / 2
