"""From results to the rows of a table: accuracy at each length, with its range over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from posenc.lab.report.accuracy import Accuracy, accuracy_of
from posenc.lab.results import table_of_runs, training_means
from posenc.lab.specs import catalogue_order, is_control
from posenc.lab.tasks.task import Measured

HOLDS, DECLINES, COLLAPSES, UNLEARNT, UNDEFINED = "holds", "declines", "collapses", "not learnt", "past its table"


@dataclass(frozen=True)
class SequenceRow:
    """One spec, over its seeds."""

    spec: str
    seeds: int
    chance: float
    of_seeds: dict[str, list[float] | None]  # what the task counts, by length; None where the encoding is undefined
    others: dict[str, list[float] | None]  # the other count: of whole sequences, or of answers
    training: dict[str, float]  # means over seeds; what a control has is that of its checkpoint
    runs: list[Measured] = field(default_factory=list)  # what all of this comes from, of each seed
    whole: bool = False  # whether a sequence counts only if all its answers are right

    @property
    def seed_numbers(self) -> list[int]:
        """Which seeds there are."""
        return [run["seed"] for run in self.runs]

    def windows(self, length: int, seeds: Sequence[int]) -> NDArray[np.float64] | None:
        """What is wrong in each sequence of one of the tests, ``(seeds, sequences)``; None where it is undefined.

        Whether anything is, 0 or 1, where only whole sequences count. Else the number of wrong answers, over the number
        that is asked of a sequence on average: the mean of all is the share of wrong answers.
        """
        wrong = table_of_runs(self.runs, "wrong", length, seeds)
        if wrong is None:
            return None
        asked: int = self.runs[0]["asked"][length]
        return (wrong > 0).astype(np.float64) if self.whole else wrong * (wrong.shape[1] / asked)

    @property
    def control(self) -> bool:
        """Whether it is another row's checkpoint under other conditions."""
        return is_control(self.spec)

    @property
    def first(self) -> Accuracy:
        """At the training length, where every encoding is defined."""
        found = self.accuracy(next(iter(self.of_seeds)))
        if found is None:
            raise ValueError(f"{self.spec} is undefined at the training length")
        return found

    def accuracy(self, test: str) -> Accuracy | None:
        """At one length; None where the encoding is undefined."""
        return accuracy_of(self.of_seeds[test])

    def other(self, test: str) -> Accuracy | None:
        """The other count at one length."""
        return accuracy_of(self.others[test])

    def kept(self, test: str) -> list[float] | None:
        """What each seed keeps at a length of what is above guessing at the training length."""
        before, after = next(iter(self.of_seeds.values())), self.of_seeds[test]
        if before is None or after is None:
            return None
        return [(b - self.chance) / max(a - self.chance, 1e-9) for a, b in zip(before, after, strict=True)]

    @property
    def verdict(self) -> str:
        """One word, from the longest length. The first line that holds decides.

        not learnt      at the training length, the mean is not even half way from guessing to all right
        past its table  undefined at the longest length
        holds           every seed keeps at least 95 % of what is above guessing
        collapses       every seed loses more than half of it
        declines        everything else
        """
        if self.first.mean < (1 + self.chance) / 2:
            return UNLEARNT
        kept = self.kept(list(self.of_seeds)[-1])
        if kept is None:
            return UNDEFINED
        if all(share >= 0.95 for share in kept):
            return HOLDS
        return COLLAPSES if all(share < 0.5 for share in kept) else DECLINES


def rows_of(measured: dict[str, list[Measured]], *, whole: bool) -> list[SequenceRow]:
    """Rows in the order of the catalogue, not of success: seeds lie too far apart for that.

    Args:
        measured: of each spec, with each seed.
        whole: whether a sequence counts only if all its answers are right.
    """
    rows = [_row(spec, runs, whole) for spec, runs in measured.items()]
    return sorted(rows, key=lambda row: (catalogue_order(row.spec), row.spec))


def _row(spec: str, runs: list[Measured], whole: bool) -> SequenceRow:
    counts = ("whole", "answers") if whole else ("answers", "whole")
    of_seeds, others = (_by_length(runs, count) for count in counts)
    return SequenceRow(spec, len(runs), runs[0]["chance"], of_seeds, others, training_means(runs), runs, whole)


def _by_length(runs: list[Measured], count: str) -> dict[str, list[float] | None]:
    found: dict[str, list[float] | None] = {}
    for number, name in enumerate(runs[0]["lengths"]):
        shares = [run[count][number] for run in runs]
        found[name] = None if shares[0] is None else shares
    return found
