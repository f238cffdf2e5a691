"""The two verdicts on an encoding, as data: what the loss does beyond the training length, and the use of far context.

**Beyond the training length** the metric rises, is flat or falls: its change from the training length to the longest
one, paired by seed and document. Each verdict is a region, below −margin, within ± margin or above it, and is given
where the whole interval lies inside; otherwise it is "inconclusive". The condition is absolute: a language model must
be better than the entropy of single tokens at the training length, a model of a task must have learned it, that is,
its interval there lies above chance and above the majority class. "Flat" alone is no praise, because a model that uses
four tokens is flat trivially; so it comes with the reach of its model.

**Far context** is used or not: "shown" where the whole interval lies above a bar, else "not shown". For a language
model what is measured is its reach, loss at T/4 − loss at T tokens of context, and the bar is the margin. For a task
that controls distances it is the share of right answers that depend on tokens farther back than T/4, and the bar is
chance or the majority class, whichever is higher.

**Multiplicity.** A table has a false verdict in at most 5 % of cases. Its rows are judged in the order of their
p-values, the clearest first: with k verdicts to give, the interval has confidence 1 − 2·5 %/k, of which one side
decides, and each verdict that is given leaves one less (S. Holm, Scandinavian Journal of Statistics 6 (1979) 65–70).
The verdicts on far context all have the confidence of the first (Bonferroni). Lengths between the training length and
the longest one are looked at in order, and only as long as all before are within the margin, which needs no adjustment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from posenc.lab.metrics import Metric
from posenc.lab.stats import LEVEL, Array, Interval, p_above, paired, within

Key = TypeVar("Key")
Pair = tuple[Array, Array]

VerdictKind = Literal[
    "rises", "falls", "flat", "inconclusive", "no value", "above single tokens", "did not learn", "not judged"
]
VERDICTS: tuple[VerdictKind, ...] = get_args(VerdictKind)


@dataclass(frozen=True)
class Verdict:
    """What the deciding metric of a row does beyond the training length, or under another view.

    rises, flat, falls     the whole interval of the change lies above, within or below ± margin
    inconclusive           it lies in more than one of these regions
    no value               nothing was measured at the longest length
    above single tokens    a language model that is no better than the entropy of single tokens at the training length
    did not learn          a task that fewer than half of the seeds learned at the training length
    not judged             a row under a window, or a run of one length

    Attributes:
        kind: one of these.
        margin: in the metric's unit.
        change: longest − training length; n is its seeds and documents. None without a verdict.
        confidence: of the interval of the change.
        stable: whether the row is at least as good as at the training length: flat, or on the better side.
    """

    kind: VerdictKind
    margin: float
    change: Interval | None = None
    confidence: float = float("nan")
    stable: bool = False


@dataclass(frozen=True)
class FarContext:
    """Whether a row is shown to use context farther back than a quarter of the training length."""

    kind: Literal["shown", "not shown"]
    gain: Interval  # loss at T/4 − loss at T, or the share of right answers from farther back than T/4
    bar: float  # that the whole interval must exceed
    confidence: float


def simultaneous(tests: int) -> float:
    """The confidence of each of several intervals, of which one side decides: all are right in 95 % of cases."""
    return 1 - 2 * LEVEL / max(1, tests)


def verdicts_on(pairs: Mapping[Key, Pair], metric: Metric) -> dict[Key, Verdict]:
    """The verdicts on the changes of a table, adjusted together.

    Args:
        pairs: of each row the values at the longest and at the training length, (seeds, documents).
        metric: its margin and better side.
    """
    verdicts, left = dict[Key, Verdict](), len(pairs)
    for key in sorted(pairs, key=lambda key: _least_p(pairs[key], metric.margin)):
        verdicts[key] = verdict_on(pairs[key], metric, simultaneous(left))
        left -= verdicts[key].kind != "inconclusive"  # after the first of these, no other row can be decided
    return verdicts


def _least_p(pair: Pair, margin: float) -> float:
    """The one-sided p-value of the best supported region."""
    difference = pair[0] - pair[1]
    outside = [p_above(sign * difference, margin) for sign in (1, -1)]
    return min(*outside, max(p_above(sign * difference, -margin) for sign in (1, -1)))


def verdict_on(pair: Pair, metric: Metric, confidence: float) -> Verdict:
    """The verdict on one change, by its interval of a confidence."""
    change = paired(*pair, confidence=confidence)
    answer = within(change, metric.margin)
    if answer == "inconclusive":
        return Verdict("inconclusive", metric.margin, change, confidence)
    kind: VerdictKind = "flat" if answer == "equivalent" else "rises" if change.mean > 0 else "falls"
    better = "falls" if metric.better == "lower" else "rises"
    return Verdict(kind, metric.margin, change, confidence, kind in ("flat", better))


def practical_length(trained: int, pairs: Mapping[int, Pair], metric: Metric, confidence: float) -> int:
    """The longest tested length up to which a model loses less than the margin; the training length if none is.

    Args:
        trained: the training length in tokens.
        pairs: the values at each longer length and at the training length, by length in tokens.
        metric: its margin and better side.
        confidence: of each interval.
    """
    longest = trained
    for length, pair in sorted(pairs.items()):
        change = paired(*pair, confidence=confidence)
        worst = change.high if metric.better == "lower" else -change.low
        if worst >= metric.margin:
            break
        longest = length
    return longest
