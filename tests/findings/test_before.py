"""The findings' numbers of the protocol before the present one are those of its records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "findings.md").read_text(encoding="utf-8")


def rows(folder: str) -> dict[str, Any]:
    lines = (DOCS / "results" / folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["encoding"]: row for row in map(json.loads, lines)}


def section(title: str) -> str:
    found = re.search(rf"^##+ {title}.*?(?=^## |\Z)", TEXT, re.M | re.S)
    assert found is not None
    return found[0]


def table(text: str, heads: str) -> list[list[str]]:
    lines = text[text.index(heads) :].splitlines()[2:]
    end = next((n for n, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f}"


def test_the_table_of_addition() -> None:
    found = rows("addition")
    said = {line[0]: line[1:] for line in table(section("Tasks"), "| encoding | sums at 1×")}
    assert said.keys() == found.keys()
    for name, row in found.items():
        digits = [sum(row["other_accuracy_of_seeds"][k]) / row["seeds"] for k in ("1×", "2×", "3×")]
        numbers = [percent(row["accuracy"][k]["mean"]) for k in ("1×", "2×", "3×")] + [percent(one) for one in digits]
        assert said[name] == numbers, name


def test_what_a_learning_rate_decides() -> None:
    lines = table((DOCS / "results" / "tuning.md").read_text(encoding="utf-8"), "| encoding | × 1 ")
    (line,) = [each for each in lines if each[0] == "t5"]
    assert f"{float(line[1]) - float(line[3]):.2f} bit" in section("Learning rates")
