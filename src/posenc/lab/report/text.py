"""The sentences of a report: the answer first, then evidence, limits and how to read the tables.

Every sentence stands here once. The page, table.md and the terminal show the same ones; each function returns
paragraphs of plain text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posenc.lab.metrics import BITS, NATS, Metric
from posenc.lab.report.numbers import OWN_WINDOW, NamedTables, Omission, Row, Table
from posenc.lab.report.tables import ABSENT, amount, number
from posenc.lab.report.verdicts import VERDICTS
from posenc.lab.run.folder import Run
from posenc.lab.stats import Interval, within

MOST_NAMES = 8  # of a list in a sentence


def headline(tables: NamedTables) -> list[str]:
    """The answers of all runs: what is missing, changes beyond the training length, the use of far context."""
    every = sorted(tables.values(), key=lambda pair: not pair[1].metric.language)  # texts first
    missing = [line for run, _ in every for line in unfinished(run)]
    return [
        *missing, *(line for pair in every for line in beyond(*pair)), *(line for pair in every for line in far(*pair)),
    ]  # fmt: skip


def unfinished(run: Run) -> list[str]:
    """Which part of a run that was stopped is not there; nothing of a whole one."""
    if not run.unfinished:
        return []
    verb = "is" if run.unfinished == 1 else "are"
    return [
        f"{run.unfinished} of {_count(run.trainings, 'training')} of {run.task} {verb} not finished; the same command "
        "goes on with them."
    ]


def beyond(run: Run, table: Table) -> list[str]:
    """What the deciding metric does beyond the training length, or under the views of a task without lengths."""
    rows, metric = table.full_rows, table.metric
    if not rows:
        return [f"No job of {run.task} has finished yet."]
    if table.lengths[-1] > table.trained:
        return _by_length(run, table)
    learned = [row for row in rows if row.learned]
    if not table.views:
        total = _count(len(rows), "encoding")
        return [f"{len(learned)} of {total} learned the task; the run tests the training length only."]
    by_rows = dict[tuple[str, ...], list[str]]()
    for view in table.views:
        stable = tuple(row.spec for row in table.rows if row.view == view and row.verdict.stable)
        by_rows.setdefault(stable, []).append(view)
    parts = [
        f"{len(specs) or 'none'} under {names(under)}" + (f" ({names(specs)})" if specs else "")
        for specs, under in by_rows.items()
    ]
    text = (
        f"Of {_count(len(learned), 'encoding')} that learned the task, as good as without the change or better "
        f"(within ±{amount(metric.margin, metric)}): {'; '.join(parts)}."
    )
    lost = [row.spec for row in rows if not row.learned]
    return [text + (f" Did not learn the task: {names(lost)}." if lost else "")]


def _by_length(run: Run, table: Table) -> list[str]:
    metric = table.metric
    ordered = sorted(table.full_rows, key=lambda row: -abs(row.verdict.change.mean) if row.verdict.change else 0)
    groups = {kind: [row for row in ordered if row.verdict.kind == kind] for kind in VERDICTS}
    verb = {"flat": "stays flat with", "inconclusive": "is inconclusive for"}
    judged = [
        f"{verb.get(kind, f'{kind} with')} {names([f'{row.spec} ({_changed(run, table, row)})' for row in rows], 1000)}"
        for kind, rows in groups.items()
        if rows and rows[0].verdict.change
    ]
    sentences = list[str]()
    if judged:
        start = (
            "Against the unmodified model at its training length" if run.pretrained else "Beyond the training length"
        )
        where = "" if run.pretrained else f" in {run.task}"
        unit = "" if metric.percent else f", in {metric.unit},"
        sentences.append(
            f"{start}, from {table.trained:,} to {table.lengths[-1]:,} tokens, the {_noun(metric)}{where}{unit} "
            f"{'; '.join(judged)}."
        )
    without = {
        "did not learn": f"Did not learn {run.task}",
        "above single tokens": "No better than single tokens at the training length, so without a verdict",
        "no value": "Undefined beyond the training length",
    }
    sentences += [f"{text}: {_specs(groups[kind])}." for kind, text in without.items() if groups[kind]]  # type: ignore[index]
    return [" ".join(sentences)] if sentences else []


def _changed(run: Run, table: Table, row: Row) -> str:
    """The change of a row with the interval that decides, half of it behind ±.

    A flat loss comes with what far context brings: a model that uses four tokens is flat trivially.
    """
    metric, change = table.metric, row.verdict.change
    if change is None:
        return ABSENT
    half = f"± {number((change.high - change.low) / 2, metric)}"
    if metric.percent and not run.pretrained:
        first, last = (number(row.cells[length].mean, metric) for length in (table.trained, table.lengths[-1]))
        return f"{first} → {last} %, {half}"
    flat = row.verdict.kind == "flat" and row.far and metric.language
    reach = f"; far context brings {_gain(row, metric)}" if flat else ""
    return f"{number(change.mean, metric, change=True)} {half}{reach}"


def far(run: Run, table: Table) -> list[str]:
    """Whether context from farther back than a quarter of the training length is used; nothing where nobody asks."""
    rows, quarter, metric = [row for row in table.full_rows if row.far], table.trained // 4, table.metric
    if not rows:
        return []
    what = (
        f"what {table.trained:,} tokens of context bring over {quarter:,}, in {metric.unit}, shown above "
        f"{metric.margin:g}" if metric.language
        else f"right answers from more than {quarter:,} tokens back, at the training length"
    )  # fmt: skip
    parts = []
    for kind in ("shown", "not shown"):
        gains = [f"{row.spec} ({_gain(row, metric)})" for row in rows if row.far and row.far.kind == kind]
        parts += [f"{kind} for {names(gains, 1000)}"] if gains else []
    return [f"Use of far context in {run.task} ({what}): {'; '.join(parts)}."]


def _gain(row: Row, metric: Metric) -> str:
    mean = row.far.gain.mean if row.far else float("nan")
    return f"{100 * mean:.0f} %" if metric.percent else number(mean, metric)


def evidence(run: Run, table: Table) -> list[str]:
    """Practical context length, baselines, the own window, and the setup."""
    metric, rows, lines = table.metric, table.full_rows, list[str]()
    lengths = sorted({row.practical_length for row in rows if row.practical_length is not None}, reverse=True)
    if lengths:
        parts = [f"{n:,} tokens: {_specs([row for row in rows if row.practical_length == n])}" for n in lengths]
        lines.append(
            f"Practical context length, the longest tested length up to which the {_noun(metric)} is shown to get "
            f"worse by less than {amount(metric.margin, metric)}: {'; '.join(parts)}."
        )
    if (counting := table.baselines) is not None:
        gram = f"{counting.order}-gram"
        better, worse = (
            [row for row in rows if row.ngram_share and (row.ngram_share.mean >= 0.5) is yes] for yes in (True, False)
        )
        lines.append(
            f"On the same targets, a {gram} of the training text has {counting.ngram.mean:.3f} {metric.unit} and the "
            f"entropy of single tokens is {counting.unigram:.3f}."
            + (f" Better than the {gram}: {_specs(better)}." if better else "")
            + (f" Not shown to be better than a {gram}: {_specs(worse)}." if worse else "")
        )
    elif table.majority is not None and metric.chance is not None:
        lines.append(
            f"A guess has {100 * metric.chance:.1f} %, and always the most frequent answer "
            f"{100 * table.majority:.1f} %."
        )
    with_window = [row for row in rows if row.learned and _beyond_window(row, metric)]
    if with_window:
        sign = 1 if metric.better == "higher" else -1
        better, worse = (
            [row for row in with_window if (sign * row.contrasts[OWN_WINDOW].mean > 0) is yes] for yes in (True, False)
        )
        lines.append(
            f"Compared with the same weights under a sliding window of the training length ({table.trained:,} tokens), "
            f"by more than {amount(metric.margin, metric)}: better: {_specs(better)}; worse: {_specs(worse)}."
        )
    return [*lines, *([_setup(run, table)] if rows else [])]


def _setup(run: Run, table: Table) -> str:
    rows, last = table.full_rows, table.lengths[-1]
    if run.pretrained:
        return (
            f"Setup: one model with a training length of {table.trained:,} tokens, read in {_count(len(rows), 'way')}, "
            f"tested at {_count(len(table.lengths), 'length')} up to {last:,} tokens."
        )
    seeds, sizes, n = seeds_of(table), [row.training.get("parameters") for row in rows], run.numbers
    known = [size for size in sizes if size is not None]
    models = f" in models of {_big(min(known), max(known))} parameters" if known else ""
    count = "one seed" if seeds == (1, 1) else " to ".join(map(str, dict.fromkeys(seeds))) + " seeds"
    tokens = int(n["steps"] * n["batch_size"] * n["train_length"])
    return (
        f"Setup: {_count(len(rows), 'encoding')}{models}, {count} each; {n['steps']:,} steps, or "
        f"{_big(tokens, tokens)} tokens, at a training length of {table.trained:,} tokens."
    )


def caveats(run: Run, table: Table) -> list[str]:
    """What limits the answer."""
    rows, metric = table.full_rows, table.metric
    of = "One model and one set of texts" if run.pretrained else "One model size, one data set and one training budget"
    lines = [f"{of}: rankings may differ on other models and data."]
    single = [] if run.pretrained else [row for row in rows if row.learned_share.seeds == 1]
    if single and len(single) == len(rows):
        lines.append(
            "One seed: the intervals (±) cover texts, not trainings; another training of the same encoding may differ."
        )
    elif single:
        lines.append(f"One seed only, so that intervals cover texts, not trainings: {_specs(single)}.")
    if metric.language and any(row.verdict.kind == "flat" for row in rows):
        lines.append(
            "A flat loss does not show that an encoding uses longer context: a model that uses few tokens is flat "
            "trivially."
        )
    if not metric.language and any(not row.learned for row in rows):
        lines.append(
            f"Encodings that did not learn the task within {run.numbers['steps']:,} steps may learn it with more."
        )
    partly = [row for row in rows if row.learned and row.learned_share.count < row.learned_share.seeds]
    if partly:
        parts = [f"{row.spec} ({row.learned_share.count} of {row.learned_share.seeds})" for row in partly]
        lines.append(f"The verdict covers only the seeds that learned the task: {', '.join(parts)}.")
    return [*lines, *(_omitted(omission, table) for omission in table.omissions)]


def _omitted(o: Omission, table: Table) -> str:
    """What a table lacks."""
    if o.kind == "not finite":
        seed, length = o.counts
        return f"Not finite and left out: {o.rows[0]}, seed {seed}, at {length:,} tokens."
    if o.kind == "tuned otherwise":
        return (
            f"Not compared with {o.rows[0]}, because the rates were tuned by another procedure, or given without a "
            f"record of trials: {names(o.rows[1:])}."
        )
    bound = table.baselines.unigram if table.baselines else float("nan")
    return (
        f"Not compared with other rows, because the loss is above the entropy of single tokens ({bound:.3f} "
        f"{table.metric.unit}): {names(o.rows)}."
    )


def legend(run: Run, table: Table) -> str:
    """How to read the tables."""
    metric, quarter = table.metric, table.trained // 4
    margin = amount(metric.margin, metric)
    parts = [
        "± is half of the 95 % interval over seeds and documents, ν the degrees of freedom of its Student's t; the "
        "intervals of the change and of far context are adjusted, so that all verdicts of a table hold together with "
        "95 %.",
        "Changes are from the unmodified model at 1×, paired by document." if run.pretrained else
        f"Changes are paired{'' if metric.language else ', and cover the seeds that learned the task'}.",
        f"The margin of this unit is {margin}. A change is flat where its whole interval lies within ± the margin, it "
        "rises or falls where the whole interval lies beyond, and it is inconclusive otherwise.",
    ]  # fmt: skip
    if table.tests:
        parts.append(f"The {table.tests} differences of this table are adjusted together by Holm.")
    if metric.language and not run.pretrained:
        parts.append(
            f"Far context: loss at {quarter} tokens of context − loss at {table.trained}, shown where the whole "
            "interval lies above the margin. Uses context: the smallest context whose mean loss is within the margin "
            f"of the loss with all {table.trained} tokens."
        )
    elif any(row.far for row in table.full_rows):
        parts.append(
            f"Far context: right answers from farther back than {quarter} tokens at 1×, shown where the whole interval "
            "lies above chance and the majority class."
        )
    if not metric.language and table.bar is not None:
        majority = " and the majority class" if table.majority is not None else ""
        parts.append(f"Learned: the interval above chance{majority}, {amount(table.bar, metric)}.")
    if table.lengths[-1] > table.trained:
        parts.append(
            "Own window: the same weights under a sliding window of the training length "
            f"({table.trained:,} tokens). verdicts.json has every interval and p-value."
        )
    return " ".join(parts)


def verdicts_record(run: Run, table: Table) -> dict[str, Any]:
    """verdicts.json: both verdicts on each encoding with interval and condition, its cells and planned contrasts."""
    metric, counting, seeds = table.metric, table.baselines, seeds_of(table)
    return {
        "task": run.task, "trainings": run.trainings, "unfinished_trainings": run.unfinished,
        "metric": metric.name, "unit": metric.unit, "better": metric.better, "margin": metric.margin,
        "training_length": table.trained, "longest_length": table.lengths[-1], "seeds": list(seeds),
        "intervals_cover": "texts" if seeds[1] <= 1 else "trainings and texts",
        "chance": metric.chance, "majority_class": table.majority,
        "ngram": counting and {"order": counting.order, "mean": counting.ngram.mean},
        "entropy_of_single_tokens": counting and counting.unigram,
        "encodings": {row.spec: _verdicts_of(row, table) for row in table.full_rows},
        "views": {
            view: {row.spec: _beyond(row, table) for row in table.rows if row.view == view} for view in table.views
        },
        "means": {
            row.name: {str(n): [_finite(x) for x in (c.mean, c.low, c.high)] for n, c in row.cells.items()}
            for row in table.rows
        },
    }  # fmt: skip


def _verdicts_of(row: Row, table: Table) -> dict[str, Any]:
    far_context = row.far and {
        "verdict": row.far.kind, **_interval(row.far.gain, row.far.confidence), "above": row.far.bar,
    }  # fmt: skip
    return {
        "at_training_length": row.cells[table.trained].mean,
        "beyond_training_length": _beyond(row, table),
        "practical_context_length": row.practical_length,
        "far_context": far_context,
        "uses_tokens_of_context": row.reach and row.reach.used,
        "learned_seeds": row.learned_share.count,
        "seeds_better_than_ngram": row.ngram_share and row.ngram_share.count,
        "contrasts": {
            label: {**_interval(c, 0.95), "p": c.p, "adjusted_p": c.adjusted, "caution": c.caution and c.caution.kind}
            for label, c in row.contrasts.items()
        },
    }


def _beyond(row: Row, table: Table) -> dict[str, Any]:
    condition = {"better_than": table.bar, "met": row.learned}
    interval = _interval(row.verdict.change, row.verdict.confidence) if row.verdict.change else {}
    return {"verdict": row.verdict.kind, **interval, "condition": condition}


def _interval(interval: Interval, confidence: float) -> dict[str, float]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high, "confidence": confidence}


def _finite(value: float) -> float | None:
    return value if value == value else None


def _beyond_window(row: Row, metric: Metric) -> bool:
    """Whether a row differs from itself under its own window, significantly and by more than the margin."""
    contrast = row.contrasts.get(OWN_WINDOW)
    return contrast is not None and contrast.significant and within(contrast, metric.margin) == "different"


def seeds_of(table: Table) -> tuple[int, int]:
    """Fewest and most seeds of a row."""
    seeds = [row.learned_share.seeds for row in table.full_rows]
    return min(seeds, default=0), max(seeds, default=0)


def _noun(metric: Metric) -> str:
    return "loss" if metric.unit in (BITS, NATS) else metric.name.replace("_", " ")


def _specs(rows: Sequence[Row]) -> str:
    return names([row.spec for row in rows])


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _big(low: float, high: float) -> str:
    """``4.9 million``; ``866,000 to 867,000``, or one number where both are written alike."""
    return " to ".join(dict.fromkeys(f"{x / 1e6:.3g} million" if x >= 1e6 else f"{x:,.0f}" for x in (low, high)))


def names(items: Sequence[str], most: int = MOST_NAMES) -> str:
    """``a, b and c``; of many, the first ones and how many more; of none, ``none``."""
    parts = [*items[:most], *([f"{len(items) - most} more"] if len(items) > most else [])]
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0] if parts else "none"
