"""What a task declares of its numbers, so that statistics and reports need not know the task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from posenc.lab.files import Number

FULL, WINDOW = "full", "window"  # views: all of the text; the same weights under a sliding window
BASELINES = "baselines"  # job of the records of n-grams, which belong to no encoding
NGRAM, NGRAM_ORDERS, NGRAM_PROBE, UNIGRAM = "ngram", "ngram_orders", "ngram_probe", "unigram_entropy"  # their metrics
ATTENTION = "attention"  # metric: a head's share of attention at distances up to ``item``; ``document`` is its number
REACH = "reach"  # metric: the loss on the same targets when only the last ``length`` tokens of context are read
FAR = "far"  # metric: right answers that depend on tokens farther back than a quarter of the training length
MAJORITY = "majority"  # metric of baselines: what always giving the most frequent answer of the tests reaches


BITS, NATS = "bits per byte", "nats a token"
MARGINS = MappingProxyType(
    {
        BITS: 0.02, NATS: 0.02, "of answers": 0.02, "of sums": 0.02, "of digits": 0.02, "of pictures": 0.01,
        "of digits of pass keys": 0.05, "tokens a second": 0.01,
    }
)  # fmt: skip
"""The margin of each unit, also for runs that were recorded with another; docs/compare.md has the same table.

A difference that is smaller counts as none: every verdict, contrast of lengths and claim uses this one number.
"""


@dataclass(frozen=True)
class Metric:
    """A number that a task measures, and how it is judged. Values of one item at one length are independent draws.

    Attributes:
        name: in the records.
        unit: after a number, ``bits per byte``.
        better: which way.
        margin: a smaller difference counts as none; that of a unit in `MARGINS` is the one there, whatever is given.
        chance: what a guess reaches that knows nothing. A model has learned its task if the interval of its value at
            the training length lies above it, and above the majority class (`posenc.lab.report.numbers`).
        learned: from this value on at the training length a task is solved, from which steps are counted; default:
            ``chance`` and the margin.
        percent: whether reports show hundredths.
    """

    name: str
    unit: str
    better: Literal["lower", "higher"]
    margin: Number = float("nan")
    chance: Number | None = None
    learned: Number | None = None
    percent: bool = False

    def __post_init__(self) -> None:
        margin = MARGINS.get(self.unit, self.margin)
        if not margin > 0:
            raise ValueError(f"{self.name}: a margin above 0 is needed in {self.unit!r}, not {margin:g}")
        object.__setattr__(self, "margin", margin)

    @property
    def language(self) -> bool:
        """Whether it is the loss of a language model, which an n-gram can be held against."""
        return self.unit == BITS

    @property
    def threshold(self) -> float | None:
        """The value at the training length from which on a task is solved; None for a metric without a criterion."""
        if self.learned is not None or self.chance is None:
            return self.learned
        return self.chance + (self.margin if self.better == "higher" else -self.margin)


@dataclass(frozen=True)
class Curve:
    """Values by something else than items: metric ``name`` has ``item`` on the horizontal axis, one value each."""

    name: str
    axis: str  # in words, with its unit
    of: str  # the metric whose unit the values have


@dataclass(frozen=True)
class Values:
    """What a task measured of one training, of one metric, at one length, under one view."""

    metric: str
    values: Sequence[float]
    length: int = 0
    view: str = FULL
    items: Sequence[int] | None = None  # default 0, 1, …
    documents: Sequence[int] | None = None  # default the items


@dataclass(frozen=True)
class Words:
    """What a report says of a task before any number."""

    task: str
    title: str  # a few words
    question: str  # a sentence or two
    shows: str  # what success and failure mean, a sentence or two
