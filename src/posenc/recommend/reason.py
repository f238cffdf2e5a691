"""Sentences that rest on rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from posenc.catalogue import Entry
from posenc.catalogue.studies import Contrast, Study, StudyRow

Sure = Literal["by definition", "measured, beyond chance", "measured, not beyond chance", "as recorded", "not measured"]
TABLE = "docs/table.md"  # of all methods; a page that the guide makes
BASELINES = ("rope", "rope under its window", "alibi")  # not a row's own window, nor itself at the trained length


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


def amount(size: float, study: Study) -> str:
    """The size of a difference."""
    points = f"{100 * size:.0f}"
    return f"{points} point{'s' * (points != '1')}" if study.percent else f"{size:.3g} {study.unit}"


def compared(row: StudyRow, study: Study, times: int) -> list[Reason]:
    """A row beside the baselines, in words: at the trained length if that is asked for, else at the longest."""
    times, contrasts = (1, row.at_first) if times == 1 else (study.longest, row.contrasts)
    return [_beside(row, study, times, one) for one in contrasts if one.against in BASELINES]


def _beside(row: StudyRow, study: Study, times: int, found: Contrast) -> Reason:
    good = found.mean < 0 if study.better == "lower" else found.mean > 0
    word = "better" if good else "worse"
    size = amount(abs(found.mean), study) if study.percent else f"{abs(found.mean):.3f} {study.unit}"
    words = f"At {times}× {row.name} is {word} than {found.against} by {size}."
    if found.mean == 0:
        words = f"At {times}× {row.name} is equal to {found.against}."
    return Reason(words, "measured, beyond chance" if found.claimed else "measured, not beyond chance", of(study))
