"""The loss of a model on the last tokens of windows, at any length, in nats a token, with its interval; and kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from posenc.hf.extend.book import Book
from posenc.hf.losses import token_losses
from posenc.hf.texts import Windows

# Student's t at 97.5 % for 1 … 30 degrees of freedom; beyond, that of the normal distribution.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """Losses of windows, or differences of them.

    Attributes:
        windows: nats a token, the mean of each window.
        seconds: that a window took; 0 for a difference.
    """

    windows: tuple[float, ...]
    seconds: float = 0.0

    @property
    def mean(self) -> float:
        """Nats a token."""
        return math.fsum(self.windows) / len(self.windows)

    @property
    def half(self) -> float | None:
        """Half of the 95 % interval of the mean over windows; None for a single window."""
        n = len(self.windows)
        if n == 1:
            return None
        spread = math.sqrt(math.fsum((one - self.mean) ** 2 for one in self.windows) / (n - 1))
        return (_T[n - 2] if n - 2 < len(_T) else 1.96) * spread / math.sqrt(n)

    def minus(self, other: Measured) -> Measured:
        """The differences of the same windows."""
        return Measured(tuple(a - b for a, b in zip(self.windows, other.windows, strict=True)))

    def text(self, *, signed: bool = False) -> str:
        """In words: the mean, and the interval where there is one."""
        mean = f"{self.mean:+.4f}" if signed else f"{self.mean:.4f}"
        return mean if self.half is None else f"{mean} ± {self.half:.4f}"


def measured(
    model: nn.Module,
    windows: Windows,
    length: int,
    book: Book,
    who: str,
    progress: Callable[[str], None] = lambda text: None,
) -> Measured:
    """The loss on the scored tokens with ``length`` tokens of context, themselves included.

    Args:
        model: on its device.
        windows: of the text.
        length: of each window, at most the longest.
        book: where what is known stands, and what is found is kept.
        who: which model this is, for the book.
        progress: is told of each window.
    """
    found: list[float] = []
    seconds = 0.0
    for end in windows.ends:
        key = f"{who} {windows.digest} {end} {length} {windows.last}"
        known = book.get(key)
        if known is None:
            start = time.perf_counter()
            loss = float(token_losses(model, windows.tokens[end - length : end], windows.last).mean())
            known = [loss, time.perf_counter() - start]
            book.put(key, known)
            progress(f"  window {len(found) + 1} of {len(windows.ends)}: {known[0]:.4f} nats, {known[1]:.1f} s")
        found.append(known[0])
        seconds += known[1] / len(windows.ends)
    return Measured(tuple(found), seconds)
