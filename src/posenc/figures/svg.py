"""A figure as SVG: to stand in a page that has the colours, or alone.

Drawings are about 460 units wide at most with letters of 15, which are 11 pixels or more on a screen of 390.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Sequence
from html import escape

from posenc.figures.drawn import Bars, Curves, Figure, Heat, Plane, Stacked, Tokens

WIDTH, HEIGHT, LEFT, RIGHT, BELOW, ABOVE, LINE, LETTER = 460, 280, 76, 16, 48, 14, 22, 8.2
COLOURS = ("#1b6ac9", "#c2410c", "#15803d", "#7c3aed", "#b91c8c", "#64748b", "#8a6d00", "#0e7490")
AT_NIGHT = ("#7ab8ff", "#ffa36b", "#6fdc8c", "#c4a7ff", "#ff8fd8", "#a8b3c2", "#e0c24a", "#5fd0e6")  # a page has both
DASHES = ("none", "9 5", "2 5", "12 4 2 4")  # lines that lie on one another, or are seen without colours, differ too
SERIES = len(COLOURS)
SQUARE, SCALE = 16.0, 80  # of a heat map: the largest side of a cell, and the room for the scale of its colours
BAR, NUMBER = 24, 46  # of bars: from row to row, and the room for a number
_PALE = "stroke-linecap:butt;stroke-opacity:.35"  # a segment: the number on it can be read by day and by night
STYLE = (
    "text{font:15px sans-serif}.heat rect,.bar{fill:#1b6ac9}.frame{fill:none;stroke:#000;stroke-opacity:.4}"
    ".grid{stroke:#000;stroke-opacity:.12}.level{stroke:#000;stroke-opacity:.6;stroke-dasharray:3 3}"
    ".masked{stroke:#000;stroke-opacity:.3}.line{fill:none;stroke-width:2.5;stroke-linecap:round}"
    + "".join(f".s{i}{{stroke:{colour}}}" for i, colour in enumerate(COLOURS))
)

NIGHT = (
    ".paper{fill:#fff}@media(prefers-color-scheme:dark){.paper{fill:#14171a}text{fill:#e6e9ec}"
    ".frame,.grid,.level,.masked{stroke:#fff}.heat rect,.bar{fill:#7ab8ff}"
    + "".join(f".s{i}{{stroke:{colour}}}" for i, colour in enumerate(AT_NIGHT))
    + "}"
)


def in_page(shown: Figure) -> str:
    """A block of HTML whose style sheet has the classes' colours: the drawing, its legend, its caption."""
    wide, tall, inside = _content(shown)
    box = f'viewBox="0 0 {wide:.0f} {tall:.0f}" style="max-width:{wide:.0f}px"'
    drawing = f'<svg {box} role="img" aria-label="{escape(shown.label)}">{inside}</svg>'
    kind = type(shown).__name__.lower()
    legend, caption = _legend(shown), escape(shown.caption)
    return f'<figure class="drawing {kind}">{drawing}{legend}<figcaption>{caption}</figcaption></figure>'


def alone(shown: Figure, *, at_night: bool = False) -> str:
    """A file of its own, for papers: its colours, its legend, and its caption as the title.

    Args:
        shown: the figure.
        at_night: on a ground of its own, which is dark where the reader's screen is, for pages on a network.
    """
    wide, tall, inside = _content(shown)
    names = _entries(shown)
    each = 44 + LETTER * max(map(len, names), default=0)
    columns = max(1, int((wide - 8) / each))
    inside += "".join(
        _entry(shown, i, name, 8 + i % columns * each, tall + i // columns * LINE) for i, name in enumerate(names)
    )
    tall += math.ceil(len(names) / columns) * LINE + 6 * bool(names)
    ground, style = ("", STYLE) if not at_night else ('<rect class="paper" width="100%" height="100%"/>', STYLE + NIGHT)
    box = f'width="{wide:.0f}" height="{tall:.0f}" viewBox="0 0 {wide:.0f} {tall:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img"><title>{escape(shown.caption)}</title>'
        f"<desc>{escape(shown.label)}</desc><style>{style}</style>{ground}{inside}</svg>\n"
    )


def _content(shown: Figure) -> tuple[float, float, str]:
    """Width, height, and what is inside."""
    match shown:
        case Heat():
            return _heat(shown)
        case Curves():
            return _curves(shown)
        case Bars():
            return _bars(shown)
        case Plane():
            return _plane(shown)
        case Stacked():
            return _stacked(shown)
        case Tokens():
            return _tokens(shown)


def _entries(shown: Figure) -> list[str]:
    """The names of a legend: of lines, segments, tokens, or vectors that every circle has; none where there is one."""
    if isinstance(shown, Curves):
        names = list(shown.series)
    elif isinstance(shown, Stacked):
        names = list(dict.fromkeys(kind for segments in shown.rows.values() for kind, _ in segments))
    elif isinstance(shown, Tokens):
        names = list(dict.fromkeys(kind for kinds in shown.panels.values() for kind in kinds))
    elif isinstance(shown, Plane) and not shown.trail:
        names = list(next(iter(shown.circles.values())))
    else:
        return []
    return names if len(names) > 1 else []


def _heat(shown: Heat) -> tuple[float, float, str]:
    rows = shown.rows
    side = min(SQUARE, (WIDTH - LEFT - SCALE) / max(1, len(rows[0])))
    numbers = [value for row in rows for value in row if math.isfinite(value)]
    low, high = min(numbers), max(numbers)
    squares, masked = [], []
    for y, row in enumerate(rows):
        for x, value in enumerate(row):
            left, top = LEFT + x * side, ABOVE + y * side
            if not math.isfinite(value):
                masked.append(f"M{left:.1f} {top + side:.1f}l{side:.1f} {-side:.1f}")
            elif (share := _share(value, low, high)) >= 0.01:
                place = f'x="{left:.1f}" y="{top:.1f}" width="{side:.1f}" height="{side:.1f}"'
                squares.append(f'<rect {place} fill-opacity="{share:.2f}"/>')
    wide, tall = side * len(rows[0]), side * len(rows)
    hatched = f'<path class="masked" d="{"".join(masked)}"/>' if masked else ""
    frame = f'<rect class="frame" x="{LEFT}" y="{ABOVE}" width="{wide:.1f}" height="{tall:.1f}"/>'
    ticks = "".join(
        _text(LEFT + (x + 0.5) * side, ABOVE + tall + 18, number(x)) for x in linear_ticks(0, len(rows[0]) - 1)
    ) + "".join(_text(LEFT - 8, ABOVE + (y + 0.5) * side + 5, number(y), "end") for y in linear_ticks(0, len(rows) - 1))
    words = _text(LEFT + wide / 2, ABOVE + tall + 40, shown.across) + _upright(ABOVE + tall / 2, shown.down)
    scale = _scale(LEFT + wide + 14, tall, low, high)
    cells = f'<g class="heat">{"".join(squares)}</g>{hatched}'
    return LEFT + wide + SCALE, ABOVE + tall + BELOW, cells + frame + ticks + words + scale


def _scale(x: float, tall: float, low: float, high: float) -> str:
    """Which number each strength of the colour is."""
    steps, length = 12, min(tall, 140.0)
    boxes = "".join(
        f'<rect class="step" x="{x:.1f}" y="{ABOVE + i * length / steps:.1f}" width="12" height="{length / steps:.1f}" '
        f'fill-opacity="{1 - i / (steps - 1):.2f}"/>'
        for i in range(steps)
    )
    frame = f'<rect class="frame" x="{x:.1f}" y="{ABOVE}" width="12" height="{length:.1f}"/>'
    ends = _text(x + 15, ABOVE + 11, number(high), "start") + _text(x + 15, ABOVE + length, number(low), "start")
    return f'<g class="heat">{boxes}</g>{frame}{ends}'


def _curves(shown: Curves) -> tuple[float, float, str]:
    points = [point for line in shown.series.values() for point in line]
    all_x, all_y = [x for x, _ in points], [y for _, y in points] + list(shown.levels.values())
    xs, ys = [_scaled(x, shown.log_x) for x in all_x], [_scaled(y, shown.log) for y in all_y]
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - ABOVE - BELOW

    def across(x: float) -> float:
        return LEFT + _share(_scaled(x, shown.log_x), min(xs), max(xs)) * wide

    def up(y: float) -> float:
        return ABOVE + (1 - _share(_scaled(y, shown.log), min(ys), max(ys))) * tall

    parts = [f'<rect class="frame" x="{LEFT}" y="{ABOVE}" width="{wide}" height="{tall}"/>']
    for x in log_ticks(all_x) if shown.log_x else linear_ticks(min(all_x), max(all_x)):
        parts.append(f'<path class="grid" d="M{across(x):.1f} {ABOVE}v{tall}"/>')
        parts.append(_text(across(x), HEIGHT - BELOW + 18, tick(x)))
    for y in log_ticks(all_y) if shown.log else linear_ticks(min(all_y), max(all_y)):
        parts.append(f'<path class="grid" d="M{LEFT} {up(y):.1f}h{wide}"/>')
        parts.append(_text(LEFT - 6, up(y) + 5, tick(y), "end"))
    for i, line in sorted(enumerate(shown.series.values()), key=lambda each: each[0] % len(DASHES)):  # solid ones below
        places = [f"{across(x):.1f},{up(y):.1f}" for x, y in line]
        parts.append(
            f'<polyline class="line s{i % SERIES}"{_dash(i)} points="{" ".join(places)}"/>'
            if len(line) > 1
            else f'<path class="line s{i % SERIES}" style="stroke-width:8" d="M{places[0]}h0"/>'
        )
    passed = [place for line in shown.series.values() for place in _along([(across(x), up(y)) for x, y in line])]
    for name, y in shown.levels.items():
        parts.append(f'<path class="level" d="M{LEFT} {up(y):.1f}h{wide}"/>')
        words = f"{name}: {number(y)}"
        near = [x for x, other in passed if -22 < other - up(y) < 2]
        at_left, at_right = (
            sum(start < x < start + LETTER * len(words) for x in near)
            for start in (LEFT, LEFT + wide - LETTER * len(words))
        )
        x, anchor = (LEFT + wide - 6, "end") if at_left > at_right else (LEFT + 6, "start")
        parts.append(_text(x, up(y) - 5, words, anchor))
    parts.append(_text(LEFT + wide / 2, HEIGHT - 8, title(shown.across, log=shown.log_x)))
    parts.append(_upright(ABOVE + tall / 2, title(shown.down, log=shown.log)))
    return WIDTH, HEIGHT, "".join(parts)


def _along(places: Sequence[tuple[float, float]], apart: float = 4.0) -> list[tuple[float, float]]:
    """Places along a line, some units apart, to see what it crosses."""
    passed = list(places)
    for (x, y), (to_x, to_y) in itertools.pairwise(places):
        steps = math.ceil(math.dist((x, y), (to_x, to_y)) / apart)
        passed += [(x + (to_x - x) * i / steps, y + (to_y - y) * i / steps) for i in range(1, steps)]
    return passed


def _bars(shown: Bars) -> tuple[float, float, str]:
    left = 34 + LETTER * max(map(len, shown.names))
    each = (WIDTH - left) / len(shown.columns)
    top, tall = 26, BAR * len(shown.names)
    parts = [_upright(top + tall / 2, shown.down)]
    parts += [_text(left - 8, top + y * BAR + 17, name, "end") for y, name in enumerate(shown.names)]
    for column, (heading, numbers) in enumerate(shown.columns.items()):
        x, wide, most = left + column * each, each - NUMBER - 8, max(max(numbers), 1e-12)
        parts.append(_text(x, top - 9, heading, "start"))
        parts.append(f'<path class="frame" d="M{x:.1f} {top}v{tall}h{wide:.1f}"/>')
        for mark in linear_ticks(0, most, 2):
            parts.append(f'<path class="grid" d="M{x + mark / most * wide:.1f} {top}v{tall}"/>')
            parts.append(_text(x + mark / most * wide, top + tall + 18, tick(mark)))
        for y, value in enumerate(numbers):
            long, high = value / most * wide, top + y * BAR
            parts.append(f'<rect class="bar" x="{x:.1f}" y="{high + 4}" width="{long:.1f}" height="{BAR - 8}"/>')
            parts.append(_text(x + long + 4, high + 17, number(value), "start"))
    return WIDTH, top + tall + 26, "".join(parts)


def _plane(shown: Plane) -> tuple[float, float, str]:
    """Circles in rows of two, with axes, or in rows of four without their numbers."""
    columns = min(len(shown.circles), 2 if len(shown.circles) < 4 else 4)
    large = columns < 4
    each = WIDTH / columns if large else (WIDTH - 22) / columns
    radius, margin = (each / 2 - 44, 44.0) if large else (each / 2 - 12, 12.0)
    tall = 2 * (radius + margin) + (LINE if large else 14)
    parts = []
    for place, (heading, vectors) in enumerate(shown.circles.items()):
        x, y = (place % columns + 0.5) * each + (10 if large else 22), place // columns * tall + LINE + margin + radius
        parts.append(_text(x, y - radius - (36 if large else 6), heading))
        parts.append(f'<circle class="frame" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>')
        cross = f"M{x - radius:.1f} {y:.1f}h{2 * radius:.1f}M{x:.1f} {y - radius:.1f}v{2 * radius:.1f}"
        parts.append(f'<path class="grid" d="{cross}"/>')
        if large and not shown.trail:
            parts += [_text(x + end * (radius + 14), y + 5, number(end)) for end in (-1, 1)]
        for i, (name, (right, up)) in enumerate(vectors.items()):
            colour = 0 if shown.trail else i % SERIES
            faint = f' stroke-opacity="{0.35 + 0.65 * (i + 1) / len(vectors):.2f}"' if shown.trail else _dash(i)
            tip = f"{x + radius * right:.1f} {y - radius * up:.1f}"
            parts.append(f'<path class="line s{colour}"{faint} d="M{x:.1f} {y:.1f}L{tip}"/>')
            parts.append(f'<path class="line s{colour}" style="stroke-width:8" d="M{tip}h0"/>')
            if shown.trail:
                parts.append(_text(x + (radius + 14) * right, y - (radius + 14) * up + 5, name))
    high = math.ceil(len(shown.circles) / columns) * tall + LINE
    arrow = " →" if large else ""
    words = _text(WIDTH / 2, high + 6, shown.across + arrow) + _upright(high / 2, shown.down + arrow)
    return WIDTH, high + 14, "".join(parts) + words


def _stacked(shown: Stacked) -> tuple[float, float, str]:
    kinds, longest = _entries(shown), max(sum(length for _, length in row) for row in shown.rows.values())
    left, top = 16 + LETTER * max(map(len, shown.rows)), 4
    unit, low = (WIDTH - left - 8) / longest, top + BAR * len(shown.rows)
    parts = []
    for mark in linear_ticks(0, longest, 4):
        parts.append(f'<path class="grid" d="M{left + mark * unit:.1f} {top}V{low}"/>')
        parts.append(_text(left + mark * unit, low + 18, tick(mark)))
    for y, (name, segments) in enumerate(shown.rows.items()):
        x, middle = left, top + (y + 0.5) * BAR
        parts.append(_text(left - 8, middle + 5, name, "end"))
        for kind, length in segments:
            place, wide = kinds.index(kind), length * unit
            bar = f"{_PALE};stroke-width:{BAR - 6}"
            parts.append(f'<path class="line s{place}" style="{bar}" d="M{x + 1:.1f} {middle:.1f}h{wide - 2:.1f}"/>')
            if wide > 2 * LETTER:
                parts.append(_text(x + wide / 2, middle + 5, number(length)))
            x += wide
    parts.append(_text(left + longest * unit / 2, low + 40, shown.across))
    return WIDTH, low + BELOW, "".join(parts)


def _tokens(shown: Tokens) -> tuple[float, float, str]:
    """Panels in rows of two."""
    kinds, parts = _entries(shown), []
    each, tall, left = WIDTH / 2, 186, 52
    wide, high = each - left - 14, tall - 64
    for place, (heading, groups) in enumerate(shown.panels.items()):
        x0, y0 = place % 2 * each + left, place // 2 * tall + 28
        points = [point for group in groups.values() for point in group]
        (low_x, high_x), (low_y, high_y) = (_span([point[axis] for point in points]) for axis in (0, 1))

        def across(x: float, x0: float = x0, low: float = low_x, most: float = high_x) -> float:
            return x0 + (x - low) / (most - low) * wide

        def down(y: float, y0: float = y0, low: float = low_y, most: float = high_y) -> float:
            return y0 + (y - low) / (most - low) * high

        parts.append(_text(x0 + wide / 2, y0 - 10, heading))
        parts.append(f'<rect class="frame" x="{x0:.1f}" y="{y0:.1f}" width="{wide:.1f}" height="{high:.1f}"/>')
        for x in linear_ticks(low_x, high_x, 4):
            line = "level" if x == 0 else "grid"
            parts.append(f'<path class="{line}" d="M{across(x):.1f} {y0:.1f}v{high:.1f}"/>')
            parts.append(_text(across(x), y0 + high + 17, tick(x)))
        for y in linear_ticks(low_y, high_y, 4):
            line = "level" if y == 0 else "grid"
            parts.append(f'<path class="{line}" d="M{x0:.1f} {down(y):.1f}h{wide:.1f}"/>')
            parts.append(_text(x0 - 6, down(y) + 5, tick(y), "end"))
        for kind, group in groups.items():
            for (x, y), count in Counter(group).items():
                parts.append(_sign(kinds.index(kind), across(x), down(y)))
                if count == len(group) > 1:  # all of them at one place
                    parts.append(_text(across(x) + 9, down(y) - 5, f"× {count}", "start"))
    low = math.ceil(len(shown.panels) / 2) * tall
    parts.append(_text(WIDTH / 2 + left / 2, low + 6, f"{shown.across} →"))
    parts.append(_upright(low / 2, f"← {shown.down}"))
    return WIDTH, low + 14, "".join(parts)


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The range of a panel's axis: the values and 0, and some room around them."""
    low, high = min(*values, 0.0), max(*values, 0.0)
    room = max(0.8, 0.08 * (high - low))
    return low - room, high + room


def _sign(kind: int, x: float, y: float, size: float = 5.0) -> str:
    """A square, a cross or a diamond: kinds differ without colours, and where they lie on one another."""
    side, wide = 1.2 * size, 2 * size
    path = (
        f"M{x - side / 2:.1f} {y - side / 2:.1f}h{side:.1f}v{side:.1f}h{-side:.1f}z",
        f"M{x - size:.1f} {y - size:.1f}l{wide:.1f} {wide:.1f}m0 {-wide:.1f}l{-wide:.1f} {wide:.1f}",
        f"M{x:.1f} {y - size:.1f}l{size:.1f} {size:.1f}l{-size:.1f} {size:.1f}l{-size:.1f} {-size:.1f}z",
    )[kind % 3]
    return f'<path class="line s{kind % SERIES}" style="stroke-width:2" d="{path}"/>'


def _legend(shown: Figure) -> str:
    names = _entries(shown)
    if not names:
        return ""
    items = "".join(
        f'<span><svg viewBox="0 0 32 8" aria-hidden="true">{_sample(shown, i, 1, 4)}</svg>{escape(name)}</span>'
        for i, name in enumerate(names)
    )
    return f'<div class="legend">{items}</div>'


def _entry(shown: Figure, place: int, name: str, x: float, y: float) -> str:
    """A line of the legend inside a drawing."""
    return _sample(shown, place, x, y + 4) + _text(x + 36, y + 9, name, "start")


def _sample(shown: Figure, place: int, x: float, y: float) -> str:
    """How a series, a kind of segment or a kind of token is drawn, 30 wide."""
    if isinstance(shown, Tokens):
        return _sign(place, x + 15, y, 3.0)  # as high as the sample of a line
    if isinstance(shown, Stacked):
        return f'<path class="line s{place % SERIES}" style="{_PALE};stroke-width:8" d="M{x:.0f} {y:.0f}h30"/>'
    return f'<path class="line s{place % SERIES}"{_dash(place)} d="M{x:.0f} {y:.0f}h30"/>'


def _dash(place: int) -> str:
    pattern = DASHES[place % len(DASHES)]
    return "" if pattern == "none" else f' stroke-dasharray="{pattern}"'


def _text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _upright(y: float, words: str) -> str:
    return f'<text transform="translate(14 {y:.1f}) rotate(-90)" text-anchor="middle">{escape(words)}</text>'


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def _scaled(value: float, log: bool) -> float:
    return math.log10(value) if log else value


FEW = 6  # so many values of a logarithmic axis are ticks themselves


def linear_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` multiples of 1, 2 or 5 times a power of ten, within the range.

    >>> linear_ticks(0, 64)
    [0.0, 20.0, 40.0, 60.0]
    """
    if high <= low:
        return [low]
    rough = (high - low) / count
    ten = 10.0 ** math.floor(math.log10(rough))
    step = next(ten * m for m in (1, 2, 5, 10) if ten * m >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def log_ticks(values: Collection[float]) -> list[float]:
    """The values themselves where they are few, such as multiples of a length; else powers of ten within them.

    >>> log_ticks([1, 2, 4, 8]), log_ticks(range(5, 2000))
    ([1.0, 2.0, 4.0, 8.0], [10.0, 100.0, 1000.0])
    """
    distinct = sorted(set(map(float, values)))
    if len(distinct) <= FEW:
        return distinct
    first, last = math.ceil(math.log10(distinct[0]) - 1e-9), math.floor(math.log10(distinct[-1]) + 1e-9)
    tens = [10.0**power for power in range(first, last + 1)]
    return tens if len(tens) > 1 else [distinct[0], distinct[-1]]


def title(words: str, *, log: bool) -> str:
    """The title of an axis, which says if it is logarithmic.

    >>> title("wavelength (tokens)", log=True), title("loss", log=True)
    ('wavelength (tokens, log scale)', 'loss (log scale)')
    """
    if not log:
        return words
    return f"{words[:-1]}, log scale)" if words.endswith(")") else f"{words} (log scale)"


def number(value: float) -> str:
    """A number in three digits, or whole.

    >>> number(0.125), number(16384), number(-2.0), number(1e-06)
    ('0.125', '16,384', '−2', '1e−06')
    """
    text = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return text.replace("-", "−")


def tick(value: float) -> str:
    """The number of a tick: as `number`, with thousands as k from 10k on, as lengths are written.

    >>> tick(1000), tick(131_072), tick(2e6)
    ('1,000', '131k', '2M')
    """
    for size, sign in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= max(size, 1e4):
            return number(float(f"{value / size:.3g}")) + sign
    return number(value)
