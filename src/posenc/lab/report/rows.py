"""From the records of a run to the rows of its table: one encoding each under one view, with all that is claimed of it.

Rows are made of the metric that decides. Values are averaged within documents first; a row's cells are over all of its
seeds, a contrast is over the seeds and documents that both sides have, and what is said of length (change, verdict) is
over the seeds that learnt the task. The procedure is that of `posenc.lab.stats`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from posenc.lab.metrics import PRIMED_ZLIB, Metric
from posenc.lab.records import FULL, WINDOW
from posenc.lab.report.measured import Key, Measured, measured
from posenc.lab.report.verdict import Verdict, best_of, caution, criterion, has_learnt, verdict
from posenc.lab.runs import Run
from posenc.lab.stats import Array, Contrast, Share, contrasts, mean_interval, paired, share

OWN_WINDOW = "own window"  # label of the contrast with the same weights under a sliding window of the trained length
GIVEN = "rope"  # a model that is given, as it is
CUT = "a longer text that is cut there gives as much, for nothing"
BASELINES: Mapping[str, Key] = {"rope under its window": ("rope", WINDOW), "alibi": ("alibi", FULL)}


@dataclass(frozen=True)
class Cell:
    """The mean of a row at one length with its interval (95 %), which is NaN for one seed and one document."""

    length: int  # tokens
    mean: float
    low: float
    high: float
    freedom: float  # degrees of freedom of the interval
    seeds: int
    documents: int


@dataclass(frozen=True)
class Row:
    """One encoding under one view."""

    spec: str
    view: str
    cells: dict[int, Cell]  # by length in tokens; none where the encoding is undefined
    of_seeds: dict[int, dict[int, float]]  # length, seed: mean
    learnt: bool  # half of the seeds or more
    share: Share  # of seeds that learnt the task
    change: Contrast | None  # longest − 1× of the seeds that learnt (of a given model: its own 1×); None without them
    verdict: Verdict
    against: dict[str, Contrast]  # row − baseline, or own window, at the longest length by label; all seeds of both
    criterion: float | None  # median steps to learning
    training: dict[str, float]  # means over seeds of what was measured once a training
    caution: str  # what an interval of this row does not say; often empty
    beside: dict[int, Cell]  # of a given model: the same less the model as it is at 1×, by document; else empty


@dataclass(frozen=True)
class Table:
    """All rows of a run: those that learnt, best first at the longest length, then the others by their 1×."""

    metric: Metric
    lengths: tuple[int, ...]  # tokens
    trained: int  # tokens
    rows: tuple[Row, ...]
    baseline: float | None  # what must nearly be reached by a model that learnt, whatever the other rows reach
    planned: int  # contrasts with baselines, which were adjusted together
    remarks: tuple[str, ...]  # what is missing, and why

    @property
    def times(self) -> float:
        """How many trained lengths the longest test has."""
        found = self.lengths[-1] / self.trained
        return int(found) if found.is_integer() else found

    @property
    def views(self) -> list[str]:
        """What weights were measured under beside full and their window, numbers in names from small to large."""
        found = {row.view for row in self.rows} - {FULL, WINDOW}
        return sorted(
            found, key=lambda view: [part.zfill(9) if part.isdigit() else part for part in re.split(r"(\d+)", view)]
        )

    def row(self, spec: str, view: str = FULL) -> Row | None:
        """A row by name."""
        return next((row for row in self.rows if (row.spec, row.view) == (spec, view)), None)


def rows_of(run: Run, baselines: Mapping[str, Key] = BASELINES) -> Table:
    """The rows of all finished jobs of a run.

    Args:
        run: it may be unfinished.
        baselines: the rows, by label, that every other one is compared with; one that is not there is remarked upon.
    """
    found, last = measured(run), run.lengths[-1]
    against, remarks = _against(found, last, baselines, given=run.given)
    best = best_of([float(table.to_numpy().mean()) for table in found.first.values()], run.decides)
    probed = [[probes[-1][1] for probes in found.probes_of(spec)] for spec in found.first]
    best_probe = best_of([float(np.mean(values)) for values in probed if values], run.decides)
    baseline = baseline_of(run.facts)
    if baseline is not None and run.decides.within is not None:
        best, best_probe = (best_of([value, baseline], run.decides) for value in (best, best_probe))
    rows = []
    for key in found.values:
        steps = criterion(found.probes_of(key[0]), best_probe, run.decides)
        rows.append(_row(key, found, run, best, steps, against.get(key, {})))
    sign = 1 if run.decides.better == "lower" else -1

    def place(row: Row) -> tuple[bool, bool, float]:
        shown = row.cells.get(last) if row.learnt else None
        return not row.learnt, shown is None, sign * (shown or next(iter(row.cells.values()))).mean

    planned = sum(label in baselines for one in against.values() for label in one)
    begin = [f"Changes are from the model as it is at 1×: {CUT}."] if run.given and GIVEN in found.first else []
    absent = remarks if last > run.trained else []  # what is judged under views alone has no baseline
    remarks = [*begin, *found.remarks, *_fewer(found), *_shorter(run), *absent]
    ordered = tuple(sorted(rows, key=place))
    return Table(run.decides, run.lengths, run.trained, ordered, baseline, planned, tuple(remarks))


def baseline_of(facts: Mapping[str, str]) -> float | None:
    """Bits per byte of zlib on the bytes that models are scored on, after training text; None where not recorded."""
    return next((float(value.split()[0]) for name, value in facts.items() if name == PRIMED_ZLIB), None)


def _row(key: Key, found: Measured, run: Run, best: float, steps: float | None, against: dict[str, Contrast]) -> Row:
    (spec, view), tables, first, metric = key, found.values[key], found.first[key[0]], run.decides
    learners = [seed for seed, mean in first.mean(axis=1).items() if has_learnt(mean, best, metric)]
    part = share(len(learners), len(first))
    learnt, last = part.mean >= 0.5, run.lengths[-1] if view in (FULL, WINDOW) else max(tables)
    both = None
    if learnt and last in tables and (last > run.trained or view not in (FULL, WINDOW)):
        begin = found.first.get(GIVEN, first) if run.given else first[first.index.isin(learners)]
        both = _common(tables[last], begin)
    word: Verdict = "not learnt" if not learnt else "undecided" if last in tables else "no number"
    if both:
        word = verdict(paired(*both, confidence=0.9), mean_interval(both[0], confidence=0.9), metric)
    cells = {length: cell_of(length, tables[length]) for length in sorted(tables)}
    seeds = {length: tables[length].mean(axis=1).to_dict() for length in sorted(tables)}
    kept, reached = paired(*both) if both else None, steps if learnt else None
    care = "" if run.given else caution(part, both, metric)
    beside = _beside(tables, found.first.get(GIVEN)) if run.given else {}
    return Row(spec, view, cells, seeds, learnt, part, kept, word, against, reached, found.training(spec), care, beside)


def _beside(tables: Mapping[int, pd.DataFrame], cut: pd.DataFrame | None) -> dict[int, Cell]:
    """Differences: documents that have little in common differ by more than methods do."""
    less = {length: (tables[length] - cut).dropna(axis=1) for length in sorted(tables)} if cut is not None else {}
    return {length: cell_of(length, table) for length, table in less.items() if table.size}


def cell_of(length: int, table: pd.DataFrame) -> Cell:
    """The mean of values (seeds, documents) with its interval."""
    values = table.to_numpy()
    if values.size == 1:
        return Cell(length, float(values.mean()), math.nan, math.nan, 0, 1, 1)
    one = mean_interval(values)
    return Cell(length, one.mean, one.low, one.high, one.freedom, one.seeds, one.documents)


def _against(
    found: Measured, last: int, baselines: Mapping[str, Key], *, given: bool
) -> tuple[dict[Key, dict[str, Contrast]], list[str]]:
    """Contrasts at the longest length by row and label, adjusted by family; and why some are not there."""
    at_last = {key: tables[last] for key, tables in found.values.items() if last in tables}
    remarks, planned = list[str](), dict[tuple[Key, str], tuple[Array, Array]]()
    for label, baseline in baselines.items():
        if baseline not in at_last:
            remarks.append(f"No row is compared with {label}, which is not in this run.")
            continue
        others = [key for key in at_last if key != baseline]
        pairs = {(key, label): _common(at_last[key], at_last[baseline]) for key in others}
        planned |= {name: both for name, both in pairs.items() if both}
        alone = [f"{spec} ({view})" for ((spec, view), _), both in pairs.items() if not both]
        if alone:
            remarks.append(f"Not compared with {label}, for want of a common seed: {', '.join(alone)}.")
    windows = [spec for spec, view in at_last if view == WINDOW and (spec, FULL) in at_last]
    own = {((spec, FULL), OWN_WINDOW): _common(at_last[spec, FULL], at_last[spec, WINDOW]) for spec in windows}
    seeds = {f"{spec} ({view})": table.mean(axis=1).to_numpy() for (spec, view), table in at_last.items()}
    against = dict[Key, dict[str, Contrast]]()
    for family, kinds in ((planned, seeds), ({name: both for name, both in own.items() if both}, {})):
        for (key, label), contrast in zip(
            family, contrasts(list(family.values()), kinds, untrained=given), strict=True
        ):
            against.setdefault(key, {})[label] = contrast
    return against, remarks


def _common(a: pd.DataFrame, b: pd.DataFrame) -> tuple[Array, Array] | None:
    """What both have of the same seeds and documents; None if that is less than two values."""
    seeds, documents = a.index.intersection(b.index), a.columns.intersection(b.columns)
    if len(seeds) * len(documents) < 2:
        return None
    return a.loc[seeds, documents].to_numpy(), b.loc[seeds, documents].to_numpy()


def _fewer(found: Measured) -> list[str]:
    """Which specs lack seeds that others have."""
    every = sorted({seed for table in found.first.values() for seed in table.index})
    lacking = [f"{spec} ({len(table)})" for spec, table in found.first.items() if len(table) < len(every)]
    return [f"Fewer than the {len(every)} seeds of others: {', '.join(lacking)}."] if lacking else []


def _shorter(run: Run) -> list[str]:
    """Which lengths nothing is measured at yet."""
    waiting = [f"{k}×" for k in run.numbers["lengths"] if k not in run.times]
    return [f"Not measured yet: {', '.join(waiting)}."] if waiting else []
