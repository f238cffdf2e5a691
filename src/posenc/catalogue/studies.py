"""The recorded comparisons as an installed package carries them: means, verdicts and contrasts, no raw records.

``studies.json`` is written from docs/results by ``python docs/build.py --pages``; no site is built where it is older.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "studies.json"
Mean = tuple[float, float, float]  # the mean over seeds and documents, and its 95 % interval


@dataclass(frozen=True)
class Contrast:
    """A row less another at one length.

    Attributes:
        against: "1x", the row itself at the training length; or a baseline.
        mean, low, high: of the difference, with its 95 % interval.
        claimed: whether it is beyond chance among all planned contrasts of its family, and nothing speaks against it.
    """

    against: str
    mean: float
    low: float
    high: float
    claimed: bool


@dataclass(frozen=True)
class StudyRow:
    """What one encoding, or list of them, reached.

    Attributes:
        name: as the comparison was given it.
        seeds: trainings.
        learned: whether it learned the task at the training length; a language model, more than single tokens.
        verdict: on the change over length, such as "flat" (`posenc.lab.report.verdicts.Verdict`).
        means: by length in tokens.
        window: the same under a window of the training length.
        contrasts: at the longest length, those of its table.
        views: of pictures, the mean under each change of the positions, by its name.
        reach: of a language model, the mean at the training length by the tokens of context read, fewer than that.
    """

    name: str
    seeds: int
    learned: bool
    verdict: str
    means: dict[int, Mean]
    window: dict[int, Mean]
    contrasts: tuple[Contrast, ...]
    views: dict[str, Mean] = field(default_factory=dict)
    reach: dict[int, Mean] = field(default_factory=dict)


@dataclass(frozen=True)
class Counting:
    """Losses without a model, in the unit of the study.

    Attributes:
        order: of the best n-gram of the training text.
        ngram: its loss.
        unigram: the entropy of single tokens.
    """

    order: int
    ngram: float
    unigram: float


@dataclass(frozen=True)
class Study:
    """One comparison.

    Attributes:
        name: its folder in docs/results.
        task: as ``posenc compare --task`` has it.
        title: what was asked of the models.
        unit: of the means.
        better: "lower" or "higher".
        percent: whether means are shares.
        margin: how much counts as no change.
        train_length: tokens.
        rows: by name.
        counting: of a language model, what counting reaches on the same targets; None where it is not recorded.
    """

    name: str
    task: str
    title: str
    unit: str
    better: str
    percent: bool
    margin: float
    train_length: int
    rows: dict[str, StudyRow]
    counting: Counting | None = None

    @property
    def longest(self) -> int:
        """The longest length in training lengths."""
        return max(max(row.means) for row in self.rows.values()) // self.train_length

    def ranked(self, times: float) -> list[StudyRow]:
        """Rows that have a mean at so many training lengths, the best first."""
        length = round(times * self.train_length)
        there = [row for row in self.rows.values() if length in row.means]
        return sorted(there, key=lambda row: row.means[length][0], reverse=self.better == "higher")


def raw() -> list[dict[str, Any]]:
    """The file as it is."""
    records: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return records


@cache
def studies() -> tuple[Study, ...]:
    """All of them, by name.

    >>> [study.task for study in studies() if study.name == "quick"]
    ['text']
    """
    all_studies = []
    for record in raw():
        rows = {name: _row(name, row) for name, row in record["rows"].items()}
        name = record["study"]
        facts = {key: record[key] for key in ("task", "title", "unit", "better", "percent", "margin", "train_length")}
        counting = None if record["counting"] is None else Counting(*record["counting"])
        all_studies.append(Study(name=name, rows=rows, counting=counting, **facts))
    return tuple(all_studies)


def _row(name: str, row: dict[str, Any]) -> StudyRow:
    return StudyRow(
        name=name,
        seeds=row["seeds"],
        learned=row["learnt"],
        verdict=row["verdict"],
        means={length: (mean, low, high) for length, mean, low, high in row["means"]},
        window={length: (mean, low, high) for length, mean, low, high in row["window"]},
        contrasts=tuple(Contrast(*values) for values in row["contrasts"]),
        views={view: (mean, low, high) for view, (mean, low, high) in row["views"].items()},
        reach={context: (mean, low, high) for context, mean, low, high in row["reach"]},
    )
