"""The findings as text, section by section, beside the recorded comparisons."""

from __future__ import annotations

import re
from pathlib import Path

from posenc.catalogue.studies import Study, studies

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "findings.md").read_text(encoding="utf-8")
HEADS = {  # sections
    "text": "Text", "text-more": "The slowest to train", "methods": "The newest encodings",
    "text-long": "Four times the steps", "prose": "Prose instead of Python", "text-1M": "A million parameters",
    "text-4M": "Four million parameters",
    "prose-long": "Prose at four times the steps",
    "extension": "Extension of a trained model", "smollm2": "A real model",
}  # fmt: skip
MARKS = {"holds": "**{}**", "gains": "**{}**", "not learnt": "({})"}  # of a cell, by the verdict on its row


def named(name: str) -> Study:
    """A recorded comparison."""
    return next(study for study in studies() if study.name == name)


def lines_about(name: str) -> str:
    """All that is said of a comparison."""
    found = re.search(rf"^## {HEADS[name]}: .*?(?=^## )", TEXT, re.M | re.S)
    assert found is not None
    return found[0]


def about(name: str) -> str:
    """The same on one line."""
    return " ".join(lines_about(name).split())


def point(section: str, begin: str) -> str:
    """The point of a list that begins with some words in bold."""
    (found,) = re.findall(rf"- \*\*{begin}.*?(?= - \*\*| ###|$)", section)
    return found


def signed(value: float) -> str:
    """A difference as it is written."""
    return f"{value:+.3f}".replace("-", "−")
