"""Sentences that rest on rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from posenc.catalogue import Entry
from posenc.catalogue.studies import Contrast, Study, StudyRow

Sure = Literal["by definition", "measured, beyond chance", "measured, not beyond chance", "as recorded", "not measured"]
TABLE = "docs/table.md"  # of all methods; a page that the guide makes


@dataclass(frozen=True)
class Reason:
    """A sentence, how sure it is, and the file of the documentation that has its row."""

    words: str
    sure: Sure
    row: str


@dataclass(frozen=True)
class Choice:
    """Encodings as ``posenc compare`` takes them, what is to be done with them, and why."""

    spec: str
    words: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Answer:
    """Choices, the first one first, and what must be known of all of them."""

    choices: tuple[Choice, ...]
    remarks: tuple[Reason, ...]


def by_catalogue(entry: Entry, words: str) -> Reason:
    """What holds by the definition of one encoding."""
    return Reason(words, "by definition", f"docs/methods/{entry.name}.md")


def of(study: Study) -> str:
    """The table of a comparison."""
    return f"docs/results/{study.name}/table.md"


def shown(value: float, study: Study) -> str:
    """A mean as the reports show it."""
    return f"{100 * value:.0f} %" if study.percent else f"{value:.3f} {study.unit}"


def against(row: StudyRow, baseline: str) -> Contrast | None:
    """A row's contrast to a baseline, at the longest length."""
    return next((contrast for contrast in row.contrasts if contrast.against == baseline), None)


def compared(row: StudyRow, study: Study, baseline: str) -> Reason | None:
    """A row beside a baseline at the longest length, in words."""
    found = against(row, baseline)
    if found is None:
        return None
    good = found.mean < 0 if study.better == "lower" else found.mean > 0
    word = "better" if good else "worse"
    size = f"{100 * abs(found.mean):.0f} points" if study.percent else f"{abs(found.mean):.3f} {study.unit}"
    words = f"At {study.longest}× {row.name} is {word} than {baseline} by {size}."
    return Reason(words, "measured, beyond chance" if found.claimed else "measured, not beyond chance", of(study))
