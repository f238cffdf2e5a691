"""The findings' numbers of the protocol before the present one are those of its records."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "findings.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    found = re.search(rf"^##+ {title}.*?(?=^## |\Z)", TEXT, re.M | re.S)
    assert found is not None
    return found[0]


def table(text: str, heads: str) -> list[list[str]]:
    lines = text[text.index(heads) :].splitlines()[2:]
    end = next((n for n, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]


def test_what_a_learning_rate_decides() -> None:
    lines = table((DOCS / "results" / "tuning.md").read_text(encoding="utf-8"), "| encoding | × 1 ")
    (line,) = [each for each in lines if each[0] == "t5"]
    assert f"{float(line[1]) - float(line[3]):.2f} bit" in section("Learning rates")
