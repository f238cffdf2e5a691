"""The table of pictures, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest
from guide.measured import table_of

from posenc.lab.runs import read_run
from posenc.lab.stats import Array, paired
from tests.findings.reading import DOCS, named

FOLDER = DOCS / "results" / "images"
PAGE = (DOCS / "images.md").read_text(encoding="utf-8")
SECTION = " ".join(PAGE[PAGE.index("## Measured on small pictures") :].split())
COLUMNS = {
    "trained": "full", "picture moved": "token_shift", "+1": "+1", "+20": "+20", "finer, scaled": "finer_scaled",
    "finer, counted": "finer_counted", "larger, scaled": "large_scaled", "larger, counted": "large_counted",
}  # fmt: skip
DIFFERENCES = ("nope", "alibi_2d", "swin", "log_cpb", "axial", "mixed", "comrope_ap", "comrope_ld")  # and nothing else

COMPARED = (  # of which the page tells the difference: two encodings and a view
    ("sinusoidal_grid", "comrope_ap", "full"), ("sinusoidal_grid", "axial", "full"), ("mixed", "axial", "finer_scaled"),
    ("liere", "comrope_ap", "finer_scaled"), ("comrope_ld", "liere", "finer_scaled"),
    ("comrope_ld", "comrope_ap", "finer_scaled"), ("learned_grid+axial", "axial", "large_scaled"),
    ("learned_grid+axial", "learned_grid", "large_scaled"),
)  # fmt: skip
SCALED = ("sinusoidal_grid", "liere", "mixed", "axial", "comrope_ld", "comrope_ap", "log_cpb")  # better than counted
MOVED = ("axial", "comrope_ld", "comrope_ap", "mixed", "liere", "learned_grid", "sinusoidal_grid")


@pytest.fixture(scope="module")
def right() -> dict[tuple[str, str], Array]:
    """Whether each picture was recognised: (seeds, pictures) by encoding and view."""
    lines = read_run(FOLDER).records.query("metric == 'accuracy'").astype({"spec": str, "view": str})
    groups = lines.groupby(["spec", "view"])
    return {key: one.pivot(index="seed", columns="item", values="value").to_numpy() for key, one in groups}


def points(one: Array, other: Array) -> str:
    """A difference in points, with half of its 95 % interval."""
    found = paired(one, other)
    return f"{100 * found.mean:+.1f} ± {50 * (found.high - found.low):.1f}".replace("-", "−")


def test_the_table_of_pictures() -> None:
    cells = {(row.spec, row.view): (row, row.cells[max(row.cells)]) for row in table_of("images").rows}
    head = PAGE.index("| encoding | trained |")
    rows = PAGE[head : PAGE.index("\n\n", head)].splitlines()
    heads, _, *lines = [line.strip("| ").split(" | ") for line in rows]
    assert heads == ["encoding", *COLUMNS]
    assert {line[0] for line in lines} == {encoding for encoding, _ in cells}
    for name, *told in lines:
        for view, cell in zip(COLUMNS.values(), told, strict=True):
            one = cells.get((name, view))
            if one is None:
                assert cell == "–"
                continue
            row, mean = one
            number = f"{100 * mean.mean:.0f} ± {50 * (mean.high - mean.low):.0f}"
            mark = "**{}**" if view != "full" and row.verdict in ("holds", "gains") else "{}"
            mark = "({})" if view == "full" and not row.learnt else mark
            assert cell == mark.format(number), (name, view)


def test_what_a_constant_changes(right: dict[tuple[str, str], Array]) -> None:
    for name in DIFFERENCES:
        for view in ("+1", "+3", "+20"):
            assert np.array_equal(right[name, view], right[name, "full"]), (name, view)
    for view in ("+1", "+20"):
        assert points(right["liere", view], right["liere", "full"]) in SECTION


def test_scaled_coordinates_beat_counted_ones(right: dict[tuple[str, str], Array]) -> None:
    for name in SCALED:
        assert points(right[name, "finer_scaled"], right[name, "finer_counted"]) in SECTION, name
        assert paired(right[name, "finer_scaled"], right[name, "finer_counted"]).low > 0, name


def test_what_moving_the_picture_costs(right: dict[tuple[str, str], Array]) -> None:
    learnt = {name for name, row in named("images").rows.items() if row.learnt}
    lost = {name: (right[name, "token_shift"] - right[name, "full"]).mean() for name in learnt}
    assert sorted(lost, key=lambda name: -lost[name])[:4] == list(MOVED[:4])
    assert set(sorted(lost, key=lambda name: lost[name])[:2]) == set(MOVED[-2:])
    for name in MOVED:
        assert points(right[name, "token_shift"], right[name, "full"]) in SECTION, name


def test_differences_between_encodings(right: dict[tuple[str, str], Array]) -> None:
    apart = {}
    for one, other, view in COMPARED:
        assert points(right[one, view], right[other, view]) in SECTION, (one, other, view)
        found = paired(right[one, view], right[other, view])
        apart[one, other] = found.low > 0 or found.high < 0
    assert {pair for pair, said in apart.items() if not said} == {
        ("comrope_ld", "liere"), ("comrope_ld", "comrope_ap"),
    }  # fmt: skip
