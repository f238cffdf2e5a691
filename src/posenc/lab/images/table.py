"""From results to the rows of a table: accuracy in each test, with its range over seeds."""

from __future__ import annotations

from dataclasses import dataclass, field

from posenc.lab.images.measure import TRAINED
from posenc.lab.report.accuracy import Accuracy, accuracy_of
from posenc.lab.results import training_means
from posenc.lab.specs import catalogue_order
from posenc.lab.tasks.task import Measured

UNMOVED, LEAKS, COLLAPSES, UNDEFINED = "unmoved", "leaks", "collapses", "past its table"
SAME = 0.005  # half a point: a few pictures between two classes, which rounding may move


@dataclass(frozen=True)
class ImageRow:
    """One spec, over its seeds."""

    spec: str
    seeds: int
    of_seeds: dict[str, list[float] | None]  # by test; None where the encoding is undefined
    training: dict[str, float]  # means over seeds
    runs: list[Measured] = field(default_factory=list)  # what all of this comes from, of each seed

    def accuracy(self, test: str) -> Accuracy | None:
        """In one test; None where the encoding is undefined."""
        return accuracy_of(self.of_seeds[test])

    @property
    def constants(self) -> list[str]:
        """The tests that move all positions, the smallest move first."""
        return [test for test in self.of_seeds if test.startswith("+")]

    @property
    def verdict(self) -> str:
        """One word for what a constant added to all positions does. The first line that holds decides.

        past its table  some constant leads out of the table
        unmoved         with every constant and seed, accuracy stays within half a point
        collapses       with the smallest constant, every seed loses more than half of its accuracy
        leaks           everything else
        """
        before = self.of_seeds[TRAINED] or []
        after = [self.of_seeds[test] for test in self.constants]
        known = [found for found in after if found is not None]
        if len(known) < len(after):
            return UNDEFINED
        if all(abs(b - a) <= SAME for found in known for a, b in zip(before, found, strict=True)):
            return UNMOVED
        return COLLAPSES if all(b < a / 2 for a, b in zip(before, known[0], strict=True)) else LEAKS


def rows_of(measured: dict[str, list[Measured]]) -> list[ImageRow]:
    """Rows in the order of the catalogue, not of success: seeds lie too far apart for that."""
    rows = [_row(spec, runs) for spec, runs in measured.items()]
    return sorted(rows, key=lambda row: (catalogue_order(row.spec), row.spec))


def _row(spec: str, runs: list[Measured]) -> ImageRow:
    of_seeds: dict[str, list[float] | None] = {}
    for test in runs[0]["accuracy"]:
        found = [run["accuracy"][test] for run in runs]
        of_seeds[test] = None if found[0] is None else found
    return ImageRow(spec, len(runs), of_seeds, training_means(runs), runs)
