"""The numbers that a report's first lines state, and its verdicts as plain data. No sentence is made here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posenc.lab.metrics import BITS, NATS, Metric
from posenc.lab.report.numbers import OWN_WINDOW, UNMODIFIED, NamedTables, Row, Table, build_table
from posenc.lab.report.verdicts import VERDICTS, VerdictKind
from posenc.lab.run.folder import Run
from posenc.lab.stats import Interval, within


@dataclass(frozen=True)
class RunSummary:
    """One run in the numbers that its first lines state."""

    run: Run
    table: Table

    @property
    def rows(self) -> list[Row]:
        """The rows under full attention."""
        return self.table.full_rows

    @property
    def metric(self) -> Metric:
        """The metric that decides."""
        return self.table.metric

    @property
    def noun(self) -> str:
        """What the metric is called in a sentence."""
        return "loss" if self.metric.unit in (BITS, NATS) else self.metric.name.replace("_", " ")

    @property
    def tests_length(self) -> bool:
        """Whether the run tests lengths beyond the training length."""
        return self.table.lengths[-1] > self.table.trained

    @property
    def verdicts(self) -> Mapping[VerdictKind, Sequence[Row]]:
        """Rows by the verdict beyond the training length, the largest change first; without empty groups."""
        ordered = sorted(self.rows, key=lambda row: -abs(row.verdict.change.mean) if row.verdict.change else 0)
        groups = {kind: [row for row in ordered if row.verdict.kind == kind] for kind in VERDICTS}
        return {kind: rows for kind, rows in groups.items() if rows}

    @property
    def far(self) -> Mapping[str, Sequence[Row]]:
        """Rows whose use of far context is "shown" and "not shown"; empty where the run does not ask."""
        kinds = ("shown", "not shown") if any(row.far for row in self.rows) else ()
        return {kind: [row for row in self.rows if row.far and row.far.kind == kind] for kind in kinds}

    @property
    def practical_lengths(self) -> Mapping[int, Sequence[Row]]:
        """Rows by the longest tested length within the margin, the longest first."""
        known = sorted({row.practical_length for row in self.rows if row.practical_length is not None}, reverse=True)
        return {length: [row for row in self.rows if row.practical_length == length] for length in known}

    @property
    def learned(self) -> list[Row]:
        """Rows that learned the task."""
        return [row for row in self.rows if row.learned]

    @property
    def not_learned(self) -> list[Row]:
        """Rows that did not."""
        return [row for row in self.rows if not row.learned]

    @property
    def beyond_ngram(self) -> Mapping[bool, Sequence[Row]]:
        """Rows of language models by whether at least half of their seeds are better than the n-gram."""
        shares = {row.spec: row.ngram_share for row in self.rows if row.ngram_share}
        return {
            better: [row for row in self.rows if row.spec in shares and (shares[row.spec].mean >= 0.5) == better]
            for better in (True, False)
        }

    @property
    def partly_learned(self) -> list[Row]:
        """Rows that learned the task, but not from all seeds."""
        return [row for row in self.learned if row.learned_share.count < row.learned_share.seeds]

    @property
    def beyond_window(self) -> Mapping[str, Sequence[Row]]:
        """Rows "better" and "worse" than under their own window, significantly and by more than the margin."""
        sign = 1 if self.metric.better == "higher" else -1
        differing = [row for row in self.learned if _beyond_window(row, self.metric)]
        better = [row for row in differing if sign * row.contrasts[OWN_WINDOW].mean > 0]
        return {"better": better, "worse": [row for row in differing if row not in better]} if differing else {}

    @property
    def stable_views(self) -> Sequence[tuple[Sequence[str], Sequence[Row]]]:
        """Views, and the rows that are as good under all of them as without the change, or better."""
        by_rows = dict[tuple[str, ...], list[str]]()
        for view in self.table.views:
            stable = tuple(row.spec for row in self.table.rows if row.view == view and row.verdict.stable)
            by_rows.setdefault(stable, []).append(view)
        return [(views, [row for row in self.rows if row.spec in specs]) for specs, views in by_rows.items()]

    @property
    def seeds(self) -> tuple[int, int]:
        """Fewest and most of a row."""
        seeds = [row.learned_share.seeds for row in self.rows]
        return min(seeds, default=0), max(seeds, default=0)

    @property
    def single_seed(self) -> list[Row]:
        """Rows of one training run each; none for a released model."""
        return [row for row in self.rows if row.learned_share.seeds == 1 and not self.run.pretrained]

    @property
    def parameters(self) -> tuple[float, float] | None:
        """Fewest and most parameters of a model."""
        sizes = [row.training["parameters"] for row in self.rows if "parameters" in row.training]
        return (min(sizes), max(sizes)) if sizes else None

    @property
    def tokens(self) -> int:
        """Tokens of a training."""
        numbers = self.run.numbers
        return int(numbers["steps"] * numbers["batch_size"] * numbers["train_length"])

    @property
    def unmodified(self) -> Row | None:
        """The row of a released model as it is."""
        return self.table.row(UNMODIFIED) or next(iter(self.rows), None)


def verdicts_record(run: Run, table: Table) -> dict[str, Any]:
    """verdicts.json: both verdicts on each encoding with interval and condition, and what they are held against."""
    metric, counting = table.metric, table.baselines
    summary = RunSummary(run, table)
    return {
        "task": run.task, "metric": metric.name, "unit": metric.unit, "better": metric.better, "margin": metric.margin,
        "training_length": table.trained, "longest_length": table.lengths[-1], "seeds": list(summary.seeds),
        "intervals_cover": "texts" if summary.seeds[1] <= 1 else "trainings and texts",
        "chance": metric.chance, "majority_class": table.majority,
        "ngram": counting and {"order": counting.order, "mean": counting.ngram.mean},
        "entropy_of_single_tokens": counting and counting.unigram,
        "encodings": {row.spec: _verdicts_of(row, table) for row in table.full_rows},
        "views": {
            view: {row.spec: _beyond(row, table) for row in table.rows if row.view == view} for view in table.views
        },
    }  # fmt: skip


def _verdicts_of(row: Row, table: Table) -> dict[str, Any]:
    far = row.far and {"verdict": row.far.kind, **_interval(row.far.gain, row.far.confidence), "above": row.far.bar}
    return {
        "at_training_length": row.cells[table.trained].mean,
        "beyond_training_length": _beyond(row, table),
        "practical_context_length": row.practical_length,
        "far_context": far,
        "uses_tokens_of_context": row.reach and row.reach.used,
        "learned_seeds": row.learned_share.count,
        "seeds_better_than_ngram": row.ngram_share and row.ngram_share.count,
    }


def _beyond(row: Row, table: Table) -> dict[str, Any]:
    condition = {"better_than": table.bar, "met": row.learned}
    interval = _interval(row.verdict.change, row.verdict.confidence) if row.verdict.change else {}
    return {"verdict": row.verdict.kind, **interval, "condition": condition}


def _interval(interval: Interval, confidence: float) -> dict[str, float]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high, "confidence": confidence}


def _beyond_window(row: Row, metric: Metric) -> bool:
    """Whether a row differs from itself under its own window, significantly and by more than the margin."""
    contrast = row.contrasts.get(OWN_WINDOW)
    return contrast is not None and contrast.significant and within(contrast, metric.margin) == "different"


def named_tables(runs: Sequence[Run]) -> dict[str, tuple[Run, Table]]:
    """Runs with their tables, by labels."""
    return {label: (run, build_table(run)) for label, run in zip(run_labels(runs), runs, strict=True)}


def summaries(tables: NamedTables) -> list[RunSummary]:
    """Runs in the order of a report's first lines: language models before tasks."""
    every = [RunSummary(run, table) for run, table in tables.values()]
    return sorted(every, key=lambda summary: not summary.metric.language)


def run_labels(runs: Sequence[Run]) -> list[str]:
    """A label for each run: its task, and up to three settings in which it differs from others of that task."""
    labels = []
    for run in runs:
        same_task = [other for other in runs if other.task == run.task]
        differing = [key for key in run.shown if len({other.shown.get(key) for other in same_task}) > 1]
        marks = [f"{key} {run.shown[key]}" for key in differing]
        if len({tuple(other.data.items()) for other in same_task}) > 1:
            marks.insert(0, next(iter(run.facts.values()), ""))
        labels.append(", ".join([run.task, *marks[:3]]))
    return [label if labels.count(label) == 1 else f"{label} ({n + 1})" for n, label in enumerate(labels)]
