"""From the results in a run folder to the rows of its table. Seeds of one spec are pooled."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from posenc.lab.results import read_measured, table_of_runs, training_means
from posenc.lab.specs import is_control
from posenc.lab.statistics.intervals import paired
from posenc.lab.tasks.task import Measured
from posenc.lab.text.verdict import Change, verdict


@dataclass(frozen=True)
class Row:
    """One spec, over its seeds. Lists run over the test lengths; None where the encoding is undefined."""

    spec: str
    seeds: int
    bits: list[float | None]  # bits per byte, mean over windows and seeds
    spread: list[float | None]  # standard deviation over seeds; None with one seed
    changes: list[Change | None]  # against 1×, paired over seeds and windows
    positions: list[tuple[float, float]]  # (middle of the bin in bytes, bits) in the longest window
    training: dict[str, float]  # means over seeds; what a control has is that of its checkpoint
    runs: list[Measured] = field(default_factory=list)  # what all of this comes from, of each seed

    @property
    def control(self) -> bool:
        """Whether it is another row's checkpoint under other conditions."""
        return is_control(self.spec)

    @property
    def verdict(self) -> str:
        """One word, from the change at the longest length."""
        return verdict(self.changes[-1])

    @property
    def perplexities(self) -> tuple[float, float | None]:
        """Byte perplexity, 2^bits, at 1× and at the longest length."""
        first, last = self.bits[0], self.bits[-1]
        return 2 ** (first if first is not None else math.nan), None if last is None else 2**last

    def windows(self, length: int, seeds: Sequence[int]) -> NDArray[np.float64] | None:
        """Bits at one of the test lengths, ``(seeds, windows)``; None where the encoding is undefined."""
        return table_of_runs(self.runs, "bits", length, seeds)

    def of_seeds(self, length: int) -> list[float] | None:
        """Bits of each seed at one of the test lengths; None where the encoding is undefined."""
        found = self.windows(length, self.seed_numbers)
        return None if found is None else [float(mean) for mean in found.mean(1)]

    @property
    def seed_numbers(self) -> list[int]:
        """Which seeds there are."""
        return [run["seed"] for run in self.runs]


def read_rows(out: Path) -> list[Row]:
    """The rows of all finished jobs of a run."""
    return rows_of(read_measured(out))


def rows_of(measured: dict[str, list[Measured]]) -> list[Row]:
    """Rows, best at the longest length first, undefined ones last."""
    rows = [_row(spec, runs) for spec, runs in measured.items()]
    return sorted(rows, key=lambda row: (row.bits[-1] is None, row.bits[-1] or row.bits[0] or 0.0))


def thinned(positions: list[tuple[float, float]], per_octave: int = 6) -> list[tuple[float, float]]:
    """A curve for a logarithmic axis: neighbours averaged, so that the far end is as readable as the near one."""
    groups: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for x, y in positions:
        groups[math.floor(per_octave * math.log2(x))].append((x, y))
    return [(statistics.fmean(x for x, _ in group), statistics.fmean(y for _, y in group)) for group in groups.values()]


def _row(spec: str, runs: list[Measured]) -> Row:
    tables = [table_of_runs(runs, "bits", length) for length in range(len(runs[0]["bits"]))]
    return Row(
        spec=spec,
        seeds=len(runs),
        bits=[None if table is None else float(table.mean()) for table in tables],
        spread=[None if table is None or len(table) < 2 else float(table.mean(1).std(ddof=1)) for table in tables],
        changes=[None if table is None else _change(tables[0], table) for table in tables],
        positions=_positions(runs),
        training=training_means(runs),
        runs=runs,
    )


def _change(first: NDArray[np.float64] | None, last: NDArray[np.float64]) -> Change:
    if first is None:
        raise ValueError("an encoding is undefined at the training length")
    found = paired(last, first)
    return Change(found.mean, found.error)


def _positions(runs: list[Measured]) -> list[tuple[float, float]]:
    width = runs[0]["bin"]
    curves = zip(*(run["positions"] for run in runs), strict=True)
    return [((i + 0.5) * width, statistics.fmean(curve)) for i, curve in enumerate(curves)]
