"""What a task declares of its numbers, so that statistics and reports need not know the task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from posenc.lab.schema import Line, Number

FULL, WINDOW = "full", "window"  # views: all of the text; the same weights under a sliding window
BASELINES = "baselines"  # job of the records of n-grams, which belong to no encoding
NGRAM, NGRAM_ORDERS, NGRAM_PROBE, UNIGRAM = "ngram", "ngram_orders", "ngram_probe", "unigram_entropy"  # their metrics
REACH = "reach"  # metric: the loss on the same targets when only the last ``length`` tokens of context are read
PRIMED_ZLIB = "zlib -9 of the scored bytes, after training text"  # a fact of runs on text, in bits per byte


@dataclass(frozen=True)
class Metric:
    """A number that a task measures, and how it is judged. Values of one item at one length are independent draws.

    Attributes:
        name: in the records.
        unit: after a number, ``bits per byte``.
        better: which way.
        margin: a change smaller than this is none: what "flat" and "holds" allow, in the metric's unit.
        chance: what a guess reaches that knows nothing.
        learned: a model has learned its task from this value on at the training length (``learnt`` in run.json); or
        within: if it is within this distance of the best model there, and from zlib's bits
            per scored byte after training text, where the run records them.
        fails: a change by more than this is a failure, not a decline.
        percent: whether reports show hundredths.
    """

    name: Line
    unit: Line
    better: Literal["lower", "higher"]
    margin: Number
    chance: Number | None = None
    # Run folders name this threshold "learnt"; both spellings are read, the old one is written.
    learned: Annotated[Number | None, Field(validation_alias=AliasChoices("learned", "learnt"))] = None
    within: Number | None = None
    fails: float = float("inf")
    percent: bool = False


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
    asked: Line  # what is asked, a sentence or two
    shows: Line  # what success and failure mean, a sentence or two
