"""Sentences that rest on rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from posenc.catalogue import Entry
from posenc.catalogue.studies import Contrast, Study, StudyRow

Sure = Literal["by definition", "measured, significant", "measured, not significant", "as recorded", "not measured"]
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
    """A row compared with the baselines, in words: at the training length if ``times`` is 1, else at the longest."""
    times, contrasts = (1, row.at_first) if times == 1 else (study.longest, row.contrasts)
    return [_against_baseline(row, study, times, contrast) for contrast in contrasts if contrast.against in BASELINES]


def _against_baseline(row: StudyRow, study: Study, times: int, contrast: Contrast) -> Reason:
    good = contrast.mean < 0 if study.better == "lower" else contrast.mean > 0
    word = "better" if good else "worse"
    size = amount(abs(contrast.mean), study) if study.percent else f"{abs(contrast.mean):.3f} {study.unit}"
    words = f"At {times}× {row.name} is {word} than {contrast.against} by {size}."
    if contrast.mean == 0:
        words = f"At {times}× {row.name} is equal to {contrast.against}."
    return Reason(words, "measured, significant" if contrast.claimed else "measured, not significant", of(study))
