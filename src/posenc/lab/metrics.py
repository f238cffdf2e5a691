"""What a task declares of its numbers, so that statistics and reports need not know the task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
        learnt: a model has learnt its task from this value on at the trained length; or
        within: if it is no farther than this from the best model there, and from zlib's bits
            per scored byte after training text, where the run records them.
        fails: a change by more than this is a failure, not a decline.
        percent: whether reports show hundredths.
    """

    name: str
    unit: str
    better: Literal["lower", "higher"]
    margin: float
    chance: float | None = None
    learnt: float | None = None
    within: float | None = None
    fails: float = float("inf")
    percent: bool = False


@dataclass(frozen=True)
class Curve:
    """Values by something else than items: metric ``name`` has ``item`` on the horizontal axis, one value each."""

    name: str
    axis: str  # in words, with its unit
    of: str  # the metric whose unit the values have


@dataclass(frozen=True)
class Words:
    """What a report says of a task before any number."""

    task: str
    title: str  # a few words
    asked: str  # what is asked, a sentence or two
    shows: str  # what success and failure mean, a sentence or two
