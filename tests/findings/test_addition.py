"""What is said of addition."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from posenc.lab.runs import read_run
from tests.findings.reading import DOCS, TEXT, named

SECTION = TEXT[TEXT.index("### Addition") :].split("\n## ", 1)[0]
SAID = " ".join(SECTION.split())
FAR = (42, 63)  # tokens, for sums of 13 and 20 digits


@pytest.fixture(scope="module")
def numbers() -> pd.DataFrame:
    """Per cent of sums and of digits by list and length of text, with all in sight."""
    records = read_run(DOCS / "results" / "addition").records.query("view == 'full' and length > 0")
    records = records.astype({"metric": str, "spec": str})
    return 100 * records.groupby(["spec", "metric", "length"])["value"].mean().unstack(["metric", "length"])


def test_the_table_of_addition(numbers: pd.DataFrame) -> None:
    lines = [line.strip("| ").split(" | ") for line in SECTION.splitlines() if line.startswith("| ")][2:]
    columns = [(metric, length) for metric in ("accuracy", "digits") for length in (21, *FAR)]
    assert {name: cells for name, *cells in lines} == {
        spec: [f"{row[column]:.0f}" for column in columns] for spec, row in numbers.iterrows()
    }
    rows = named("addition").rows
    assert {row.seeds for row in rows.values()} == {3}
    assert {name for name, row in rows.items() if row.verdict == "not learnt"} == {"nope", "fire", "fox"}
    table = (DOCS / "results" / "addition" / "table.md").read_text(encoding="utf-8")
    assert "the first to learn it was rope, after 2,100 steps" in table
    assert "RoPE first, after 2,100 steps, ALiBi with two seeds of three; so does RoPE beside Abacus, with two" in SAID
    assert all(f"| {name} | 2 of 3 |" in table for name in ("alibi", "abacus+rope"))


def test_what_the_seeds_of_fire_and_nope_have() -> None:
    records = read_run(DOCS / "results" / "addition").records
    first = records.query("metric == 'accuracy' and view == 'full' and length == 21")
    seeds = (100 * first.astype({"spec": str}).groupby(["spec", "seed"])["value"].mean()).round().astype(int)
    fire, nope = sorted(seeds["fire"]), max(seeds["nope"])
    assert [each >= 95 for each in fire] == [False, False, True]
    assert f"FIRE with one seed of three ({fire[0]} to {fire[-1]} %), and NoPE's best seed has {nope} %" in SAID


def test_nobody_adds_longer_numbers_and_abacus_keeps_digits(numbers: pd.DataFrame) -> None:
    rows = named("addition").rows.values()
    assert all(row.means[length][0] == 0 for row in rows for length in FAR)
    assert all(row.window[63][0] == 0 for row in rows if row.window)
    digits = numbers["digits"][list(FAR)].round().astype(int)
    kept = digits.loc[["abacus", "abacus+fire"]].to_numpy()
    rest = digits.drop(index=["abacus", "abacus+fire"]).to_numpy()
    assert f"{kept.min()} to {kept.max()} % of the single digits stay right" in SAID
    assert f"with everything else {rest.min()} to {rest.max()} %" in SAID
    beside = "({} and {} %)".format(*digits.loc["abacus+rope"])
    assert f"RoPE beside Abacus undoes that {beside}" in SAID


def test_the_claim_is_told_as_it_was_judged() -> None:
    judged = (DOCS / "results" / "addition" / "claims.md").read_text(encoding="utf-8")
    (line,) = [each for each in judged.splitlines() if "2405.17399" in each]
    _, _, outcome, measured = (cell.strip() for cell in line.strip("| ").split(" | "))
    (number,) = re.findall(r"[−+]\d+\.\d ± \d+\.\d", measured)
    assert f"2405.17399): **{outcome}**, {number} points at 3×" in SAID
