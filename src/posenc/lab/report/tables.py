"""The numbers of a report as tables: on the page, in Markdown and in a terminal; and how one number is written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table as TerminalTable

from posenc.lab.metrics import ATTENTION, FULL, WINDOW, Metric
from posenc.lab.report.numbers import OWN_WINDOW, Row, Share, Table, metric_cells
from posenc.lab.run.folder import Run
from posenc.lab.stats import Interval

ABSENT = "–"
TRAINING = {  # what is measured once a training, by its name in the records: heading and format
    "parameters": ("parameters", ",.0f"), "encoding_parameters": ("of the encoding", ",.0f"),
    "seconds": ("seconds", ",.0f"), "train_loss": ("final loss", ".3f"),
    "grad_norm_median": ("gradient norm, median", ".2f"), "grad_norm_max": ("largest after the first tenth", ".2f"),
    "clipped_share": ("steps clipped", ".0%"),
}  # fmt: skip


@dataclass(frozen=True)
class TextTable:
    """A table of formatted cells: the first column holds names, the others numbers."""

    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    title: str = ""


# ---- One number ----


def number(value: float, metric: Metric, *, change: bool = False) -> str:
    """``1.720``, or ``97.5`` for a share, which is shown in percent; a change has its sign."""
    sign = "+z" if change else "z"  # z: a negative number that is rounded to zero has no sign
    return (f"{100 * value:{sign}.1f}" if metric.percent else f"{value:{sign}.3f}").replace("-", "−")


def with_error(value: Interval | None, metric: Metric, *, change: bool = False) -> str:
    """``1.720 ± 0.012 (ν 4)``: mean, half of the 95 % interval, degrees of freedom; a dash without a value."""
    if value is None:
        return ABSENT
    mean = number(value.mean, metric, change=change)
    half = (value.high - value.low) / 2
    return mean if math.isnan(half) else f"{mean} ± {number(half, metric)} (ν {value.freedom:.0f})"


def amount(value: float, metric: Metric) -> str:
    """``0.1 bits per byte``, ``95 % of answers``; an infinite bound is no amount, so callers test for it."""
    return f"{100 * value:g} % {metric.unit}" if metric.percent else f"{value:g} {metric.unit}"


def unit_of(metric: Metric) -> str:
    """The unit of a metric's numbers as they are shown."""
    return f"% {metric.unit}" if metric.percent else metric.unit


# ---- Tables of a run ----


def main_table(run: Run, table: Table) -> TextTable:
    """One line an encoding: every length, both verdicts, the own window and the baselines; or every view.

    Of a language model also the context that it uses; and below the encodings the n-gram and single tokens.
    """
    metric, times, views = table.metric, [f"{k}×" for k in run.times], table.views
    labels = sorted({label for row in table.rows for label in row.contrasts}, key=lambda s: (s != OWN_WINDOW, s))
    by_length, reach, lines = len(times) > 1, metric.language and not run.pretrained, []
    asks_far = any(row.far for row in table.full_rows)
    for row in table.full_rows:
        share = row.ngram_share if metric.language else row.learned_share
        cells = [row.spec, *([] if run.pretrained else [_of_seeds(share), _steps(row)])]
        cells += [uses_context(row)] if reach else []
        cells += [with_error(row.cells.get(length), metric) for length in table.lengths]
        if by_length:
            length = row.practical_length
            cells += [with_error(row.verdict.change, metric, change=True), row.verdict.kind]
            cells += [ABSENT if length is None else f"{length:,}"]
            cells += [_far(row, metric)] if asks_far else []
            cells += [_at_longest(table.row(row.spec, WINDOW), table)]
            cells += [with_error(row.contrasts.get(label), metric, change=True) for label in labels]
        else:
            under = [table.row(row.spec, view) for view in views]
            cells += [ABSENT if each is None else f"{_at_longest(each, table)} {each.verdict.kind}" for each in under]
        lines.append(cells)
    compared = [f"{times[-1]} − 1×", "verdict", "holds to, tokens", *(["far context"] if asks_far else [])]
    compared += [f"own window, {times[-1]}", *(f"− {label}" for label in labels)]
    learned = ["better than n-gram", "after steps"] if metric.language else ["learned", "solved after steps"]
    lengths, rest = (times, compared) if by_length else (["as trained"], views)
    before = [*([] if run.pretrained else learned), *(["uses context"] if reach else [])]
    heads = ["encoding", *before, *lengths, *rest]
    return TextTable(heads, [*lines, *_baseline_lines(table, heads)])


def _of_seeds(share: Share | None) -> str:
    return ABSENT if share is None else f"{share.count} of {share.seeds}"


def _steps(row: Row) -> str:
    return ABSENT if row.steps_to_learn is None else f"{row.steps_to_learn:,.0f}"


def _far(row: Row, metric: Metric) -> str:
    """The verdict on the use of far context with what it rests on."""
    return ABSENT if row.far is None else f"{row.far.kind}: {with_error(row.far.gain, metric)}"


def _baseline_lines(table: Table, heads: Sequence[str]) -> Iterator[list[str]]:
    """What counting reaches, in the columns of all lengths: its targets are the same, and its context is short."""
    counting = table.baselines
    if counting is None:
        return
    start, end = heads.index("uses context") + 1, heads.index("uses context") + 1 + len(table.lengths)
    single = number(counting.unigram, table.metric)
    for name, value in (
        (f"{counting.order}-gram", with_error(counting.ngram, table.metric)),
        ("single tokens", single),
    ):
        cells = [name, *[ABSENT] * (len(heads) - 1)]
        cells[start:end] = [value] * (end - start)
        yield cells


def uses_context(row: Row) -> str:
    """``8 tokens``: the context that the models of a row use, see `posenc.lab.report.numbers.Reach`."""
    return ABSENT if row.reach is None else f"{row.reach.used} tokens"


def training_table(table: Table) -> TextTable:
    """What the trainings took, as means over seeds."""
    rows = table.full_rows
    columns = [name for name in TRAINING if any(name in row.training for row in rows)]
    lines = [
        [row.spec, *(f"{row.training[c]:{TRAINING[c][1]}}" if c in row.training else ABSENT for c in columns)]
        for row in rows
    ]
    return TextTable(["encoding", *(TRAINING[name][0] for name in columns)], lines)


def further_tables(run: Run, table: Table) -> list[TextTable]:
    """Tables of what a run measures in addition to the deciding metric."""
    further = [_metric_table(run, table, metric) for metric in run.metrics[1:]]
    return [each for each in (_reach_table(table), _attention_table(run, table), *further) if each.lines]


def _reach_table(table: Table) -> TextTable:
    """The loss at the training length by truncated context."""
    rows = [(row, row.reach) for row in table.full_rows if row.reach is not None]
    contexts = sorted({context for _, reach in rows for context in reach.losses})
    lines = [
        [row.spec, *(_with_half(reach.losses.get(context), table.metric) for context in contexts), uses_context(row)]
        for row, reach in rows
    ]  # fmt: skip
    heads = ["encoding", *(f"{context:,} tokens" for context in contexts), "uses context"]
    return TextTable(heads, lines, f"Loss by truncated context, same targets: {unit_of(table.metric)}")


def _attention_table(run: Run, table: Table) -> TextTable:
    """How much of their attention the heads give to tokens farther back than a quarter of the training length."""
    lines = run.records[run.records["metric"] == ATTENTION]
    far = lines["value"].where(lines["item"] > table.trained // 4, 0.0)
    shares = far.groupby([lines["spec"], lines["seed"], lines["document"]], observed=True).sum()
    shares = shares.groupby(level=[0, 2], observed=True).mean()  # over seeds, for each head
    known = {str(spec) for spec in shares.index.get_level_values(0)}
    rows = [
        [row.spec, *(f"{100 * value:.0f}" for value in (part.mean(), part.min(), part.max()))]
        for row in table.full_rows
        if row.spec in known and (part := shares[row.spec]).size
    ]
    heads = ["encoding", "mean over heads", "the head with least", "the head with most"]
    return TextTable(heads, rows, f"% of attention farther back than {table.trained // 4:,} tokens, at 1×")


def _metric_table(run: Run, table: Table, metric: Metric) -> TextTable:
    cells, lines = metric_cells(run, metric), []
    for row in table.rows:
        by_length = cells.get((row.spec, row.view))
        if row.view in (FULL, WINDOW) and by_length:
            name = row.spec if row.view == FULL else f"{row.spec}, own window"
            lines.append([name, *(_with_half(by_length.get(k), metric) for k in table.lengths)])
    heads = ["encoding", *(f"{length:,}" for length in table.lengths)]
    return TextTable(heads, lines, f"{metric.name.replace('_', ', ')}: {unit_of(metric)}")


def _with_half(cell: Interval | None, metric: Metric) -> str:
    """A mean with half of its interval, where it has one."""
    if cell is None:
        return ABSENT
    half = (cell.high - cell.low) / 2
    return _short(cell.mean, metric) + (f" ± {_short(half, metric)}" if not math.isnan(half) else "")


def _short(value: float, metric: Metric) -> str:
    return f"{100 * value:.1f}" if metric.percent else f"{value:.4g}"


def _at_longest(row: Row | None, table: Table) -> str:
    """The cell of a row at its longest length."""
    return ABSENT if row is None or not row.cells else with_error(row.cells[max(row.cells)], table.metric)


# ---- A terminal, and Markdown ----


def terminal_table(run: Run, table: Table) -> TerminalTable:
    """The main table's most important columns for a terminal of 80 columns."""
    table_frame, times = main_table(run, table), [f"{k}×" for k in run.times]
    by_length = len(times) > 1
    change = f"{times[-1]} − 1×"
    heads = [times[0], times[-1], change, "verdict", "holds to, tokens"] if by_length else ["as trained", *table.views]
    places = [table_frame.heads.index(head) for head in heads]
    # Means alone, but of the change its interval too: the verdict rests on it.
    ends = [" (" if head == change else " ±" for head in heads]
    lines = [
        [line[0], *(line[place].partition(end)[0] for place, end in zip(places, ends, strict=True))]
        for line in table_frame.lines
    ]
    return terminal(TextTable(["encoding", *heads], lines), whole_numbers=by_length)


def terminal(table: TextTable, *, whole_numbers: bool = False) -> TerminalTable:
    """A table for a terminal; in a narrow one a name breaks before a number, which may stay whole."""
    shown = TerminalTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    shown.add_column(table.heads[0], overflow="fold")
    for head in table.heads[1:]:
        shown.add_column(head, justify="right", overflow="fold", no_wrap=whole_numbers)
    for line in table.lines:
        shown.add_row(*line)
    return shown


def markdown(table: TextTable) -> str:
    """A table of Markdown; names and texts of a run's files steer nothing in it."""
    rule = ["---", *["---:"] * (len(table.heads) - 1)]
    lines = [list(map(escaped, cells)) for cells in (table.heads, *table.lines)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (lines[0], rule, *lines[1:]))


def escaped(text: str) -> str:
    """Text in which no character has a meaning in Markdown or HTML, on one line."""
    text = re.sub(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", re.sub(r"\s+", " ", text))
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text).replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"^ ?(?=[#=]|[-+] |\d+[.)] )", r"\\", text)
