"""Verdicts, means, what is beyond chance and claims, in each section that a comparison has."""

from __future__ import annotations

import re

import pytest

from tests.findings.reading import DOCS, HEADS, TEXT, about, named, point, signed

RATED = re.compile(r"`([^`]+)` \(([+−]\d+\.\d+)\)")  # a row and its difference
BASELINES = {  # at the trained length
    "text": ("rope", "alibi"), "text-more": ("rope",), "methods": ("rope", "alibi"), "prose": ("rope", "alibi"),
    "text-long": ("rope", "alibi"), "text-1M": ("rope", "alibi"), "text-4M": ("rope", "alibi"),
    "prose-long": ("rope", "alibi"),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize(
    ("begin", "verdict"),
    [("Hold", "holds"), ("Decline", "declines"), ("Fail", "fails"), ("Undecided", "undecided"), ("Gain", "gains")],
)
def test_each_verdict_names_its_rows_and_their_changes(name: str, begin: str, verdict: str) -> None:
    study, section = named(name), about(name)
    rows = {
        spec: signed(next(one.mean for one in row.contrasts if one.against == "1x"))
        for spec, row in study.rows.items()
        if row.verdict == verdict
    }
    said = dict(RATED.findall(point(section, begin))) if rows or f"**{begin}" in section else {}
    assert said == rows


@pytest.mark.parametrize("name", HEADS)
def test_what_has_not_learnt_is_named(name: str) -> None:
    study, section = named(name), about(name)
    said = re.findall(r"`([^`]+)`", point(section, "Not learnt")) if "**Not learnt" in section else []
    assert set(said) == {spec for spec, row in study.rows.items() if row.verdict == "not learnt"}
    assert set(said) == {spec for spec, row in study.rows.items() if not row.learnt}


@pytest.mark.parametrize("name", BASELINES)
def test_means_at_the_trained_length_are_those_of_the_first(name: str) -> None:
    study, section = named(name), about(name)
    said = [float(number) for number in re.findall(r"\d\.\d{3}", point(section, "At the trained length"))]
    first, others = said[: -len(BASELINES[name])], said[-len(BASELINES[name]) :]
    assert first == [round(row.means[64][0], 3) for row in study.ranked(1)[: len(first)]]
    assert others == [round(study.rows[spec].means[64][0], 3) for spec in BASELINES[name]]


@pytest.mark.parametrize("name", HEADS)
def test_what_beats_rope_under_its_window_is_beyond_chance(name: str) -> None:
    study, section = named(name), about(name)
    rows = {
        spec: signed(one.mean)
        for spec, row in study.rows.items()
        for one in row.contrasts
        if one.against == "rope under its window" and one.claimed and one.mean < 0
    }
    assert dict(RATED.findall(point(section, "Better than RoPE under its window"))) == rows


@pytest.mark.parametrize("name", HEADS)
def test_claims_are_told_as_they_were_judged(name: str) -> None:
    section = about(name)
    judged = (DOCS / "results" / name / "claims.md").read_text(encoding="utf-8")
    lines = [line for line in judged.splitlines() if line.startswith("| ") and "arXiv" in line]
    points = [line for line in TEXT.splitlines() if "arXiv" in line]
    for line in lines:
        _, source, outcome, measured = (cell.strip() for cell in line.strip("| ").split(" | "))
        (number,) = re.findall(r"arXiv (\d{4}\.\d{5})", source)
        numbers = re.findall(r"[+−]\d\.\d{3} ± \d\.\d{3}", measured)
        assert all(each in section for each in numbers), (number, numbers)
        told = [each for each in points if number in each]
        assert not told or any(f"**{outcome}**" in each or f"{outcome} here" in each for each in told), line
