"""``python -m guide.orders``: whether recorded comparisons rank the same encodings alike, as a table."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

from posenc.catalogue.studies import Study, studies
from posenc.lab.stats import Correlation, rank_correlation

PAIRS = {  # comparisons by what differs between them
    "four times the steps": (("text", "text-long"), ("prose", "prose-long")),
    "prose instead of Python": (("text", "prose"), ("text-long", "prose-long")),
    "minutes instead of hours": (("quick", "text"), ("quick", "text-long"), ("quick", "text-4M")),
    "size of the model": (("text", "text-1M"), ("text-1M", "text-4M"), ("text", "text-4M")),
}
_HEADS = "| what differs | one | other | τ at 1× | τ at 16× |\n| --- | --- | --- | ---: | ---: |"


class Order(NamedTuple):
    """Two comparisons, and how far they agree at the trained length and at the longest of both."""

    differs: str
    study: Study
    other: Study
    first: Correlation
    last: Correlation


def orders() -> Iterator[Order]:
    """Each pair whose comparisons are both recorded."""
    there = {study.name: study for study in studies()}
    for differs, pairs in PAIRS.items():
        for name, other in pairs:
            if name in there and other in there:
                a, b = there[name], there[other]
                last = min(a.longest, b.longest)
                yield Order(differs, a, b, agreement(a, b, 1), agreement(a, b, last))


def agreement(study: Study, other: Study, times: float) -> Correlation:
    """Kendall's τ of the means at so many trained lengths, over encodings that both have there."""
    first, second = (
        {row.name: row.means[round(times * s.train_length)][0] for row in s.ranked(times)} for s in (study, other)
    )
    both = [name for name in first if name in second]
    return rank_correlation([first[name] for name in both], [second[name] for name in both])


def table() -> str:
    """The pairs as Markdown."""
    lines = [
        f"| {each.differs} | {each.study.name} | {each.other.name} | {_shown(each.first)} | {_shown(each.last)} |"
        for each in orders()
    ]
    return "\n".join([_HEADS, *lines])


def _shown(correlation: Correlation) -> str:
    """τ with its interval, and of how many encodings.

    >>> _told(Correlation(0.5, -0.04, 0.8, 11))
    '+0.50 [−0.04, +0.80] of 11'
    """
    value, low, high = (
        f"{number:+.2f}".replace("-", "−") for number in (correlation.value, correlation.low, correlation.high)
    )
    return f"{value} [{low}, {high}] of {correlation.encodings}"


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
