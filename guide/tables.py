"""The tables and lists of numbers that pages have: Markdown made from recorded runs, see `guide.numbers`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from guide.quantities import ITS_WINDOW, UNDER, Recorded
from posenc.lab.report.numbers import STABLE

MARKS = {"equivalent": "**{}**", "better": "**{}**", "did not learn": "({})"}  # of a cell, by the verdict on its row
NONE = "–"  # where nothing was measured


def changes(run: Recorded, verdict: str) -> str:
    """Rows with a verdict and their changes over length, the smallest first."""
    rows = sorted(run.with_verdict(verdict), key=lambda row: (round(run.change(row), 6), row))
    return ", ".join(f"`{row}` ({signed(run.change(row))})" for row in rows) or "none"


def leads(run: Recorded, baseline: str) -> str:
    """Rows significantly better than a baseline at the longest length, with the difference, the largest first."""
    rows = sorted(run.better_than(baseline), key=lambda row: run.difference(row, baseline))
    return ", ".join(f"`{row}` ({signed(run.difference(row, baseline))})" for row in rows) or "none"


def unlearned(run: Recorded) -> str:
    """Rows that did not learn the task, by name."""
    return ", ".join(f"`{row}`" for row in run.rows if row in run.with_verdict("did not learn")) or "none"


def best(run: Recorded, count: int, *more: str) -> str:
    """The best means at the training length, and the means of other rows."""
    ranked = run.ranked()[:count]
    return ", ".join(f"`{row}` ({run.mean(row):.3f})" for row in [*ranked, *(r for r in more if r not in ranked)])


def first_to_last(runs: Mapping[str, Recorded]) -> str:
    """Rows of several runs: the mean at the training length → at the longest, marked by the verdict."""
    first, last = next(iter(runs.values())), list(runs.values())[-1]
    rows = sorted(last.rows, key=lambda row: first.mean(row, first.longest))
    lines = [[f"`{row}`", *(_first_to_last(run, row, MARKS) for run in runs.values())] for row in rows]
    window = f"rope{UNDER}{ITS_WINDOW}"
    lines.append([f"`rope`{UNDER}{ITS_WINDOW}", *(_first_to_last(run, window, {}) for run in runs.values())])
    return table(["encoding", *runs], lines)


def _first_to_last(run: Recorded, row: str, marks: Mapping[str, str]) -> str:
    means = f"{run.mean(row.partition(UNDER)[0]):.3f} → {run.mean(row, run.longest):.3f}"
    return marks.get(run.verdict(row), "{}").format(means)


def by_length(run: Recorded, rows: Sequence[str], lengths: Sequence[float] = (1, 2, 4, 8, 16)) -> str:
    """The mean of each row at each length."""
    lines = [
        [row_name(row), *(f"{run.mean(row, k):.3f}" if run.has(row, k) else NONE for k in lengths)] for row in rows
    ]
    return table(["row", *(f"{k}×" for k in lengths)], lines)


def beyond_cut_and_keys(run: Recorded, rows: Sequence[str]) -> str:
    """Of a given model: losses minus the truncated text's by length, and digits retrieved of all and far passkeys."""
    lengths = (1, 1.5, 2, 4)
    cut = run.mean("rope")
    lines = []
    for row in rows:
        losses = [signed(run.mean(row, k) - cut) if run.has(row, k) else NONE for k in lengths]
        lines.append([row_name(row), *losses, *(_keys(run, row, k, far) for far in (False, True) for k in lengths[1:])])
    heads = [f"{part}{k}×" for part in ("", "keys, ", "far, ") for k in lengths if not part or k > 1]
    return table(["row", *heads], lines)


def _keys(run: Recorded, row: str, times: float, far: bool) -> str:
    share = run.keys(row, times, far=far)
    return NONE if share is None else f"{share:.0f}"


def accuracies(runs: Sequence[Recorded]) -> str:
    """Tasks side by side, per cent right at the training length → at the longest; best preserved first."""
    rows = list(dict.fromkeys(row for run in runs for row in run.rows))

    def strength(row: str) -> tuple[int, float]:
        last = [run.mean(row, run.longest) if run.has(row, run.longest) else 0.0 for run in runs]
        return -sum(run.verdict(row) in STABLE for run in runs), -sum(last)

    lines = [[row, *(_accuracy(run, row) for run in runs)] for row in sorted(rows, key=strength)]
    return table(["encoding", *(run.name for run in runs)], lines)


def _accuracy(run: Recorded, row: str) -> str:
    last = f"{run.mean(row, run.longest):.0f}" if run.has(row, run.longest) else NONE
    return MARKS.get(run.verdict(row), "{}").format(f"{run.mean(row):.0f} → {last}")


def sums_and_digits(run: Recorded) -> str:
    """Addition: per cent of sums, and of their digits, at each length."""
    lines = [
        [row, *(f"{run.mean(row, k, metric):.0f}" for metric in ("accuracy", "digits") for k in (1, 2, 3))]
        for row in run.rows
    ]
    return table(
        ["encoding", "sums at 1×, 6 digits", "at 2×, 13", "at 3×, 20", "digits at 1×", "at 2×", "at 3×"], lines
    )


def by_view(run: Recorded, views: Mapping[str, str]) -> str:
    """Images: per cent recognised as trained and under each view, with half of the 95 % interval."""
    lines = []
    for row in run.ranked():
        learned = run.verdict(row) != "did not learn"
        marks = MARKS if learned else {}
        cells = [_image(run, row, "{}" if learned else "({})")]
        for name in (f"{row}{UNDER}{view}" for view in views.values()):
            cells.append(_image(run, name, marks.get(run.verdict(name), "{}")) if run.has(name, 1) else NONE)
        lines.append([row, *cells])
    return table(["encoding", "trained", *views], lines)


def _image(run: Recorded, row: str, mark: str) -> str:
    mean = run.mean(row)
    return mark.format(f"{mean:.0f} ± {mean.half:.0f}")


def row_name(row: str) -> str:
    """A row as tables have it."""
    name, _, view = row.partition(UNDER)
    return f"`{name}`{UNDER}{view}" if view else f"`{name}`"


def signed(value: float) -> str:
    """A difference.

    >>> signed(-0.25)
    '−0.250'
    """
    return f"{value:+.3f}".replace("-", "−")


def table(heads: Collection[str], lines: Collection[Collection[str]]) -> str:
    """A table in Markdown with numbers on the right."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))


TABLES: Sequence[Callable[..., str]] = (
    changes, leads, unlearned, best, first_to_last, by_length, beyond_cut_and_keys, accuracies, sums_and_digits,
    by_view,
)  # fmt: skip
