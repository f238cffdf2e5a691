"""The tables of docs/images.md say what the library does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from posenc.diffusion import MODELS, PRESETS, rotation

PAGE = (Path(__file__).parents[1] / "docs" / "images.md").read_text(encoding="utf-8")
OF_ALL_HEADS = {"ltx", "ltx-2"}
NOT_AXIAL = {"mochi", "ideogram-4", "sd3", "pixart", "cogvideox-2b"}


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the first table whose first heading this is."""
    table = re.search(rf"^\| {re.escape(heading)} \|.*\n\|---.*\n((?:\|.*\n)+)", PAGE, re.M)
    assert table is not None, heading
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]


BY_NAME = {name: row for row in rows_of("name in posenc") for name in re.findall(r"`([\w.-]+)`", row[0])}


def test_every_preset_has_a_row() -> None:
    assert set(PRESETS) <= set(BY_NAME)


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in NOT_AXIAL | OF_ALL_HEADS])
def test_widths_base_and_pairs_are_those_of_the_rotation(name: str) -> None:
    row, released = BY_NAME[name], MODELS[name]
    widths = tuple(map(int, re.match(r"[\d, ]+\d", row[2])[0].split(", ")))  # type: ignore[index]
    assert widths == released.axes_dims
    bases = [float(base) for base in re.findall(r"\d+", row[3].replace(",", ""))]
    expected = released.base if isinstance(released.base, tuple) else (released.base,)
    assert bases == [round(base) for base in dict.fromkeys(expected)]
    if released.layout == "half-by-axis":
        assert int(re.findall(r"i \+ (\d+)", row[4])[0]) == widths[0] // 2
    elif row[4] == "neighbours":
        assert rotation(name).layout == "interleaved"
    else:
        apart = int(re.findall(r"i \+ (\d+)", row[4])[0])
        assert rotation(name).layout == "half"
        assert apart == sum(widths) // 2, "pairs over all axes"


def table_of_classes() -> str:
    """A row a record: the classes of diffusers that it has, and what `attach` takes."""
    lines = ["| classes of diffusers | axes | scalings that suit them |", "|---|---|---|"]
    for record in MODELS.values():
        names = [name for name, kind in record.transformers.items() if not kind.refused and not name.startswith(ADDED)]
        if not names:
            continue
        axes = ", ".join(
            f"*{axis.name}*" if axis.kept and record.scales != "pairs" else axis.name for axis in record.axes
        )
        calls = "<br>".join(f"`{call}`" for call in record.suitable()) or "none"
        lines.append(f"| {', '.join(names)} | {axes} | {calls} |")
    return "\n".join([*lines, "", "*Axes in italics keep their frequencies.*"])


ADDED = ("SD3", "PixArt")  # add an embedding, and rotate nothing


def test_the_table_of_classes_is_that_of_the_records() -> None:
    begin, end = "<!-- classes of diffusers: begin -->\n", "<!-- classes of diffusers: end -->"
    shown = PAGE[PAGE.index(begin) + len(begin) :]
    assert shown[: shown.index(end)].strip() == table_of_classes()
