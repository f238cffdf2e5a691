"""``python -m guide.embedded``: what was measured, as the file that an installed package carries, and as a picture.

docs/results lies in the repository alone. A test fails where the file is older than the results.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from guide.measured import RESULTS
from posenc.catalogue.studies import FILE, studies
from posenc.figures import alone, figure
from posenc.lab.records import FULL
from posenc.lab.report.numbers import build_table
from posenc.lab.runs import read_run

Line = dict[str, str]
Contrasts = dict[str, list[list[Any]]]  # of a row: against what, the difference and its interval, whether it is claimed
PICTURE = Path(__file__).parents[1] / "docs" / "assets" / "measured.svg"
FIRST = {"rope": ("rope", FULL), "alibi": ("alibi", FULL)}  # baselines at the trained length, where no window hides any


def embedded() -> str:
    """The text of the file: comparisons, each with its rows by encoding."""
    lines = [json.dumps(_study(path.parent), ensure_ascii=False) for path in sorted(RESULTS.glob("*/cells.csv"))]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _study(folder: Path) -> dict[str, Any]:
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    metric, cells = run["metrics"][0], list(_lines(folder / "cells.csv"))
    last, first = _contrasts(folder), _at_first(folder)
    names = dict.fromkeys(cell["encoding"] for cell in cells)
    return {
        "study": folder.name, "task": run["words"]["task"], "title": run["words"]["title"], "unit": metric["unit"],
        "better": metric["better"], "percent": metric["percent"], "margin": metric["margin"],
        "train_length": run["numbers"]["train_length"],
        "rows": {
            name: _row([c for c in cells if c["encoding"] == name], last.get(name, []), first.get(name, []))
            for name in names
        },
    }  # fmt: skip


def _row(cells: list[Line], contrasts: list[list[Any]], at_first: list[list[Any]]) -> dict[str, Any]:
    full = [cell for cell in cells if cell["view"] == "full"]
    return {
        "verdict": full[0]["verdict"], "learnt": full[0]["learnt"] == "True", "seeds": int(full[0]["seeds"]),
        "means": _means(full), "window": _means([cell for cell in cells if cell["view"] == "window"]),
        "contrasts": contrasts, "at_first": at_first,
    }  # fmt: skip


def _means(cells: list[Line]) -> list[list[float]]:
    """Length, mean and interval, for each length that has them."""
    there = [cell for cell in cells if cell["mean"]]
    return sorted([int(c["length"]), float(c["mean"]), float(c["low"]), float(c["high"])] for c in there)


def _contrasts(folder: Path) -> Contrasts:
    """Of rows under full attention, at the longest length, as their table has them."""
    found: Contrasts = {}
    for line in _lines(folder / "contrasts.csv"):
        if line["view"] == "full" and line["mean"]:
            claimed = bool(line["adjusted"]) and float(line["adjusted"]) <= 0.05 and not line["caution"]
            numbers = [float(line[name]) for name in ("mean", "low", "high")]
            found.setdefault(line["encoding"], []).append([line["against"], *numbers, claimed])
    return found


def _at_first(folder: Path) -> Contrasts:
    """Of the same rows at the trained length, from the records, by the same procedure, adjusted among themselves."""
    run = read_run(folder)
    records = run.records[run.records["view"] == FULL]
    only = {**run.numbers, "lengths": [1]}
    table = build_table(replace(run, numbers=only, records=records), FIRST)
    return {
        row.spec: [
            [label, *(float(f"{value:.6g}") for value in (one.mean, one.low, one.high)), one.significant]
            for label, one in row.contrasts.items()
        ]
        for row in table.rows
    }


def _lines(path: Path) -> Iterator[Line]:
    return csv.DictReader(path.read_text(encoding="utf-8").splitlines())


def picture() -> str:
    """The picture of the README, of what the embedded file says."""
    return alone(figure("measured"), at_night=True)


if __name__ == "__main__":
    FILE.write_text(embedded(), encoding="utf-8")
    studies.cache_clear()
    PICTURE.write_text(picture(), encoding="utf-8")
