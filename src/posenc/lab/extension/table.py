"""From what was measured to the rows of the table: bits by length, and how they compare with the sliding window."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posenc.lab.extension.methods import BASE, METHODS, Reading, parse
from posenc.lab.extension.settings import CONTINUED, WINDOW
from posenc.lab.results import table_of_runs, training_means
from posenc.lab.statistics.intervals import Interval, paired
from posenc.lab.tasks.task import Measured
from posenc.lab.text.verdict import DEGRADES, FAILS, FLAT, USES_CONTEXT, Change, verdict

UNCOMPARED = "not compared"
CONTROLS, FOLLOWS, FIXED, TUNED = "controls", "factor follows the length", "factor fixed", "fine-tuned"
KINDS = (CONTROLS, FOLLOWS, FIXED, TUNED)


@dataclass(frozen=True)
class ExtensionRow:
    """One row, over its seeds. Lists run over the test lengths."""

    spec: str
    seeds: int
    lengths: list[int]  # in training lengths
    judged: int  # the one of them that the verdict is about: that of the fine-tuning
    bits: list[float]  # bits per byte, mean over windows and seeds
    spread: list[float | None]  # standard deviation over seeds; None with one seed
    window: str  # the control that it is compared with
    against: list[Interval | None]  # bits more than the control at the same length, paired over seeds and windows
    training: dict[str, float]  # means over seeds, of the job that it was measured on
    runs: list[Measured]  # what all of this comes from, of each seed

    @property
    def reading(self) -> Reading:
        """What its name says."""
        return parse(self.spec)

    @property
    def kind(self) -> str:
        """Which part of the table it belongs to."""
        reading = self.reading
        if reading.training == "tuned":
            return TUNED
        if reading.method == BASE:
            return CONTROLS
        return FOLLOWS if reading.factor is None else FIXED

    @property
    def control(self) -> bool:
        """Whether it is no extension."""
        return self.kind == CONTROLS

    @property
    def own_training(self) -> bool:
        """Whether it is the one row that a training is told of under."""
        return self.spec == self.reading.trained

    @property
    def seed_numbers(self) -> list[int]:
        """Which seeds there are."""
        return [run["seed"] for run in self.runs]

    def windows(self, length: int, seeds: Sequence[int]) -> NDArray[np.float64] | None:
        """Bits at one of the test lengths, ``(seeds, windows)``."""
        return table_of_runs(self.runs, "bits", length, seeds)

    @property
    def at_judged(self) -> Interval | None:
        """Against the window at the judged length."""
        return self.against[self.lengths.index(self.judged)]

    @property
    def verdict(self) -> str:
        """One word for the judged length, against the window there.

        uses context  more than 0.01 bit better than the window, and the 95 % interval leaves 0 out
        flat          neither better nor worse
        degrades      at least 0.02 bit worse, and the interval leaves 0 out
        fails         more than 0.3 bit worse
        """
        return word(self.at_judged)

    @property
    def holds_to(self) -> int | None:
        """The last length up to which it fails at none; 0 if it fails at 1×, None without a window to compare with."""
        reached = 0
        for length, interval in zip(self.lengths, self.against, strict=True):
            if interval is None:
                return None
            if word(interval) == FAILS:
                break
            reached = length
        return reached

    @property
    def better_at(self) -> list[int]:
        """Lengths past the trained one at which it beats the window."""
        pairs = zip(self.lengths, self.against, strict=True)
        return [length for length, interval in pairs if length > 1 and word(interval) == USES_CONTEXT]


def word(interval: Interval | None) -> str:
    """The verdict on one length; see `ExtensionRow.verdict`."""
    if interval is None:
        return UNCOMPARED
    found = verdict(Change(interval.mean, 0.0))
    certain = interval.low > 0 or interval.high < 0
    return found if certain or found not in (USES_CONTEXT, DEGRADES) else FLAT


def rows_of(measured: dict[str, list[Measured]]) -> list[ExtensionRow]:
    """Controls, then extensions by kind; within a kind, the best at the judged length first."""
    rows = [_row(spec, measured) for spec in measured]
    return sorted(rows, key=lambda row: (KINDS.index(row.kind), _rank(row)))


def _rank(row: ExtensionRow) -> tuple[float, str]:
    return (0.0 if row.control else row.bits[row.lengths.index(row.judged)], row.spec)


def _row(spec: str, measured: dict[str, list[Measured]]) -> ExtensionRow:
    runs, window = measured[spec], CONTINUED if parse(spec).training else WINDOW
    lengths = runs[0]["lengths"]
    of_seeds = [[statistics.fmean(run["bits"][k]) for run in runs] for k in range(len(lengths))]
    return ExtensionRow(
        spec=spec,
        seeds=len(runs),
        lengths=lengths,
        judged=runs[0]["judged"],
        bits=[statistics.fmean(seeds) for seeds in of_seeds],
        spread=[statistics.stdev(seeds) if len(seeds) > 1 else None for seeds in of_seeds],
        window=window,
        against=[difference(runs, measured.get(window, []), k) for k in range(len(lengths))],
        training=training_means(runs),
        runs=runs,
    )


def difference(runs: list[Measured], others: list[Measured], length: int) -> Interval | None:
    """Bits more than others at one of the lengths, paired over the seeds that both have; None if there is none."""
    own, other = ({run["seed"]: run["bits"][length] for run in group} for group in (runs, others))
    seeds = [seed for seed in own if seed in other]
    if not seeds:
        return None
    return paired(np.array([own[seed] for seed in seeds]), np.array([other[seed] for seed in seeds]))


def order(spec: str) -> tuple[int, str]:
    """Sorts methods as the table of methods has them."""
    return METHODS.index(parse(spec).method), spec
