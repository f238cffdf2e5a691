"""The findings' sentences of the present protocol say what the recorded comparisons say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from posenc.catalogue.studies import Study, StudyRow, studies

DOCS = Path(__file__).parents[1] / "docs"
TEXT = (DOCS / "findings.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def production() -> Study:
    return next(study for study in studies() if study.name == "production")


@pytest.fixture(scope="module")
def section() -> str:
    found = re.search(r"^## What production models add.*?(?=^## )", TEXT, re.M | re.S)
    assert found is not None
    return " ".join(found[0].split())


def change(row: StudyRow) -> float:
    return next(one.mean for one in row.contrasts if one.against == "1x")


def test_verdicts_and_changes_are_those_of_the_rows(production: Study, section: str) -> None:
    rows = production.rows
    verdicts = {
        "rope@16/nope:4": "declines", "rope/nope:4": "fails", "rope": "fails", "rope+sink": "fails",
        "rope+ssmax": "fails", "rope+log_n": "fails", "token_relative": "declines", "fox": "holds", "alibi": "holds",
        "nope": "not learnt", "ssmax": "not learnt",
    }  # fmt: skip
    assert {name: row.verdict for name, row in rows.items()} == verdicts
    for name in ("rope@16/nope:4", "rope", "rope/nope:4", "rope+sink", "rope+ssmax", "rope+log_n", "token_relative"):
        assert f"{change(rows[name]):.3f}" in section, name
    assert production.longest == 16
    assert all(row.seeds == 3 for row in rows.values())


def test_the_best_mean_is_the_one_that_is_named(production: Study, section: str) -> None:
    for times in (1, 16):
        best = production.ranked(times)[0]
        assert best.name == "fox"
        assert f"{best.means[times * 64][0]:.3f} bits" in section


def test_claims_are_told_as_they_were_judged(section: str) -> None:
    claims = (DOCS / "results" / "production" / "claims.md").read_text(encoding="utf-8")
    for source, outcome, number in (
        ("2501.18795", "supported", "−2.206 ± 0.139"), ("2309.17453", "supported", "−0.021 ± 0.035"),
        ("2501.19399", "not found here", "+0.129 ± 0.407"), ("2202.12172", "not found here", "+0.126 ± 0.101"),
    ):  # fmt: skip
        (line,) = [line for line in claims.splitlines() if source in line]
        assert f"| {outcome} |" in line
        assert number in line
        assert number in section
