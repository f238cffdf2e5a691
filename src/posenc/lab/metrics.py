"""What a task declares of its numbers, so that statistics and reports need not know the task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

from pydantic import AliasChoices, Field

from posenc.lab.schema import Line, Number

FULL, WINDOW = "full", "window"  # views: all of the text; the same weights under a sliding window
BASELINES = "baselines"  # job of the records of n-grams, which belong to no encoding
NGRAM, NGRAM_ORDERS, NGRAM_PROBE, UNIGRAM = "ngram", "ngram_orders", "ngram_probe", "unigram_entropy"  # their metrics
REACH = "reach"  # metric: the loss on the same targets when only the last ``length`` tokens of context are read
PRIMED_ZLIB = "zlib -9 of the scored bytes, after training text"  # a fact of runs on text, in bits per byte


class Bounds(NamedTuple):
    """What counts as a difference in some unit.

    Attributes:
        margin: a smaller difference is none. Every verdict, contrast of lengths and claim uses this one number.
        failure: a loss by more than this is called a failure. It only names the loss; no claim rests on it.
    """

    margin: float
    failure: float = float("inf")


BITS, NATS = "bits per byte", "nats a token"
BOUNDS = MappingProxyType(
    {
        BITS: Bounds(0.02, 0.3), NATS: Bounds(0.02, 0.5),
        "of answers": Bounds(0.02, 0.3), "of sums": Bounds(0.02, 0.3), "of digits": Bounds(0.02),
        "of pictures": Bounds(0.01), "of digits of pass keys": Bounds(0.05), "tokens a second": Bounds(0.01),
    }
)  # fmt: skip
"""The margin of each unit, also for runs that were recorded with another; docs/compare.md has the same table."""


@dataclass(frozen=True)
class Metric:
    """A number that a task measures, and how it is judged. Values of one item at one length are independent draws.

    Attributes:
        name: in the records.
        unit: after a number, ``bits per byte``.
        better: which way.
        margin, fails: see `Bounds`; those of a unit that `BOUNDS` has are the ones there, whatever is given here.
        chance: what a guess reaches that knows nothing.
        learned: a model has learned its task from this value on at the training length (``learnt`` in run.json);
            default: if it is better than ``chance`` by the margin. A language model has learned if it is better than
            the n-gram of its run, see `posenc.lab.report.numbers`.
        percent: whether reports show hundredths.
    """

    name: Line
    unit: Line
    better: Literal["lower", "higher"]
    margin: Number = float("nan")
    chance: Number | None = None
    # Run folders name this threshold "learnt"; both spellings are read, the old one is written.
    learned: Annotated[Number | None, Field(validation_alias=AliasChoices("learned", "learnt"))] = None
    fails: float = float("inf")
    percent: bool = False

    def __post_init__(self) -> None:
        bounds = BOUNDS.get(self.unit, Bounds(self.margin, self.fails))
        if not bounds.margin > 0:
            raise ValueError(f"{self.name}: a margin above 0 is needed in {self.unit!r}, not {bounds.margin:g}")
        object.__setattr__(self, "margin", bounds.margin)
        object.__setattr__(self, "fails", bounds.failure)

    @property
    def language(self) -> bool:
        """Whether it is the loss of a language model, which an n-gram can be held against."""
        return self.unit == BITS

    @property
    def threshold(self) -> float | None:
        """The value at the training length from which on a task is learned; None for a metric without a criterion."""
        if self.learned is not None or self.chance is None:
            return self.learned
        return self.chance + (self.margin if self.better == "higher" else -self.margin)


@dataclass(frozen=True)
class Curve:
    """Values by something else than items: metric ``name`` has ``item`` on the horizontal axis, one value each."""

    name: Line
    axis: Line  # in words, with its unit
    of: Line  # the metric whose unit the values have


@dataclass(frozen=True)
class Values:
    """What a task measured of one row, of one metric, at one length, under one view."""

    metric: str
    values: Sequence[float]
    length: int = 0
    view: str = FULL
    spec: str = ""  # the row; empty: the job's own
    items: Sequence[int] | None = None  # default 0, 1, …
    documents: Sequence[int] | None = None  # default the items


@dataclass(frozen=True)
class Words:
    """What a report says of a task before any number."""

    task: Line
    title: Line  # a few words
    # Run folders name it "asked"; both spellings are read, the old one is written.
    question: Annotated[Line, Field(validation_alias=AliasChoices("question", "asked"))]  # a sentence or two
    shows: Line  # what success and failure mean, a sentence or two
