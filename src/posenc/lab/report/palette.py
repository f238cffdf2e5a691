"""Colours that mean something: a verdict has one wherever it stands, and encodings that have it may have its shades."""

from __future__ import annotations

import colorsys
from collections import defaultdict
from collections.abc import Sequence

from posenc.lab.tasks.task import Row

GREEN, BLUE, AMBER, RED, GREY = "#1b9e77", "#2b7bba", "#d17a00", "#d1495b", "#8a8f94"
# Best first; also the order in which groups are listed.
VERDICTS = {
    "uses context": GREEN, "holds": GREEN, "unmoved": GREEN, "flat": BLUE, "degrades": AMBER, "declines": AMBER,
    "leaks": AMBER, "fails": RED, "collapses": RED, "not learnt": GREY, "past its table": GREY,
}  # fmt: skip
GOOD = ("uses context", "holds", "unmoved", "flat")  # nothing is lost where it was not trained
# Okabe and Ito's colours without yellow and black, which vanish on white or on dark, and two that stay apart from them.
NAMED = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#8B5A2B")
_HUES, _LIGHT = 0.03, (0.36, 0.56)  # how far the shades of a group lie apart, in turns and in HLS lightness


def verdict_colour(verdict: str) -> str:
    """The colour of a verdict; grey for a word that no task here has."""
    return VERDICTS.get(verdict, GREY)


def verdict_order(verdict: str) -> int:
    """Sorts verdicts, the best first."""
    return list(VERDICTS).index(verdict) if verdict in VERDICTS else len(VERDICTS)


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by verdict, the best verdict first."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: verdict_order(row.verdict)):
        groups[row.verdict].append(row)
    return dict(groups)


def colours(rows: Sequence[Row]) -> dict[str, str]:
    """A colour for each spec; a control has that of its checkpoint.

    Up to eight encodings have eight colours, which do not depend on how well they did. Nobody tells more colours than
    that apart, so more encodings have shades of the colour of their verdict.
    """
    specs = sorted({row.spec.removesuffix("+window") for row in rows})
    if len(specs) <= len(NAMED):
        chosen = dict(zip(specs, NAMED, strict=False))
        return {row.spec: chosen[row.spec.removesuffix("+window")] for row in rows}
    return {
        row.spec: shade
        for verdict, group in grouped(rows).items()
        for row, shade in zip(group, shades(verdict_colour(verdict), len(group)), strict=True)
    }


def shades(colour: str, count: int) -> list[str]:
    """``count`` neighbours of a colour, all readable on white and on dark."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, _, saturation = colorsys.rgb_to_hls(red, green, blue)
    found = []
    for number in range(count):
        place = (number + 0.5) / count  # 0 to 1; one alone lies in the middle
        lightness = _LIGHT[0] + (_LIGHT[1] - _LIGHT[0]) * place
        parts = colorsys.hls_to_rgb((hue + _HUES * (place - 0.5)) % 1, lightness, saturation)
        found.append("#" + "".join(f"{round(255 * part):02x}" for part in parts))
    return found
