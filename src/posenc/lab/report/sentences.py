"""What a run found, for readers of nothing else: three sentences and one caveat, on a page and in a terminal alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from posenc.lab.records import FULL
from posenc.lab.report.rows import OWN_WINDOW, Row, Table
from posenc.lab.report.said_numbers import number
from posenc.lab.runs import Run
from posenc.lab.stats import rank_correlation, within

MANY = 8  # names in a row
SAME_SIZE = 1.5  # the most that models may differ in parameters for their verdicts to be compared
VERBS = {"gains": "gain", "holds": "hold", "declines": "decline", "fails": "fail", "no number": ""}
KEPT = ("holds", "gains")
Parts = Mapping[str, tuple[Run, Table]]  # runs with their tables, by what they are called


def sentences(run: Run, table: Table) -> list[str]:
    """How it was made; who learnt the task; what each does at the longest length, or under each view."""
    rows = _rows(table)
    if not rows:
        return ["No job is finished yet."]
    first = _best(table, rows) if run.given else _learnt(table, rows)
    return [_made(run, table, rows), first, (_kept if len(table.lengths) > 1 else _unmoved)(table, rows)]


def caveat(run: Run, table: Table) -> str:
    """What this budget cannot tell."""
    rows, steps = _rows(table), run.numbers["steps"]
    said = ["One size of model, one set of data, one budget: an order of encodings may be another elsewhere."]
    if run.given:
        said = ["One model, one set of texts: an order of methods may be another elsewhere."]
    elif max((row.share.seeds for row in rows), default=0) == 1:
        said.append("With one seed the intervals hold for these very models, not for another training.")
    if any(not row.learnt for row in rows):
        said.append(f"Who did not learn the task in {steps:,} steps may with more, and is not judged by length.")
    undecided = [row.spec for row in rows if row.verdict == "undecided"]
    if undecided and len(table.lengths) > 1:
        said.append(f"Too little was seen to judge {names(undecided)}.")
    bars = {name: value for name, value in run.facts.items() if value.endswith(f" {table.metric.unit}")}
    if bars:
        best = min(bars, key=lambda name: float(bars[name].split()[0]))
        said.append(f"Without any model, {best}: {bars[best]}.")
    return " ".join(said)


def across(parts: Parts) -> list[str]:
    """What changes between runs: of one task from run to run, and who keeps what it learnt in all of them."""
    tasks: dict[str, list[str]] = {}
    for name, (run, table) in parts.items():
        if len(table.lengths) > 1:
            tasks.setdefault(run.task, []).append(name)
    changes = [_change(parts, *pair) for found in tasks.values() for pair in pairwise(found)]
    ends = [{row.spec: row for row in _rows(parts[name][1])} for found in tasks.values() for name in found]
    if len(tasks) < 2:
        return changes
    whole = [spec for spec in ends[0] if all(spec in end and end[spec].verdict in KEPT for end in ends)]
    return [*changes, f"In all runs the task was learnt and kept by {names(whole)}."]


def called(runs: Sequence[Run]) -> list[str]:
    """A name for each run: its task, and what tells it from others of that task."""
    found = []
    for run in runs:
        alike = [other for other in runs if other.task == run.task]
        marks = [f"{key} {run.shown[key]}" for key in run.shown if len({one.shown.get(key) for one in alike}) > 1]
        if len({tuple(one.data.items()) for one in alike}) > 1:
            marks.insert(0, next(iter(run.facts.values()), ""))
        found.append(", ".join([run.task, *marks[:3]]))
    return [name if found.count(name) == 1 else f"{name} ({n + 1})" for n, name in enumerate(found)]


def names(specs: Sequence[str]) -> str:
    """``a, b and c``; of many, the first ones and how many more; of none, ``none``."""
    shown = [*specs[:MANY], *([f"{len(specs) - MANY} more"] if len(specs) > MANY else [])]
    return "".join(shown) or "none" if len(shown) < 2 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _rows(table: Table) -> list[Row]:
    return [row for row in table.rows if row.view == FULL]


def _made(run: Run, table: Table, rows: Sequence[Row]) -> str:
    n, seeds = run.numbers, sorted({row.share.seeds for row in rows})
    each = "one seed" if seeds == [1] else f"{' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} seeds"
    if run.given:
        how = "as it is" if len(rows) == 1 else f"read in {len(rows)} ways, none of which trains"
        return (
            f"One model, trained at {table.trained:,} tokens, {how}; judged at {len(table.lengths)} lengths up to "
            f"{table.lengths[-1]:,} tokens ({table.times}×)."
        )
    count = "One encoding" if len(rows) == 1 else f"{len(rows)} encodings"
    sizes = [row.training["parameters"] for row in rows if "parameters" in row.training]
    size = f" in models of {_big(min(sizes), max(sizes))} parameters" if sizes else ""
    tested = f" and judged at up to {table.lengths[-1]:,} ({table.times}×)" if len(table.lengths) > 1 else ""
    tokens = _big(n["steps"] * n["batch_size"] * n["train_length"])
    return (
        f"{count}{size}, each trained from {each} for {n['steps']:,} steps or {tokens} tokens, at up to "
        f"{table.trained:,} tokens a time{tested}."
    )


def _learnt(table: Table, rows: Sequence[Row]) -> str:
    metric, first, unit = table.metric, table.trained, " %" if table.metric.percent else f" {table.metric.unit}"
    able, others = [row for row in rows if row.learnt], [row.spec for row in rows if not row.learnt]
    if not able:
        return f"None of them learnt the task at the trained length ({_bar(table)})."
    best = (min if metric.better == "lower" else max)(able, key=lambda row: row.cells[first].mean)
    who = f"{names([row.spec for row in able])} learnt the task" if others else "all learnt the task"
    who += f", {names(others)} did not" if others else ""
    soonest = min((row for row in able if row.criterion), key=lambda row: row.criterion or 0, default=None)
    soon = f"; the first to learn it was {soonest.spec}, after {soonest.criterion:,.0f} steps" if soonest else ""
    value = number(best.cells[first].mean, metric)
    return f"At the trained length {who} ({_bar(table)}); {best.spec} has the best mean there, {value}{unit}{soon}."


def _best(table: Table, rows: Sequence[Row]) -> str:
    """Who is best at the longest length, where nobody had anything to learn."""
    last, metric = table.lengths[-1], table.metric
    means = {row.spec: row.cells[last].mean for row in rows if last in row.cells}
    if not means:
        return f"Nothing is measured at {table.times}× yet."
    best = (min if metric.better == "lower" else max)(means, key=means.__getitem__)
    base = rows[0].cells[table.trained].mean
    return (
        f"At {table.times}×, {best} has the best mean, {number(means[best], metric)} {metric.unit}; at the trained "
        f"length the model has {number(base, metric)}."
    )


def _bar(table: Table) -> str:
    """What counts as having learnt the task."""
    metric = table.metric
    bars = [_amount(table, metric.learnt)] if metric.learnt is not None else []
    bars += [f"within {_amount(table, metric.within)} of the best"] if metric.within is not None else []
    means = [row.cells[table.trained].mean for row in _rows(table) if table.trained in row.cells]
    if metric.within is not None and table.baseline is not None and table.baseline < min(means, default=0.0):
        bars[-1] = f"within {_amount(table, metric.within)} of zlib after training text, {table.baseline:g}"
    return " or ".join(bars) or "nothing is asked for"


def _amount(table: Table, value: float) -> str:
    """``0.1 bits per byte``, ``95 % of answers``."""
    return f"{100 * value:g} % {table.metric.unit}" if table.metric.percent else f"{value:g} {table.metric.unit}"


def _kept(table: Table, rows: Sequence[Row]) -> str:
    times = f"{table.times}×"
    if not any(row.learnt for row in rows):
        return f"So nobody is judged at {times}."
    groups = {verdict: [row for row in rows if row.verdict == verdict] for verdict in VERBS}
    said = [_doing(group, verdict, table) for verdict, group in groups.items() if group]
    sign = 1 if table.metric.better == "higher" else -1
    found = {row.spec: row.against[OWN_WINDOW] for row in rows if row.learnt and OWN_WINDOW in row.against}
    beyond = {s: one for s, one in found.items() if one.significant and within(one, table.metric.margin) == "different"}
    gains = {spec: sign * contrast.mean for spec, contrast in beyond.items()}
    better, worse = [s for s, gain in gains.items() if gain > 0], [s for s, gain in gains.items() if gain < 0]
    return (
        f"At {times}, {names(said) if said else 'nothing could be shown'}. Better than under its own window of "
        f"{table.trained:,} tokens by more than {_amount(table, table.metric.margin)}: {names(better)}; worse: "
        f"{names(worse)}."
    )


def _doing(group: Sequence[Row], verdict: str, table: Table) -> str:
    """``t5 (+0.070) and cope (+0.030) decline``."""
    if not VERBS[verdict]:
        return f"{names([row.spec for row in group])} {'has' if len(group) == 1 else 'have'} no number"
    changes = {row.spec: number(row.change.mean, table.metric, change=True) for row in group if row.change}
    shown = [row.spec if verdict == "holds" else f"{row.spec} ({changes[row.spec]})" for row in group]
    return f"{names(shown)} {verdict if len(group) == 1 else VERBS[verdict]}"


def _unmoved(table: Table, rows: Sequence[Row]) -> str:
    """What each view leaves as it is."""
    groups: dict[str, list[str]] = {}
    for view in table.views:
        kept = [row.spec for row in table.rows if row.view == view and row.verdict in KEPT]
        groups.setdefault(names(kept), []).append(view)
    told = [f"under {names(same)} by {specs}" for specs, same in groups.items()]
    return f"What was learnt is kept {'; '.join(told)}." if told else "They were judged as they were trained."


def _change(parts: Parts, before: str, after: str) -> str:
    """What differs from a run to the next of its task: verdicts, and the order at the longest length."""
    (_, first), (_, second) = parts[before], parts[after]
    sizes = [max((row.training.get("parameters", 0) for row in _rows(one)), default=0) for one in (first, second)]
    if min(sizes) > 0 and max(sizes) > SAME_SIZE * min(sizes):
        return f"{before} and {after} have models of {_big(*sizes)} parameters: their verdicts are not compared."
    both = [(row, other) for row in _rows(first) if (other := second.row(row.spec))]
    changed = [f"{a.spec} ({a.verdict} → {b.verdict})" for a, b in both if a.verdict != b.verdict]
    ends = [(a.cells.get(first.lengths[-1]), b.cells.get(second.lengths[-1])) for a, b in both]
    means = [(a.mean, b.mean) for a, b in ends if a and b]
    order = ""
    if len(means) >= 5:
        tau = rank_correlation(*zip(*means, strict=True))
        order = f"; orders at the longest length: Kendall's τ = {tau.value:.2f} ({tau.low:.2f} to {tau.high:.2f})"
    told = f"{len(changed)} of {len(both)} verdicts change: {names(changed)}" if changed else "no verdict changes"
    return f"From {before} to {after}, {told}{order}."


def _big(low: float, high: float | None = None) -> str:
    """``4.9 million``; ``866,000 to 867,000``, or one number where both are written alike."""
    ends = (low, low if high is None else high)
    return " to ".join(dict.fromkeys(f"{x / 1e6:.3g} million" if x >= 1e6 else f"{x:,.0f}" for x in ends))
