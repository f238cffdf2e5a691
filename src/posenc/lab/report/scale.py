"""What ranked numbers are: bits per byte, or shares of wrong answers, which reports tell as per cent that are right."""

from __future__ import annotations

from typing import NamedTuple

from posenc.lab.statistics.intervals import Interval


class Scale(NamedTuple):
    """How a number that is the better the smaller it is reads in a report."""

    close: float  # encodings as near as this to the best scatter alike from seed to seed
    start: float  # a report shows start + factor · number
    factor: float
    digits: int
    unit: str  # after a number
    step: str  # after a difference of two
    most: str  # what the best does
    samples: str  # what each seed is measured on, the same for all

    def value(self, number: float) -> str:
        """A number as a report shows it: ``1.764 bits per byte``."""
        return f"{self.start + self.factor * number:.{self.digits}f}{self.unit}"

    def between(self, interval: Interval) -> str:
        """Where a mean lies: ``1.751 to 1.777``."""
        return " to ".join(f"{end:.{self.digits}f}" for end in self.ends(interval, self.start))

    def difference(self, interval: Interval) -> str:
        """A difference and where it lies: ``+0.020 bits, 95 %: +0.013 to +0.027``."""
        low, high = (f"{end:+.{self.digits}f}" for end in self.ends(interval))
        return f"{self.factor * interval.mean:+.{self.digits}f} {self.step}, 95 %: {low} to {high}"

    def ends(self, interval: Interval, start: float = 0.0) -> tuple[float, float]:
        """The lower and the upper end as a report shows them."""
        low, high = sorted(start + self.factor * end for end in (interval.low, interval.high))
        return low, high


BITS = Scale(0.3, 0.0, 1.0, 3, " bits per byte", "bits", "needs the fewest", "windows")
WRONG = Scale(0.05, 100.0, -100.0, 1, " % right", "points", "has the most", "sequences")
