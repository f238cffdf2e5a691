"""Figures as SVG: to stand in a page that has the colours, or alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from posenc.figures.drawn import Curves, Figure, Flow, Heat

WIDTH, HEIGHT, LEFT, BELOW, ABOVE, LINE = 560, 260, 66, 40, 14, 18
COLOURS = ("#1b6ac9", "#c2410c", "#15803d", "#7c3aed", "#b91c8c", "#64748b", "#8a6d00", "#0e7490")
AT_NIGHT = ("#7ab8ff", "#ffa36b", "#6fdc8c", "#c4a7ff", "#ff8fd8", "#a8b3c2", "#e0c24a", "#5fd0e6")  # a page has both
SERIES = len(COLOURS)
COLUMN, ROW, BOX = 108, 56, (100, 30)  # of a flow: from box to box, and a box itself
STYLE = (
    "text{font:13px sans-serif}.heat rect{fill:#1b6ac9}.frame{fill:none;stroke:#000;stroke-opacity:.35}"
    ".line{fill:none;stroke-width:2;stroke-linecap:round}.arrow{stroke:#000;stroke-opacity:.55}"
    + "".join(f".s{i}{{stroke:{colour}}}" for i, colour in enumerate(COLOURS))
)

NIGHT = (
    ".paper{fill:#fff}@media(prefers-color-scheme:dark){.paper{fill:#14171a}text{fill:#e6e9ec}.frame,.arrow{stroke:#fff}"
    + "".join(f".s{i}{{stroke:{colour}}}" for i, colour in enumerate(AT_NIGHT))
    + "}"
)


def in_page(shown: Figure) -> str:
    """A block of HTML whose style sheet has the classes' colours: the drawing, its legend, its caption."""
    legend = _legend(shown.series) if isinstance(shown, Curves) else ""
    wide, tall, inside = _content(shown)
    box = f'viewBox="0 0 {wide:.0f} {tall:.0f}" style="max-width:{wide:.0f}px"'
    drawing = f'<svg {box} role="img" aria-label="{escape(shown.label)}">{inside}</svg>'
    kind = type(shown).__name__.lower()
    return f'<figure class="drawing {kind}">{drawing}{legend}<figcaption>{escape(shown.caption)}</figcaption></figure>'


def alone(shown: Figure, *, at_night: bool = False) -> str:
    """A file of its own, for papers: its colours, its legend, and its caption as the title.

    Args:
        shown: the figure.
        at_night: on a ground of its own, which is dark where the reader's screen is, for pages on a network.
    """
    wide, tall, inside = _content(shown)
    names = list(shown.series) if isinstance(shown, Curves) and len(shown.series) > 1 else []
    each = 48 + 8 * max(map(len, names), default=0)
    columns = max(1, int(wide - LEFT) // each)
    inside += "".join(
        _entry(i, name, LEFT + i % columns * each, tall + i // columns * LINE) for i, name in enumerate(names)
    )
    tall += math.ceil(len(names) / columns) * LINE + 6 * bool(names)
    ground, style = ("", STYLE) if not at_night else ('<rect class="paper" width="100%" height="100%"/>', STYLE + NIGHT)
    box = f'width="{wide:.0f}" height="{tall:.0f}" viewBox="0 0 {wide:.0f} {tall:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img"><title>{escape(shown.caption)}</title>'
        f"<style>{style}</style>{ground}{inside}</svg>\n"
    )


def _content(shown: Figure) -> tuple[float, float, str]:
    """Width, height, and what is inside."""
    if isinstance(shown, Flow):
        return _flow(shown)
    return _heat(shown) if isinstance(shown, Heat) else _curves(shown)


def _heat(shown: Heat) -> tuple[float, float, str]:
    rows = shown.rows
    side = min(14.0, 480 / max(1, len(rows[0])))
    numbers = [number for row in rows for number in row if math.isfinite(number)]
    low, high = min(numbers), max(numbers)
    squares = "".join(
        f'<rect x="{LEFT + x * side:.1f}" y="{ABOVE + y * side:.1f}" width="{side:.1f}" height="{side:.1f}" '
        f'fill-opacity="{_share(number, low, high):.2f}"/>'
        for y, row in enumerate(rows)
        for x, number in enumerate(row)
        if math.isfinite(number) and _share(number, low, high) >= 0.01
    )
    wide, tall = side * len(rows[0]), side * len(rows)
    frame = f'<rect class="frame" x="{LEFT}" y="{ABOVE}" width="{wide:.1f}" height="{tall:.1f}"/>'
    words = _text(LEFT + wide / 2, ABOVE + tall + 24, shown.across) + _upright(ABOVE + tall / 2, shown.down)
    return LEFT + wide + 8, ABOVE + tall + BELOW, f'<g class="heat">{squares}</g>{frame}{words}'


def _curves(shown: Curves) -> tuple[float, float, str]:
    points = [point for line in shown.series.values() for point in line]
    xs, ys = [_scaled(x, shown.log_x) for x, _ in points], [_scaled(y, shown.log) for _, y in points]
    wide, tall = WIDTH - LEFT - 12, HEIGHT - ABOVE - BELOW

    def place(x: float, y: float) -> str:
        right = LEFT + _share(_scaled(x, shown.log_x), min(xs), max(xs)) * wide
        return f"{right:.1f},{ABOVE + (1 - _share(_scaled(y, shown.log), min(ys), max(ys))) * tall:.1f}"

    lines = "".join(
        f'<polyline class="line s{i % SERIES}" points="{" ".join(place(*point) for point in line)}"/>'
        if len(line) > 1
        else f'<path class="line s{i % SERIES}" style="stroke-width:8" d="M{place(*line[0])}h0"/>'
        for i, line in enumerate(shown.series.values())
    )
    frame = f'<rect class="frame" x="{LEFT}" y="{ABOVE}" width="{wide}" height="{tall}"/>'
    first, last = (_number(10**x if shown.log_x else x) for x in (min(xs), max(xs)))
    ends = _text(LEFT, HEIGHT - 24, first, "start") + _text(WIDTH - 12, HEIGHT - 24, last, "end")
    bottom, top = (_number(10**y if shown.log else y) for y in (min(ys), max(ys)))
    ends += _text(LEFT - 6, ABOVE + 10, top, "end") + _text(LEFT - 6, ABOVE + tall, bottom, "end")
    words = _text(LEFT + wide / 2, HEIGHT - 8, shown.across) + _upright(ABOVE + tall / 2, shown.down)
    return WIDTH, HEIGHT, frame + lines + ends + words


def _flow(shown: Flow) -> tuple[float, float, str]:
    highest = max(row for _, row in shown.boxes.values())
    wide = max(column for column, _ in shown.boxes.values()) * COLUMN + BOX[0] + 2

    def middle(name: str) -> tuple[float, float]:
        column, row = shown.boxes[name]
        return column * COLUMN + BOX[0] / 2 + 1, (highest - row) * ROW + BOX[1] / 2 + 1

    parts = []
    for start, end in shown.arrows:
        (x, y), (to_x, to_y) = middle(start), middle(end)
        top, tip = y - BOX[1] / 2, to_y + BOX[1] / 2
        parts.append(f'<path class="frame arrow" d="M{x:.0f} {top:.0f}L{to_x:.0f} {tip:.0f}m-4 7l4 -7l4 7"/>')
    for name in shown.boxes:
        x, y = middle(name)
        size = f'width="{BOX[0]}" height="{BOX[1]}" rx="6"'
        parts.append(f'<rect class="frame" x="{x - BOX[0] / 2:.0f}" y="{y - BOX[1] / 2:.0f}" {size}/>')
        parts.append(_text(x, y + 4.5, name))
    return wide, highest * ROW + BOX[1] + 2, "".join(parts)


def _legend(names: Mapping[str, object]) -> str:
    if len(names) < 2:
        return ""
    items = "".join(
        f'<span><svg viewBox="0 0 24 8" aria-hidden="true"><path class="line s{i % SERIES}" d="M0 4h24"/></svg>'
        f"{escape(name)}</span>"
        for i, name in enumerate(names)
    )
    return f'<div class="legend">{items}</div>'


def _entry(number: int, name: str, x: float, y: float) -> str:
    """A line of the legend inside a drawing."""
    stroke = f'<path class="line s{number % SERIES}" d="M{x} {y + 4:.0f}h24"/>'
    return stroke + _text(x + 32, y + 8, name, "start")


def _text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _upright(y: float, words: str) -> str:
    return f'<text transform="translate(14 {y:.1f}) rotate(-90)" text-anchor="middle">{escape(words)}</text>'


def _share(number: float, low: float, high: float) -> float:
    return (number - low) / (high - low) if high > low else 0.5


def _scaled(number: float, log: bool) -> float:
    return math.log10(number) if log else number


def _number(number: float) -> str:
    return f"{number:.3g}" if abs(number) < 10_000 else f"{number:,.0f}"
