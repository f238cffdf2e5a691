"""The numbers that a report's first lines state: of one run, and of several runs compared. No sentence is made here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from posenc.lab.metrics import Metric
from posenc.lab.report.numbers import (
    OWN_WINDOW,
    UNMODIFIED,
    VERDICTS,
    NamedTables,
    Row,
    Table,
    VerdictKind,
    best_of,
    build_table,
)
from posenc.lab.run.folder import Run
from posenc.lab.stats import Correlation, rank_correlation, within

SAME_SIZE = 1.1  # the largest ratio of parameters at which two runs are compared
FEWEST_RANKED = 5  # encodings that a rank correlation needs


@dataclass(frozen=True)
class RunSummary:
    """One run in the numbers that its first lines state."""

    run: Run
    table: Table
    groups: Mapping[VerdictKind, Sequence[Row]]  # rows under full attention by verdict, without empty groups
    stable: Sequence[Row]  # better or equivalent
    learned: Sequence[Row]
    not_learned: Sequence[Row]
    best: Row | None  # by its mean: at the training length; of a released model's rows at the longest
    earliest: Row | None  # that learned the task after the fewest steps
    above_window: Sequence[Row]  # better than under their own window by more than the margin
    below_window: Sequence[Row]
    stable_views: Sequence[tuple[Sequence[str], Sequence[Row]]]  # views, and the rows that are stable under all of them
    seeds: tuple[int, int]  # fewest and most of a row
    parameters: tuple[float, float] | None
    without_model: tuple[str, str] | None  # the best number in the metric's unit that needs no model: fact, value

    @property
    def rows(self) -> list[Row]:
        """The rows under full attention."""
        return self.table.full_rows

    @property
    def metric(self) -> Metric:
        """The metric that decides."""
        return self.table.metric

    @property
    def tests_length(self) -> bool:
        """Whether the run tests lengths other than the training length."""
        return len(self.table.lengths) > 1

    @property
    def tokens(self) -> int:
        """Tokens of a training."""
        numbers = self.run.numbers
        return int(numbers["steps"] * numbers["batch_size"] * numbers["train_length"])

    @property
    def unmodified(self) -> Row | None:
        """The row of a released model as it is."""
        return self.table.row(UNMODIFIED) or next(iter(self.rows), None)

    @property
    def untestable(self) -> Mapping[str, Sequence[Row]]:
        """Rows whose verdict is not testable, by the reason (`posenc.lab.report.numbers.Verdict`)."""
        rows = [row for row in self.rows if row.verdict.kind == "not testable"]
        return {
            why: [row for row in rows if row.verdict.why == why] for why in dict.fromkeys(r.verdict.why for r in rows)
        }

    @property
    def testable(self) -> list[Row]:
        """Rows that learned the task and whose verdict on length could be tested."""
        return [row for row in self.learned if row.verdict.kind != "not testable"]

    @property
    def partly_learned(self) -> list[Row]:
        """Rows that learned the task, but not from all seeds."""
        return [row for row in self.learned if row.learned_share.count < row.learned_share.seeds]

    @property
    def partly_failing(self) -> list[Row]:
        """Rows of which some seeds fail at the longest length and others do not."""
        return [row for row in self.rows if row.change and 0 < row.failing_seeds < row.change.seeds]

    @property
    def single_seed(self) -> list[Row]:
        """Rows of one training run each; none for a released model."""
        return [row for row in self.rows if row.learned_share.seeds == 1 and not self.run.pretrained]


@dataclass(frozen=True)
class RunComparison:
    """Two runs of one task: which verdicts differ and how alike both rank encodings at the longest length."""

    first: str
    second: str
    compared: int  # encodings that both have; 0 where the models differ in size
    changed: tuple[tuple[str, VerdictKind, VerdictKind], ...] = ()
    ranks: Correlation | None = None
    sizes: tuple[float, float] | None = None  # parameters, where the models differ in size


def summarize(run: Run, table: Table) -> RunSummary:
    """Collect what the first lines of a run's report state."""
    rows, metric = table.full_rows, table.metric
    groups = {kind: [row for row in rows if row.verdict.kind == kind] for kind in VERDICTS}
    learned = [row for row in rows if row.learned]
    at, ranked = (table.lengths[-1], rows) if run.pretrained else (table.trained, learned)
    means = {row.spec: row.cells[at].mean for row in ranked if at in row.cells}
    best_mean = best_of(list(means.values()), metric)
    earliest = min(
        (row for row in learned if row.steps_to_learn), key=lambda row: row.steps_to_learn or 0, default=None
    )
    sign = 1 if metric.better == "higher" else -1
    beyond = {row.spec: sign * row.contrasts[OWN_WINDOW].mean for row in learned if _beyond_window(row, metric)}
    by_rows = dict[tuple[str, ...], list[str]]()
    for view in table.views:
        stable = tuple(row.spec for row in table.rows if row.view == view and row.verdict.stable)
        by_rows.setdefault(stable, []).append(view)
    sizes, seeds = list(parameters_of(table)), [row.learned_share.seeds for row in rows]
    references = {name: value for name, value in run.facts.items() if value.endswith(f" {metric.unit}")}
    without_model = min(references, key=lambda name: float(references[name].split()[0]), default=None)
    return RunSummary(
        run=run,
        table=table,
        groups={kind: group for kind, group in groups.items() if group},
        stable=[row for row in rows if row.verdict.stable],
        learned=learned,
        not_learned=[row for row in rows if not row.learned],
        best=next((row for row in ranked if means.get(row.spec) == best_mean), None),
        earliest=earliest,
        above_window=[row for row in rows if beyond.get(row.spec, 0) > 0],
        below_window=[row for row in rows if beyond.get(row.spec, 0) < 0],
        stable_views=[(views, [row for row in rows if row.spec in specs]) for specs, views in by_rows.items()],
        seeds=(min(seeds, default=0), max(seeds, default=0)),
        parameters=(min(sizes), max(sizes)) if sizes else None,
        without_model=None if without_model is None else (without_model, references[without_model]),
    )


def _beyond_window(row: Row, metric: Metric) -> bool:
    """Whether a row differs from itself under its own window, significantly and by more than the margin."""
    contrast = row.contrasts.get(OWN_WINDOW)
    return contrast is not None and contrast.significant and within(contrast, metric.margin) == "different"


def named_tables(runs: Sequence[Run]) -> dict[str, tuple[Run, Table]]:
    """Runs with their tables, by labels."""
    return {label: (run, build_table(run)) for label, run in zip(run_labels(runs), runs, strict=True)}


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


def compare_runs(tables: NamedTables) -> list[RunComparison]:
    """Compare each run of several lengths with the next one of its task."""
    return [
        _comparison(tables, first, second) for labels in _by_task(tables).values() for first, second in pairwise(labels)
    ]


def stable_everywhere(tables: NamedTables) -> list[str] | None:
    """Encodings that learned every task and lose nothing at the longest length of any run; None for one task."""
    by_task = _by_task(tables)
    if len(by_task) < 2:
        return None
    ends = [{row.spec: row for row in tables[label][1].full_rows} for labels in by_task.values() for label in labels]
    return [spec for spec in ends[0] if all(spec in end and end[spec].verdict.stable for end in ends)]


def parameters_of(table: Table) -> Iterator[float]:
    """The model sizes of a table's encodings."""
    return (row.training["parameters"] for row in table.full_rows if "parameters" in row.training)


def _by_task(tables: NamedTables) -> dict[str, list[str]]:
    """Labels of runs of several lengths by task."""
    by_task = dict[str, list[str]]()
    for label, (run, table) in tables.items():
        if len(table.lengths) > 1:
            by_task.setdefault(run.task, []).append(label)
    return by_task


def _comparison(tables: NamedTables, first: str, second: str) -> RunComparison:
    before, after = tables[first][1], tables[second][1]
    sizes = [max(parameters_of(table), default=0.0) for table in (before, after)]
    if max(sizes) > SAME_SIZE * min(sizes):  # also where one of them does not record its size
        return RunComparison(first, second, 0, sizes=(sizes[0], sizes[1]))
    pairs = [(row, other) for row in before.full_rows if (other := after.row(row.spec))]
    changed = tuple((a.spec, a.verdict.kind, b.verdict.kind) for a, b in pairs if a.verdict.kind != b.verdict.kind)
    ends = [(a.cells.get(before.lengths[-1]), b.cells.get(after.lengths[-1])) for a, b in pairs]
    means = [(a.mean, b.mean) for a, b in ends if a and b]
    ranks = rank_correlation(*zip(*means, strict=True)) if len(means) >= FEWEST_RANKED else None
    return RunComparison(first, second, len(pairs), changed, ranks)
