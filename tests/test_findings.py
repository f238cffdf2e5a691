"""The findings' sentences of the present protocol say what the recorded comparisons say."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from posenc.catalogue.studies import Study, studies

DOCS = Path(__file__).parents[1] / "docs"
TEXT = (DOCS / "findings.md").read_text(encoding="utf-8")
RATED = re.compile(r"`([^`]+)` \(([+−]\d+\.\d+)\)")  # a row and its difference


@pytest.fixture(scope="module")
def text() -> Study:
    return next(study for study in studies() if study.name == "text")


@pytest.fixture(scope="module")
def section() -> str:
    """All that is said of texts, on one line."""
    found = re.search(r"^## Text: .*?(?=^## )", TEXT, re.M | re.S)
    assert found is not None
    return " ".join(found[0].split())


def point(section: str, begin: str) -> str:
    """The point of a list that begins with some words in bold."""
    (found,) = re.findall(rf"- \*\*{begin}.*?(?= - \*\*| ###|$)", section)
    return found


def signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


@pytest.mark.parametrize(
    ("begin", "verdict"),
    [("Hold", "holds"), ("Decline", "declines"), ("Fail", "fails"), ("Undecided", "undecided"), ("Gain", "gains")],
)
def test_each_verdict_names_its_rows_and_their_changes(text: Study, section: str, begin: str, verdict: str) -> None:
    rows = {
        name: signed(next(one.mean for one in row.contrasts if one.against == "1x"))
        for name, row in text.rows.items()
        if row.verdict == verdict
    }
    said = dict(RATED.findall(point(section, begin))) if rows or f"**{begin}" in section else {}
    assert said == rows


def test_what_has_not_learnt_is_named(text: Study, section: str) -> None:
    said = re.findall(r"`([^`]+)`", point(section, "Not learnt"))
    assert set(said) == {name for name, row in text.rows.items() if row.verdict == "not learnt"}
    assert set(said) == {name for name, row in text.rows.items() if not row.learnt}


def test_means_at_the_trained_length_are_those_of_the_first(text: Study, section: str) -> None:
    said = [float(number) for number in re.findall(r"\d\.\d{3}", point(section, "At the trained length"))]
    *first, rope, alibi = said
    assert first == [round(row.means[64][0], 3) for row in text.ranked(1)[: len(first)]]
    assert (rope, alibi) == tuple(round(text.rows[name].means[64][0], 3) for name in ("rope", "alibi"))


def test_nothing_is_better_than_under_its_own_window(text: Study, section: str) -> None:
    said = point(section, "A window of the trained length")
    for name in ("rope", "t5", "shaw", "xpos", "fire", "proportional", "ssmax", "sinusoidal"):
        assert f"{text.rows[name].window[1024][0]:.3f}" in said, name
    for row in text.rows.values():
        assert all(one.mean > -0.02 for one in row.contrasts if one.against == "own window"), row.name
    names = {"fire", "proportional", "ssmax", "sinusoidal"}
    risen = {name: row.window[1024][0] - row.means[64][0] for name, row in text.rows.items() if row.window}
    assert names == {name for name, bits in risen.items() if bits > 0.3}


def test_what_beats_rope_under_its_window_is_beyond_chance(text: Study, section: str) -> None:
    rows = {
        name: signed(one.mean)
        for name, row in text.rows.items()
        for one in row.contrasts
        if one.against == "rope under its window" and one.claimed and one.mean < 0
    }
    assert dict(RATED.findall(point(section, "Better than RoPE under its window"))) == rows


def test_claims_are_told_as_they_were_judged(section: str) -> None:
    judged = (DOCS / "results" / "text" / "claims.md").read_text(encoding="utf-8")
    lines = [line for line in judged.splitlines() if line.startswith("| ") and "arXiv" in line]
    points = [line for line in TEXT.splitlines() if "arXiv" in line]
    for line in lines:
        _, source, outcome, measured = (cell.strip() for cell in line.strip("| ").split(" | "))
        (number,) = re.findall(r"arXiv (\d{4}\.\d{5})", source)
        numbers = re.findall(r"[+−]\d\.\d{3} ± \d\.\d{3}", measured)
        assert all(each in section for each in numbers), (number, numbers)
        told = [each for each in points if number in each]
        assert not told or any(f"**{outcome}**" in each or f"{outcome} here" in each for each in told), line


def test_the_size_that_is_stated(text: Study, section: str) -> None:
    assert f"## Text: {len(text.rows)} lists" in section
    fewer = {name for name, row in text.rows.items() if row.seeds != 3}
    assert fewer == {"transformer_xl"}
    assert "Transformer-XL has one seed so far" in section
    assert text.rows["transformer_xl"].seeds == 1
    assert f"it has hardly learnt ({text.rows['nope'].means[64][0]:.3f} bits)" in section
    four = [f"{text.rows[name].means[length][0]:.3f}" for name in ("rope", "sinusoidal") for length in (64, 256)]
    assert "`rope` from {} to {} and `sinusoidal` from {} to {}".format(*four) in " ".join(TEXT.split())


def test_what_encodings_cost() -> None:
    lines = csv.DictReader((DOCS / "results" / "quick" / "cost.csv").read_text(encoding="utf-8").splitlines())
    there = {
        line["spec"]: float(line["relative"]) for line in lines if (line["pass"], line["length"]) == ("forward", "1024")
    }
    said = re.findall(r"(\d+) % more with ([\w-]+)", " ".join(TEXT.split()))
    names = {"RoPE": "rope", "ALiBi": "alibi", "stick-breaking": "stick-breaking", "FoX": "fox"}
    assert {names[name]: int(percent) for percent, name in said} == {
        name: round(100 * (there[name] - 1)) for name in names.values()
    }
    assert ("less time than FoX" in " ".join(TEXT.split())) == (there["stick-breaking"] < there["fox"])
