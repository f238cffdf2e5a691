"""What a report has measured, as answers to questions; None where it was not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from posenc.lab.cost import Costs
from posenc.lab.record import RunRecord
from posenc.lab.report.standings import standings_of
from posenc.lab.statistics.ranking import Ranked


class Growth(NamedTuple):
    """Bits per byte at the training length and at one times as long."""

    first: float
    last: float

    @property
    def ratio(self) -> float:
        """Of perplexities, as tables of others have them."""
        return float(2 ** (self.last - self.first))

    @property
    def words(self) -> str:
        """``1.67 → 4.41 bits (byte perplexity 3.18 → 21.3)``."""
        first, last = (f"{2**bits:.{2 if bits < 3 else 1}f}" for bits in self)
        perplexities = f"{first} → {last}"
        return f"{self.first:.2f} → {self.last:.2f} bits (byte perplexity {perplexities})"


@dataclass(frozen=True)
class Evidence:
    """Rows by task and spec, the settings of each task, ranks of text at the longest length, and costs."""

    rows: Mapping[str, Mapping[str, Any]]
    settings: Mapping[str, Any]
    ranked: Mapping[str, Ranked]
    costs: Sequence[Costs]

    @staticmethod
    def of(parts: Sequence[tuple[Sequence[Any], RunRecord[Any, Any]]], costs: Sequence[Costs]) -> Evidence:
        """From the rows and the record of each task."""
        rows = {record.settings.task: {row.spec: row for row in found} for found, record in parts}
        settings = {record.settings.task: record.settings for _, record in parts}
        standings = standings_of(list(rows["text"].values()), settings["text"].lengths) if rows.get("text") else []
        last = standings[-1].ranked if standings and len(settings["text"].lengths) > 1 else []
        return Evidence(rows, settings, {one.name: one for one in last}, costs)

    def row(self, task: str, spec: str) -> Any | None:
        """A row."""
        return self.rows.get(task, {}).get(spec)

    def longest(self, task: str) -> int:
        """The longest test length, in training lengths."""
        return int(self.settings[task].lengths[-1])

    def growth(self, spec: str, times: int, task: str = "text") -> Growth | None:
        """Bits at 1× and at ``times`` the training length."""
        row = self.row(task, spec)
        if row is None or times not in self.settings[task].lengths:
            return None
        first, last = row.bits[0], row.bits[self.settings[task].lengths.index(times)]
        return None if first is None or last is None else Growth(first, last)

    def to_the_end(self, spec: str) -> Growth | None:
        """The same of text at the longest length; None if nothing longer than 1× was measured."""
        return self.growth(spec, self.longest("text")) if "text" in self.rows and self.longest("text") > 1 else None

    def ratio(self, spec: str, work: str) -> float | None:
        """Time of a pass at the longest length, over the same without an encoding; of the first measuring with it."""
        for costs in self.costs:
            length = costs.conditions.train_length if work.startswith("model") else costs.conditions.lengths[-1]
            if spec in costs.encodings and (found := costs.cell(spec, work, length).relative) is not None:
                return found
        return None

    def accuracy(self, task: str, spec: str) -> tuple[float, float] | None:
        """Share of right answers at the training length and at the longest one, means over seeds."""
        row = self.row(task, spec)
        if row is None or len(row.of_seeds) < 2:
            return None
        first, last = row.accuracy(next(iter(row.of_seeds))), row.accuracy(list(row.of_seeds)[-1])
        return None if first is None or last is None else (first.mean, last.mean)
