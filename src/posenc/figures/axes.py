"""Axes: where ticks stand, how their numbers and their titles are written."""

from __future__ import annotations

import math
from collections.abc import Collection

FEW = 6  # so many values of a logarithmic axis are ticks themselves


def linear_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` multiples of 1, 2 or 5 times a power of ten, within the range.

    >>> linear_ticks(0, 64)
    [0.0, 20.0, 40.0, 60.0]
    """
    if high <= low:
        return [low]
    rough = (high - low) / count
    ten = 10.0 ** math.floor(math.log10(rough))
    step = next(ten * m for m in (1, 2, 5, 10) if ten * m >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def log_ticks(values: Collection[float]) -> list[float]:
    """The values themselves where they are few, such as multiples of a length; else powers of ten within them.

    >>> log_ticks([1, 2, 4, 8]), log_ticks(range(5, 2000))
    ([1.0, 2.0, 4.0, 8.0], [10.0, 100.0, 1000.0])
    """
    distinct = sorted(set(map(float, values)))
    if len(distinct) <= FEW:
        return distinct
    first, last = math.ceil(math.log10(distinct[0]) - 1e-9), math.floor(math.log10(distinct[-1]) + 1e-9)
    tens = [10.0**power for power in range(first, last + 1)]
    return tens if len(tens) > 1 else [distinct[0], distinct[-1]]


def title(words: str, *, log: bool) -> str:
    """The title of an axis, which says if it is logarithmic.

    >>> title("wavelength (tokens)", log=True), title("loss", log=True)
    ('wavelength (tokens, log scale)', 'loss (log scale)')
    """
    if not log:
        return words
    return f"{words[:-1]}, log scale)" if words.endswith(")") else f"{words} (log scale)"


def number(value: float) -> str:
    """A number in three digits, or whole.

    >>> number(0.125), number(16384), number(-2.0), number(1e-06)
    ('0.125', '16,384', '−2', '1e−06')
    """
    text = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return text.replace("-", "−")


def tick(value: float) -> str:
    """The number of a tick: as `number`, with thousands as k from 10k on, as lengths are written.

    >>> tick(1000), tick(131_072), tick(2e6)
    ('1,000', '131k', '2M')
    """
    for size, sign in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= max(size, 1e4):
            return number(float(f"{value / size:.3g}")) + sign
    return number(value)
