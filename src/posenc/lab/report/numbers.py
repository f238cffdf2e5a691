"""The numbers of a report: cells, contrasts and verdicts of a run's rows, as frozen dataclasses without a sentence.

A row is one encoding under one view ("full", a sliding window of the training length, or a task's own views). Values
are averaged within documents first. A row's cells cover all of its seeds; a contrast covers the seeds and documents
that both sides have. `posenc.lab.stats` states the statistical procedure, `posenc.lab.report.verdicts` the verdicts.

**Margins.** Each unit has one margin (`posenc.lab.metrics.MARGINS`). Every verdict, contrast over length, reach,
outcome of a claim and band of a chart uses it; no other threshold is written in this package.

**Learning** is absolute. A training has learned its task if the 95 % interval of its value at the training length lies
above chance and above the majority class. Of a language model no such thing is said: at the training length it is
better than the entropy of single tokens or not, which is the condition of a verdict, and better than the n-gram of the
run or not, by the 95 % interval of the difference by document (`posenc.lab.run.baselines`).

**Multiplicity.** The verdicts of a table are one family and its contrasts another, each adjusted by Holm. A
contrast is not made between rows whose rates were tuned by different procedures, nor with a loss above the entropy of
single tokens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from posenc.lab.metrics import (
    FAR,
    FULL,
    MAJORITY,
    NGRAM,
    NGRAM_ORDERS,
    NGRAM_PROBE,
    REACH,
    UNIGRAM,
    WINDOW,
    Metric,
)
from posenc.lab.report.verdicts import FarContext, Verdict, practical_length, simultaneous, verdicts_on
from posenc.lab.run.folder import Run
from posenc.lab.stats import (
    Array,
    Contrast,
    Interval,
    contrasts,
    mean_interval,
    paired,
)

Key = tuple[str, str]  # spec, view
Probes = Sequence[tuple[int, float]]  # (step, value at the training length) in the order of steps

PROBE = "probe"  # metric of the records: the deciding metric at the training length, ``item`` the step
OWN_WINDOW = "own window"  # label of the contrast with the same weights under a sliding window of the training length
UNMODIFIED = "rope"  # spec of a released model as it is
ROPE_WINDOW = "rope under its window"
BASELINES: Mapping[str, Key] = {ROPE_WINDOW: ("rope", WINDOW), "alibi": ("alibi", FULL)}


@dataclass(frozen=True)
class Reach:
    """How much context the language models of a row use at the training length T: the loss by truncated context.

    Attributes:
        losses: by context in tokens, on the targets of the training length.
        used: the smallest of these contexts whose mean loss is within the margin of the loss at T.
    """

    losses: dict[int, Interval]
    used: int


@dataclass(frozen=True)
class Baselines:
    """What counting reaches on the targets of a run (`posenc.lab.run.baselines`), in bits per token."""

    order: int  # of the best n-gram, its context and the predicted token
    ngram: Interval
    ngram_documents: pd.Series  # its mean in each document
    probe: float  # the n-gram on the windows that probes score
    unigram: float  # entropy of single tokens


@dataclass(frozen=True)
class Share:
    """How many of the trainings of a row reached something."""

    count: int
    seeds: int

    @property
    def mean(self) -> float:
        """The share, from 0 to 1."""
        return self.count / self.seeds


@dataclass(frozen=True)
class Row:
    """One encoding under one view."""

    spec: str
    view: str
    cells: dict[int, Interval]  # by length in tokens; absent where the encoding is undefined
    learned: bool  # at least half of the seeds: a task, or of a language model more than the entropy of single tokens
    learned_share: Share
    ngram_share: Share | None  # of a language model: seeds that are better than the n-gram of the run
    change: Contrast | None  # longest − 1×, see `build_table`; for a released model, − the unmodified model's 1×
    verdict: Verdict
    practical_length: int | None  # the longest tested length within the margin, tokens; None without a verdict
    far: FarContext | None  # None where the task does not ask, or the records do not say
    contrasts: dict[str, Contrast]  # row − baseline, or − own window, at the longest length by label; all common seeds
    steps_to_learn: float | None  # median over seeds
    reach: Reach | None  # of the models behind the row
    training: dict[str, float]  # means over seeds of what is measured once a training

    @property
    def name(self) -> str:
        """The spec, with its view unless that is full attention."""
        return self.spec if self.view == FULL else f"{self.spec} ({self.view})"


@dataclass(frozen=True)
class Omission:
    """Something that a table lacks although it was measured, and which rows it concerns."""

    kind: Literal["not finite", "tuned otherwise", "above unigram"]
    rows: tuple[str, ...]  # names of rows; for a baseline that some are not compared with, it comes first
    counts: tuple[int, ...] = ()  # seed and length


@dataclass(frozen=True)
class Table:
    """All rows of a run: those that learned the task, best first at the longest length, then the others by their 1×."""

    metric: Metric
    lengths: tuple[int, ...]  # tokens
    trained: int  # tokens
    rows: tuple[Row, ...]
    baselines: Baselines | None  # of a language model
    majority: float | None  # of a task: what always giving the most frequent answer reaches; None: not recorded
    bar: float | None  # what the value at the training length must be better than, for a row to be judged
    tests: int  # contrasts, adjusted together
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


# ---- Learning ----


def reaches(value: float, threshold: float | None, metric: Metric) -> bool:
    """Whether a value at the training length reaches a threshold; a metric without one accepts every value."""
    return threshold is None or _sign(metric) * value >= _sign(metric) * threshold


def beats(values: pd.Series, ngram: pd.Series) -> bool:
    """Whether one training is better than the n-gram by document, beyond the 95 % interval of the difference."""
    a, b = values.align(ngram, join="inner")
    return a.size > 1 and paired(a.to_numpy()[None], b.to_numpy()[None]).high < 0


def has_learned(values: pd.Series, bar: float | None, metric: Metric) -> bool:
    """Whether one training, with these values by document at the training length, is better than what needs no model.

    Of a language model its mean is compared, of a task the nearer end of the 95 % interval.

    Args:
        values: by document.
        bar: `Table.bar`; None where nothing is asked for.
        metric: of the values.
    """
    if bar is None:
        return True
    if metric.language:
        return float(values.mean()) < bar
    if values.size < 2:
        return False
    interval = mean_interval(values.to_numpy()[None])
    return interval.low > bar if metric.better == "higher" else interval.high < bar


def steps_to_learn(trainings: Sequence[Probes], threshold: float | None, metric: Metric) -> float | None:
    """Steps until a training solves its task and does so in all later probes; the median over trainings.

    None where at least half of the trainings do not solve it, and without a threshold.
    """
    if not trainings or threshold is None:
        return None
    steps = list[float]()
    for probes in trainings:
        since = math.inf
        for step, value in reversed(probes):
            if not reaches(value, threshold, metric):
                break
            since = step
        steps.append(since)
    median = float(np.median(steps))
    return median if math.isfinite(median) else None


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
    reach: dict[str, dict[int, pd.DataFrame]]  # by spec and context in tokens: (seeds, documents)
    far: dict[str, pd.DataFrame]  # of a task: right answers from far back at the training length, by spec
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
    """Sort the records of a run; specs without numbers at the training length get no row."""
    lines, trained, omissions = run.records, run.trained, list[Omission]()
    values = values_of(_finite(lines[(lines["metric"] == run.decides.name) & (lines["length"] > 0)], omissions))
    at_trained = {
        spec: tables[trained] for (spec, view), tables in values.items() if view == FULL and trained in tables
    }
    for (spec, view), tables in values.items():
        if view == WINDOW and spec in at_trained:  # at the training length the window hides nothing
            tables.setdefault(trained, at_trained[spec])
    once = lines[(lines["length"] == 0) & np.isfinite(lines["value"])]
    jobs = dict[str, list[str]]()
    for spec, job in lines[["spec", "job"]].drop_duplicates().itertuples(index=False):
        jobs.setdefault(str(spec), []).append(str(job))
    return Measured(
        {key: tables for key, tables in values.items() if key[0] in at_trained}, at_trained, jobs,
        _once(once[once["metric"] != PROBE]), _probes(once[once["metric"] == PROBE]),
        _reach(lines, jobs, at_trained, trained),
        {spec: tables[trained] for (spec, view), tables in values_of(lines[lines["metric"] == FAR]).items()},
        tuple(omissions),
    )  # fmt: skip


def baselines_of(run: Run) -> Baselines | None:
    """The baselines in a run's records; None where it has none."""
    by_metric = {str(name): lines for name, lines in run.baselines.groupby("metric", observed=True)}
    if not {NGRAM, NGRAM_ORDERS, NGRAM_PROBE, UNIGRAM} <= by_metric.keys():
        return None
    orders, ngram = by_metric[NGRAM_ORDERS], by_metric[NGRAM]
    documents = ngram.groupby("document")["value"].mean()
    cell = cell_of(documents.to_frame().T)
    best = int(orders["item"].iloc[int(np.argmin(orders["value"].to_numpy()))])
    return Baselines(
        best, cell, documents, *(float(by_metric[name]["value"].iloc[0]) for name in (NGRAM_PROBE, UNIGRAM))
    )


def _reach(
    lines: pd.DataFrame, jobs: Mapping[str, Sequence[str]], at_trained: Mapping[str, pd.DataFrame], trained: int
) -> dict[str, dict[int, pd.DataFrame]]:
    """The loss by truncated context, T included; rows that share a training share it."""
    measured_reach = lines[lines["metric"] == REACH]
    if measured_reach.empty:
        return {}
    owner = dict(measured_reach[["job", "spec"]].drop_duplicates().astype(str).itertuples(index=False))
    values = values_of(measured_reach)
    reach = dict[str, dict[int, pd.DataFrame]]()
    for spec in at_trained:
        owners = {owner[job] for job in jobs.get(spec, ()) if job in owner}
        if len(owners) == 1 and (of := owners.pop()) in at_trained:
            reach[spec] = {**values[of, FULL], trained: at_trained[of]}
    return reach


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

    The change of a row covers the seeds that learned the task.

    Args:
        run: it may be unfinished.
        baselines: the rows, by label, that every other row is compared with, as far as they are there.
    """
    records, last, metric = measured(run), run.lengths[-1], run.decides
    counting, majority = baselines_of(run) if metric.language else None, majority_of(run)
    bar = _bar(metric, counting, majority)
    drafts = {key: _draft(key, records, run, counting, bar) for key in records.values}
    contrasts_of, omissions = _contrasts(records, run, last, baselines, counting)
    changes = {key: draft.pairs[draft.last] for key, draft in drafts.items() if draft.may_be_judged}
    verdicts = verdicts_on(changes, metric)
    threshold = counting.probe if counting else metric.threshold
    rows = [
        _row(
            key, draft, records, run, verdicts.get(key), bar, contrasts_of.get(key, {}),
            steps_to_learn(records.probes_of(key[0]), threshold, metric),
        )
        for key, draft in drafts.items()
    ]  # fmt: skip
    worse = 1 if metric.better == "lower" else -1

    def rank(row: Row) -> tuple[bool, bool, float]:
        at_last = row.cells.get(last) if row.learned else None
        return not row.learned, at_last is None, worse * (at_last or next(iter(row.cells.values()))).mean

    ordered, tests = tuple(sorted(rows, key=rank)), sum(map(len, contrasts_of.values()))
    return Table(
        metric, run.lengths, run.trained, ordered, counting, majority, bar, tests, (*records.omissions, *omissions)
    )


def majority_of(run: Run) -> float | None:
    """What always giving the most frequent answer reaches, from a run's records; None where it is not recorded."""
    values = run.baselines[run.baselines["metric"] == MAJORITY]["value"]
    return float(values.mean()) if len(values) else None


def _bar(metric: Metric, counting: Baselines | None, majority: float | None) -> float | None:
    """What a value at the training length must be better than, see `has_learned`."""
    if metric.language:
        return counting.unigram if counting else None
    known = [value for value in (metric.chance, majority) if value is not None]
    return (max if metric.better == "higher" else min)(known) if known else None


def cell_of(table: pd.DataFrame) -> Interval:
    """The mean of values (seeds, documents) with its 95 % interval, which is NaN for one seed and one document."""
    values = table.to_numpy()
    if values.size == 1:
        return Interval(float(values.mean()), math.nan, math.nan, math.nan, 0, 1, 1)
    return mean_interval(values)


def metric_cells(run: Run, metric: Metric) -> dict[Key, dict[int, Interval]]:
    """The cells of a further metric by row and length."""
    lines = run.records[(run.records["metric"] == metric.name) & (run.records["length"] > 0)]
    return {
        key: {length: cell_of(values) for length, values in by_length.items()}
        for key, by_length in values_of(lines).items()
    }


@dataclass(frozen=True)
class _Draft:
    """What is known of a row before it is known how many verdicts its table has."""

    learned_share: Share
    ngram_share: Share | None
    pairs: dict[int, tuple[Array, Array]]  # values at a longer length, or of a view, and at 1×, of seeds that learned
    last: int  # the length that is judged
    judged: bool  # whether it is a row that gets a verdict

    @property
    def may_be_judged(self) -> bool:
        """Whether a verdict can be given: the task is learned, and there is a value."""
        return self.judged and self.learned_share.mean >= 0.5 and self.last in self.pairs


def _draft(key: Key, records: Measured, run: Run, counting: Baselines | None, bar: float | None) -> _Draft:
    (spec, view), tables, metric = key, records.values[key], run.decides
    first = records.at_trained[spec]
    learners = [seed for seed, values in first.iterrows() if has_learned(values, bar, metric)]
    learned_share, ngram_share = Share(len(learners), len(first)), None
    if counting:
        ngram_share = Share(sum(beats(values, counting.ngram_documents) for _, values in first.iterrows()), len(first))
    by_length = view in (FULL, WINDOW)
    last = run.lengths[-1] if by_length else max(tables)
    judged = last > run.trained if view == FULL else not by_length
    pairs = dict[int, tuple[Array, Array]]()
    if (learned := learned_share.mean >= 0.5) or metric.language:
        of_learners = first[first.index.isin(learners)] if learned else first
        start = records.at_trained.get(UNMODIFIED, first) if run.pretrained else of_learners
        longer = [length for length in tables if length > run.trained] if by_length else [last]
        pairs = {length: pair for length in longer if (pair := _common(tables[length], start))}
    return _Draft(learned_share, ngram_share, pairs, last, judged)


def reach_of(by_context: Mapping[int, pd.DataFrame], metric: Metric) -> Reach | None:
    """Reach from the losses by context, the training length included."""
    trained, losses = max(by_context), dict(sorted(by_context.items()))
    if any(table.size < 2 for table in losses.values()):
        return None
    pairs = {context: _common(table, losses[trained]) for context, table in losses.items()}
    used = min(
        (context for context, pair in pairs.items() if pair and (pair[0] - pair[1]).mean() <= metric.margin),
        default=trained,
    )
    return Reach({context: cell_of(table) for context, table in losses.items()}, used)


def _far(
    spec: str, records: Measured, run: Run, learned: bool, bar: float | None, confidence: float
) -> FarContext | None:
    """Whether far context is used: by the loss at T/4, or by the answers from farther back than that."""
    metric = run.decides
    interval: Interval | None = None
    if metric.language and (by_context := records.reach.get(spec)) and run.trained // 4 in by_context:
        if pair := _common(by_context[run.trained // 4], by_context[run.trained]):
            interval, bar = paired(*pair, confidence=confidence), metric.margin
    elif spec in records.far and bar is not None and records.far[spec].size > 1:
        interval = mean_interval(records.far[spec].to_numpy(), confidence=confidence)
    if interval is None or bar is None:
        return None
    return FarContext("shown" if learned and interval.low > bar else "not shown", interval, bar, confidence)


def _row(
    key: Key, draft: _Draft, records: Measured, run: Run, verdict: Verdict | None, bar: float | None,
    contrasts_of_row: dict[str, Contrast], steps: float | None,
) -> Row:  # fmt: skip
    (spec, view), tables, metric = key, records.values[key], run.decides
    learned, last, pair = draft.learned_share.mean >= 0.5, draft.last, draft.pairs.get(draft.last)
    if not draft.judged:
        verdict = Verdict("not judged", metric.margin)
    elif not learned:
        verdict = Verdict("above single tokens" if metric.language else "did not learn", metric.margin)
    elif verdict is None:
        verdict = Verdict("no value", metric.margin)
    solved = draft.ngram_share if metric.language else draft.learned_share
    by_context = records.reach.get(spec)
    return Row(
        spec=spec,
        view=view,
        cells={length: cell_of(tables[length]) for length in sorted(tables)},
        learned=learned,
        learned_share=draft.learned_share,
        ngram_share=draft.ngram_share,
        change=paired(*pair) if pair else None,
        verdict=verdict,
        practical_length=practical_length(run.trained, draft.pairs, metric, verdict.confidence)
        if verdict.change and view == FULL and last > run.trained
        else None,
        far=_far(spec, records, run, learned, bar, simultaneous(len(records.at_trained))) if view == FULL else None,
        contrasts=contrasts_of_row,
        steps_to_learn=steps if solved is None or solved.mean >= 0.5 else None,
        reach=reach_of(by_context, metric) if by_context else None,
        training=records.training(spec),
    )


def _contrasts(
    records: Measured, run: Run, last: int, baselines: Mapping[str, Key], counting: Baselines | None
) -> tuple[dict[Key, dict[str, Contrast]], list[Omission]]:
    """The contrasts of rows under full attention at the longest length by label, and those that are not made."""
    at_last = {key: tables[last] for key, tables in records.values.items() if last in tables}
    named = {key: f"{key[0]} ({key[1]})" for key in at_last}
    above = [key for key, table in at_last.items() if counting and table.to_numpy().mean() > counting.unigram]
    omissions = [Omission("above unigram", tuple(named[key] for key in above))] if above else []
    full, planned = [key for key in at_last if key[1] == FULL], list[tuple[Key, str, Key]]()
    for label, baseline in baselines.items():
        if baseline not in at_last:
            continue
        rest = [key for key in full if key != baseline]
        alike = [key for key in rest if key[0] == baseline[0] or run.tuning_of(key[0]) == run.tuning_of(baseline[0])]
        planned += [(key, label, baseline) for key in alike]
        otherwise = [named[key] for key in rest if key not in alike]
        omissions += [Omission("tuned otherwise", (label, *otherwise))] if otherwise else []
    planned += [(key, OWN_WINDOW, (key[0], WINDOW)) for key in full if (key[0], WINDOW) in at_last]
    pairs = {
        (key, label): pair
        for key, label, other in planned
        if key not in above and other not in above and (pair := _common(at_last[key], at_last[other]))
    }
    seed_means = {named[key]: table.mean(axis=1).to_numpy() for key, table in at_last.items()}
    same_weights = [label == OWN_WINDOW for _, label in pairs]
    made = contrasts(list(pairs.values()), seed_means, same_weights=same_weights, untrained=run.pretrained)
    by_row = dict[Key, dict[str, Contrast]]()
    for (key, label), contrast in zip(pairs, made, strict=True):
        by_row.setdefault(key, {})[label] = contrast
    return by_row, omissions


def _common(a: pd.DataFrame, b: pd.DataFrame) -> tuple[Array, Array] | None:
    """The values of the seeds and documents that both have; None if those are fewer than two values."""
    seeds, documents = a.index.intersection(b.index), a.columns.intersection(b.columns)
    if len(seeds) * len(documents) < 2:
        return None
    return a.loc[seeds, documents].to_numpy(), b.loc[seeds, documents].to_numpy()
