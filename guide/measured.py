"""What was measured, out of the records of docs/results: the one door to them, and no number is typed anywhere else."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from posenc.catalogue.measured import RECORDED

RESULTS = Path(__file__).parents[1] / "docs" / "results"


@dataclass(frozen=True)
class Measured:
    """One comparison's row of one encoding.

    Attributes:
        study: the comparison's folder.
        title: what was asked of the models.
        unit: of the means.
        better: "lower" or "higher".
        train_length: tokens.
        means: by length in tokens, (mean, low, high): the mean over seeds and documents and its 95 % interval.
        verdict: the comparison's own word on how it bears length.
        seeds: trainings.
    """

    study: str
    title: str
    unit: str
    better: str
    train_length: int
    means: dict[int, tuple[float, float, float]]
    verdict: str
    seeds: int


@cache
def measured() -> dict[str, tuple[Measured, ...]]:
    """Rows of each recorded comparison under full attention, by encoding."""
    found: dict[str, list[Measured]] = {}
    for cells in sorted(RESULTS.glob("*/cells.csv")):
        run = json.loads((cells.parent / "run.json").read_text(encoding="utf-8"))
        rows: dict[str, list[dict[str, str]]] = {}
        for row in csv.DictReader(cells.read_text(encoding="utf-8").splitlines()):
            if row["view"] == "full" and row["mean"]:
                rows.setdefault(row["encoding"], []).append(row)
        for name, its in rows.items():
            found.setdefault(name, []).append(
                Measured(
                    study=cells.parent.name,
                    title=run["words"]["title"],
                    unit=run["metrics"][0]["unit"],
                    better=run["metrics"][0]["better"],
                    train_length=run["numbers"]["train_length"],
                    means={int(r["length"]): (float(r["mean"]), float(r["low"]), float(r["high"])) for r in its},
                    verdict=its[0]["verdict"],
                    seeds=int(its[0]["seeds"]),
                )
            )
    return {name: tuple(rows) for name, rows in found.items()}


def tables_of(name: str) -> list[str]:
    """Folders of comparisons that have an encoding among their rows, the older ones, which have a table alone, too."""
    return [folder for folder, names in RECORDED.items() if name in names]
