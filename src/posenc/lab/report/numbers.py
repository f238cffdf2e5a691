"""The numbers of a report: cells, contrasts and verdicts of a run's rows, as frozen dataclasses without a sentence.

A row is one encoding under one view ("full", a sliding window of the training length, or a task's own views). Values
are averaged within documents first. A row's cells cover all of its seeds; a contrast covers the seeds and documents
that both sides have; the length verdict covers the seeds that learned the task. `posenc.lab.stats` states the
statistical procedure.

**Margins.** Each metric declares one equivalence margin and one failure bound (`posenc.lab.metrics.Metric.margin` and
``fails``), which run.json records. Every verdict, outcome of a claim and band of a chart uses these two numbers of the
run that it is about; no other threshold is written in this package.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pandas as pd

from posenc.lab.metrics import FULL, PRIMED_ZLIB, WINDOW, Metric
from posenc.lab.run.folder import Run
from posenc.lab.stats import (
    Array,
    Contrast,
    Interval,
    Share,
    contrasts,
    mean_interval,
    paired,
    share,
    within,
)

Key = tuple[str, str]  # spec, view
Probes = Sequence[tuple[int, float]]  # (step, value at the training length) in the order of steps
VerdictKind = Literal["better", "equivalent", "worse", "fails", "inconclusive", "not testable", "did not learn"]
VERDICTS: tuple[VerdictKind, ...] = get_args(VerdictKind)
STABLE: tuple[VerdictKind, ...] = ("better", "equivalent")

PROBE = "probe"  # metric of the records: the deciding metric at the training length, ``item`` the step
OWN_WINDOW = "own window"  # label of the contrast with the same weights under a sliding window of the training length
UNMODIFIED = "rope"  # spec of a released model as it is
ROPE_WINDOW = "rope under its window"
BASELINES: Mapping[str, Key] = {ROPE_WINDOW: ("rope", WINDOW), "alibi": ("alibi", FULL)}


@dataclass(frozen=True)
class Cell:
    """The mean of a row at one length with its 95 % interval, which is NaN for one seed and one document."""

    length: int  # tokens
    mean: float
    low: float
    high: float
    freedom: float  # degrees of freedom of the interval
    seeds: int
    documents: int


@dataclass(frozen=True)
class Verdict:
    """What a row does with length, or under another view, compared with the training length.

    better         the 90 % interval of the change lies beyond the margin on the better side
    equivalent     it lies within ± margin
    worse          it lies beyond the margin on the worse side
    fails          it lies beyond the failure bound on the worse side, or beyond the margin with values at chance
    inconclusive   none of these could be shown
    not testable   the row has no value there
    did not learn  fewer than half of the seeds learned the task at the training length

    Each claim is wrong in at most 5 % of cases, row by row; nothing is adjusted for the number of rows.
    """

    kind: VerdictKind
    margin: float  # in the metric's unit
    change: Interval | None = None  # paired, with confidence 90 %; n is its seeds and documents

    @property
    def stable(self) -> bool:
        """Whether the row is at least as good as at the training length."""
        return self.kind in STABLE


@dataclass(frozen=True)
class Row:
    """One encoding under one view."""

    spec: str
    view: str
    cells: dict[int, Cell]  # by length in tokens; absent where the encoding is undefined
    seed_means: dict[int, dict[int, float]]  # by length and seed
    learned: bool  # at least half of the seeds
    learned_share: Share
    change: Contrast | None  # longest − 1× of the seeds that learned; for a released model, − the unmodified model's 1×
    verdict: Verdict
    contrasts: dict[str, Contrast]  # row − baseline, or − own window, at the longest length by label; all common seeds
    steps_to_learn: float | None  # median over seeds
    training: dict[str, float]  # means over seeds of what is measured once a training
    failing_seeds: int  # of the seeds that learned, how many are worse by more than the failure bound at the end
    over_unmodified: dict[int, Cell]  # for a released model: by length, minus the unmodified model's 1×, by document

    @property
    def name(self) -> str:
        """The spec, with its view unless that is full attention."""
        return self.spec if self.view == FULL else f"{self.spec} ({self.view})"


@dataclass(frozen=True)
class Omission:
    """Something that a table lacks, and which rows it concerns."""

    kind: Literal[
        "not finite", "no training length", "fewer seeds", "no baseline", "no common seed", "not measured yet"
    ]
    rows: tuple[str, ...] = ()  # names of rows; for "no baseline" and "no common seed" the baseline comes first
    counts: tuple[float, ...] = ()  # seed and length; seeds of each row, then of most rows; multiples of the length


@dataclass(frozen=True)
class Table:
    """All rows of a run: those that learned the task, best first at the longest length, then the others by their 1×."""

    metric: Metric
    lengths: tuple[int, ...]  # tokens
    trained: int  # tokens
    rows: tuple[Row, ...]
    reference: float | None  # bits per byte that a model must come near to count as having learned
    planned: int  # contrasts with baselines, adjusted together
    omissions: tuple[Omission, ...]

    @property
    def times(self) -> float:
        """The longest length in training lengths."""
        times = self.lengths[-1] / self.trained
        return int(times) if times.is_integer() else times

    @property
    def full_rows(self) -> list[Row]:
        """The rows under full attention, one for each encoding."""
        return [row for row in self.rows if row.view == FULL]

    @property
    def views(self) -> list[str]:
        """The views other than full attention and the window, numbers in their names in numerical order."""
        views = {row.view for row in self.rows} - {FULL, WINDOW}
        return sorted(
            views, key=lambda view: [part.zfill(9) if part.isdigit() else part for part in re.split(r"(\d+)", view)]
        )

    def row(self, spec: str, view: str = FULL) -> Row | None:
        """A row by name."""
        return next((row for row in self.rows if (row.spec, row.view) == (spec, view)), None)


NamedTables = Mapping[str, tuple[Run, Table]]  # runs with their tables, by a label that tells the runs apart


# ---- Verdicts ----


def best_of(values: Sequence[float], metric: Metric) -> float:
    """The best of some values; NaN for none."""
    return (min if metric.better == "lower" else max)(values, default=math.nan)


def has_learned(value: float, best: float, metric: Metric) -> bool:
    """Whether a model with this value at the training length has learned its task.

    It reaches ``metric.learned``, or lies within ``metric.within`` of ``best``, the best row's mean there. A metric
    with neither criterion accepts every value.
    """
    sign = _sign(metric)
    thresholds = [] if metric.learned is None else [sign * metric.learned]
    thresholds += [] if metric.within is None else [sign * best - metric.within]
    return sign * value >= min(thresholds, default=-math.inf)


def steps_to_learn(trainings: Sequence[Probes], best: float, metric: Metric) -> float | None:
    """Steps until a training has learned its task and keeps it for all later probes; the median over trainings.

    None where at least half of the trainings have not learned it, and for a metric without a criterion.
    """
    if not trainings or (metric.learned is None and metric.within is None):
        return None
    steps = list[float]()
    for probes in trainings:
        since = math.inf
        for step, value in reversed(probes):
            if not has_learned(value, best, metric):
                break
            since = step
        steps.append(since)
    median = float(np.median(steps))
    return median if math.isfinite(median) else None


def verdict_on(change: Interval, last: Interval, metric: Metric) -> VerdictKind:
    """The verdict of models that learned their task, see `Verdict`.

    Args:
        change: longest − 1×, paired, with confidence 90 %.
        last: the mean at the longest length, with confidence 90 %.
        metric: its better side, margin, chance and failure bound.
    """
    answer = within(change, metric.margin)
    if answer != "different":
        return answer
    best_end = _best_end(change, metric)
    if best_end > 0:
        return "better"
    chance = -math.inf if metric.chance is None else _sign(metric) * metric.chance + metric.margin
    return "fails" if best_end < -metric.fails or _best_end(last, metric) <= chance else "worse"


def failing_seeds(last: Array, first: Array, metric: Metric) -> int:
    """How many seeds are worse at the longest length by more than the failure bound; tables are (seeds, documents)."""
    loss = _sign(metric) * (first - last).mean(axis=1)
    return int((loss > metric.fails).sum())


def _best_end(interval: Interval, metric: Metric) -> float:
    """The better end of an interval, with the sign at which more is better."""
    return interval.high if metric.better == "higher" else -interval.low


def _sign(metric: Metric) -> int:
    return 1 if metric.better == "higher" else -1


# ---- Records, sorted ----


@dataclass(frozen=True)
class Measured:
    """The records of a run by row and length, with probes and what is measured once a training."""

    values: dict[Key, dict[int, pd.DataFrame]]  # by row and length in tokens: (seeds, documents), none missing
    at_trained: dict[str, pd.DataFrame]  # the same at the training length under full attention, for every spec
    jobs: dict[str, list[str]]  # by spec
    once: dict[str, dict[str, dict[str, float]]]  # by job, spec and metric: measured once a training
    probes: dict[str, Probes]  # by job
    omissions: tuple[Omission, ...]

    def training(self, spec: str) -> dict[str, float]:
        """Means over the trainings of a spec; rows that share a training share what is measured of it."""
        trainings = []
        for job in self.jobs[spec]:
            by_spec = self.once.get(job, {})
            common = {metric: value for values in by_spec.values() for metric, value in values.items()}
            trainings.append({**common, **by_spec.get(spec, {})})
        return {str(metric): float(mean) for metric, mean in pd.DataFrame(trainings).mean().items()}

    def probes_of(self, spec: str) -> list[Probes]:
        """The probes of each training of a spec."""
        return [self.probes[job] for job in self.jobs[spec] if job in self.probes]


def measured(run: Run) -> Measured:
    """Sort the records of a run; specs without numbers at the training length get no row and are named."""
    lines, trained, omissions = run.records, run.trained, list[Omission]()
    values = values_of(_finite(lines[(lines["metric"] == run.decides.name) & (lines["length"] > 0)], omissions))
    at_trained = {
        spec: tables[trained] for (spec, view), tables in values.items() if view == FULL and trained in tables
    }
    for (spec, view), tables in values.items():
        if view == WINDOW and spec in at_trained:  # at the training length the window hides nothing
            tables.setdefault(trained, at_trained[spec])
    absent = sorted({spec for spec, _ in values} - set(at_trained))
    omissions += [Omission("no training length", (spec,)) for spec in absent]
    once = lines[(lines["length"] == 0) & np.isfinite(lines["value"])]
    jobs = dict[str, list[str]]()
    for spec, job in lines[["spec", "job"]].drop_duplicates().itertuples(index=False):
        jobs.setdefault(str(spec), []).append(str(job))
    return Measured(
        {key: tables for key, tables in values.items() if key[0] in at_trained}, at_trained, jobs,
        _once(once[once["metric"] != PROBE]), _probes(once[once["metric"] == PROBE]), tuple(omissions),
    )  # fmt: skip


def values_of(lines: pd.DataFrame) -> dict[Key, dict[int, pd.DataFrame]]:
    """Averages within documents by row and length; a document that some seed of a row lacks is left out."""
    by = ["spec", "view", "length", "seed", "document"]
    wide = lines.groupby(by, observed=True)["value"].mean().unstack("document")
    values = dict[Key, dict[int, pd.DataFrame]]()
    for (spec, view, length), part in wide.groupby(level=[0, 1, 2], observed=True):
        table = part.droplevel([0, 1, 2]).dropna(axis=1)
        if table.size:
            values.setdefault((str(spec), str(view)), {})[int(length)] = table
    return values


def _finite(lines: pd.DataFrame, omissions: list[Omission]) -> pd.DataFrame:
    """The lines without those seeds of a row that have a non-finite value at a length; each is reported."""
    broken = ~np.isfinite(lines["value"])
    if not broken.any():
        return lines
    keys = pd.MultiIndex.from_frame(lines[["spec", "view", "length", "seed"]].astype({"spec": str, "view": str}))
    excluded = keys[broken].unique()
    for spec, view, length, seed in excluded:
        omissions.append(Omission("not finite", (f"{spec} ({view})",), (int(seed), int(length))))
    return lines[~keys.isin(excluded)]


def _once(lines: pd.DataFrame) -> dict[str, dict[str, dict[str, float]]]:
    """Metrics with one value a training, or one for each row of a training."""
    by = ["job", "spec", "metric"]
    values = dict[str, dict[str, dict[str, float]]]()
    for job, spec, metric, value in lines.drop_duplicates(by, keep=False)[[*by, "value"]].itertuples(index=False):
        values.setdefault(str(job), {}).setdefault(str(spec), {})[str(metric)] = float(value)
    return values


def _probes(lines: pd.DataFrame) -> dict[str, Probes]:
    jobs = lines.sort_values("item", kind="stable").groupby("job", observed=True)
    return {str(job): list(zip(part["item"].tolist(), part["value"].tolist(), strict=True)) for job, part in jobs}


# ---- Tables ----


def build_table(run: Run, baselines: Mapping[str, Key] = BASELINES) -> Table:
    """Compute the rows of all finished jobs of a run.

    Args:
        run: it may be unfinished.
        baselines: the rows, by label, that every other row is compared with; an absent one is reported as an omission.
    """
    records, last, metric = measured(run), run.lengths[-1], run.decides
    contrasts_of, omissions = _planned_contrasts(records, last, baselines, untrained=run.given)
    best = best_of([float(table.to_numpy().mean()) for table in records.at_trained.values()], metric)
    last_probes = [[probes[-1][1] for probes in records.probes_of(spec)] for spec in records.at_trained]
    best_probe = best_of([float(np.mean(values)) for values in last_probes if values], metric)
    reference = reference_of(run.facts)
    if reference is not None and metric.within is not None:
        best, best_probe = (best_of([value, reference], metric) for value in (best, best_probe))
    rows = [
        _row(key, records, run, best, steps_to_learn(records.probes_of(key[0]), best_probe, metric), contrasts_of)
        for key in records.values
    ]
    worse = 1 if metric.better == "lower" else -1

    def rank(row: Row) -> tuple[bool, bool, float]:
        at_last = row.cells.get(last) if row.learned else None
        return not row.learned, at_last is None, worse * (at_last or next(iter(row.cells.values()))).mean

    planned = sum(label in baselines for by_label in contrasts_of.values() for label in by_label)
    absent = omissions if last > run.trained else []  # a task that is judged under views alone has no baselines
    omissions = [*records.omissions, *_fewer_seeds(records), *_not_measured_yet(run), *absent]
    ordered = tuple(sorted(rows, key=rank))
    return Table(metric, run.lengths, run.trained, ordered, reference, planned, tuple(omissions))


def reference_of(facts: Mapping[str, str]) -> float | None:
    """Bits per byte of zlib on the bytes that models are scored on, after training text; None where not recorded."""
    return next((float(value.split()[0]) for name, value in facts.items() if name == PRIMED_ZLIB), None)


def cell_of(length: int, table: pd.DataFrame) -> Cell:
    """The mean of values (seeds, documents) with its interval."""
    values = table.to_numpy()
    if values.size == 1:
        return Cell(length, float(values.mean()), math.nan, math.nan, 0, 1, 1)
    interval = mean_interval(values)
    return Cell(
        length, interval.mean, interval.low, interval.high, interval.freedom, interval.seeds, interval.documents
    )


def metric_cells(run: Run, metric: Metric) -> dict[Key, dict[int, Cell]]:
    """The cells of a further metric by row and length."""
    lines = run.records[(run.records["metric"] == metric.name) & (run.records["length"] > 0)]
    return {
        key: {length: cell_of(length, values) for length, values in by_length.items()}
        for key, by_length in values_of(lines).items()
    }


def _row(
    key: Key, records: Measured, run: Run, best: float, steps: float | None,
    contrasts_of: Mapping[Key, dict[str, Contrast]],
) -> Row:  # fmt: skip
    (spec, view), tables, first, metric = key, records.values[key], records.at_trained[key[0]], run.decides
    learners = [seed for seed, mean in first.mean(axis=1).items() if has_learned(mean, best, metric)]
    learned_share = share(len(learners), len(first))
    learned, last = learned_share.mean >= 0.5, run.lengths[-1] if view in (FULL, WINDOW) else max(tables)
    pair = None
    if learned and last in tables and (last > run.trained or view not in (FULL, WINDOW)):
        begin = records.at_trained.get(UNMODIFIED, first) if run.given else first[first.index.isin(learners)]
        pair = _common(tables[last], begin)
    kind: VerdictKind = "did not learn" if not learned else "inconclusive" if last in tables else "not testable"
    change = paired(*pair, confidence=0.9) if pair else None
    if pair and change:
        kind = verdict_on(change, mean_interval(pair[0], confidence=0.9), metric)
    return Row(
        spec=spec,
        view=view,
        cells={length: cell_of(length, tables[length]) for length in sorted(tables)},
        seed_means={length: tables[length].mean(axis=1).to_dict() for length in sorted(tables)},
        learned=learned,
        learned_share=learned_share,
        change=paired(*pair) if pair else None,
        verdict=Verdict(kind, metric.margin, change),
        contrasts=contrasts_of.get(key, {}),
        steps_to_learn=steps if learned else None,
        training=records.training(spec),
        failing_seeds=failing_seeds(*pair, metric) if pair and not run.given else 0,
        over_unmodified=_over_unmodified(tables, records.at_trained.get(UNMODIFIED)) if run.given else {},
    )


def _over_unmodified(tables: Mapping[int, pd.DataFrame], unmodified: pd.DataFrame | None) -> dict[int, Cell]:
    """Differences by document, because documents differ from each other by more than methods do."""
    if unmodified is None:
        return {}
    differences = {length: (tables[length] - unmodified).dropna(axis=1) for length in sorted(tables)}
    return {length: cell_of(length, table) for length, table in differences.items() if table.size}


def _planned_contrasts(
    records: Measured, last: int, baselines: Mapping[str, Key], *, untrained: bool
) -> tuple[dict[Key, dict[str, Contrast]], list[Omission]]:
    """Contrasts at the longest length by row and label, adjusted by family, and those that could not be computed."""
    at_last = {key: tables[last] for key, tables in records.values.items() if last in tables}
    omissions, planned = list[Omission](), dict[tuple[Key, str], tuple[Array, Array]]()
    for label, baseline in baselines.items():
        if baseline not in at_last:
            omissions.append(Omission("no baseline", (label,)))
            continue
        pairs = {(key, label): _common(at_last[key], at_last[baseline]) for key in at_last if key != baseline}
        planned |= {name: pair for name, pair in pairs.items() if pair}
        unpaired = [f"{spec} ({view})" for ((spec, view), _), pair in pairs.items() if not pair]
        if unpaired:
            omissions.append(Omission("no common seed", (label, *unpaired)))
    windowed = [spec for spec, view in at_last if view == WINDOW and (spec, FULL) in at_last]
    pairs_of_weights = {
        ((spec, FULL), OWN_WINDOW): _common(at_last[spec, FULL], at_last[spec, WINDOW]) for spec in windowed
    }
    own_windows = {name: pair for name, pair in pairs_of_weights.items() if pair}
    seed_means = {f"{spec} ({view})": table.mean(axis=1).to_numpy() for (spec, view), table in at_last.items()}
    by_row = dict[Key, dict[str, Contrast]]()
    for family, seeds in ((planned, seed_means), (own_windows, {})):
        differences = contrasts(list(family.values()), seeds, untrained=untrained)
        for (key, label), contrast in zip(family, differences, strict=True):
            by_row.setdefault(key, {})[label] = contrast
    return by_row, omissions


def _common(a: pd.DataFrame, b: pd.DataFrame) -> tuple[Array, Array] | None:
    """The values of the seeds and documents that both have; None if those are fewer than two values."""
    seeds, documents = a.index.intersection(b.index), a.columns.intersection(b.columns)
    if len(seeds) * len(documents) < 2:
        return None
    return a.loc[seeds, documents].to_numpy(), b.loc[seeds, documents].to_numpy()


def _fewer_seeds(records: Measured) -> list[Omission]:
    """Which specs lack seeds that others have."""
    every = {seed for table in records.at_trained.values() for seed in table.index}
    lacking = {spec: len(table) for spec, table in records.at_trained.items() if len(table) < len(every)}
    return [Omission("fewer seeds", tuple(lacking), (*lacking.values(), len(every)))] if lacking else []


def _not_measured_yet(run: Run) -> list[Omission]:
    """Which lengths have no value yet."""
    waiting = tuple(k for k in run.numbers["lengths"] if k not in run.times)
    return [Omission("not measured yet", (), waiting)] if waiting else []
