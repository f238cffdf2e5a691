"""The tables and lists of numbers that pages have: Markdown made from recorded runs, see `guide.numbers`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from guide.quantities import UNDER, Recorded

NONE = "–"  # where nothing was measured


def by_view(run: Recorded, views: Mapping[str, str]) -> str:
    """Images: per cent recognised as trained and under each view, with half of the 95 % interval.

    Bold where a row is as good under the view as without it or better; in brackets where it did not learn the task.
    """
    lines = []
    for row in run.ranked():
        learned = run.learned(row)
        cells = [_image(run, row, "{}" if learned else "({})")]
        for name in (f"{row}{UNDER}{view}" for view in views.values()):
            stable = run.has(name, 1) and learned and run.stable(name)
            cells.append(_image(run, name, "**{}**" if stable else "{}") if run.has(name, 1) else NONE)
        lines.append([row, *cells])
    return table(["encoding", "trained", *views], lines)


def _image(run: Recorded, row: str, mark: str) -> str:
    mean = run.mean(row)
    return mark.format(f"{mean:.0f} ± {mean.half:.0f}")


def table(heads: Collection[str], lines: Collection[Collection[str]]) -> str:
    """A table in Markdown with numbers on the right."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))


TABLES: Sequence[Callable[..., str]] = (by_view,)
