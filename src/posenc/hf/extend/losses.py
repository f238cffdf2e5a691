"""The loss of a model on the last tokens of windows, at any length, in nats a token."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from posenc.hf.extend.book import Book
from posenc.hf.extend.texts import Windows

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


def measured(model: nn.Module, windows: Windows, length: int, book: Book, who: str) -> Measured:
    """The loss on the scored tokens with ``length`` tokens of context, themselves included.

    Args:
        model: on its device.
        windows: of the text.
        length: of each window, at most the longest.
        book: where what is known stands, and what is found is kept.
        who: which model this is, for the book.
    """
    found, seconds = [], 0.0
    for end in windows.ends:
        key = f"{who} {windows.digest} {end} {length} {windows.last}"
        known = book.get(key)
        if known is None:
            start = time.perf_counter()
            loss = float(token_losses(model, windows.tokens[end - length : end], windows.last).mean())
            known = [loss, time.perf_counter() - start]
            book.put(key, known)
        found.append(known[0])
        seconds += known[1] / len(windows.ends)
    return Measured(tuple(found), seconds)


@torch.no_grad()
def token_losses(model: nn.Module, tokens: Tensor, last: int) -> Tensor:
    """Losses ``(last,)`` of the last tokens of a text, each given all before it."""
    was, device = model.training, device_of(model)
    model.eval()
    try:
        logits = last_logits(model, tokens[None].to(device), last + 1)[0, :-1]
    finally:
        model.train(was)
    return functional.cross_entropy(logits.float(), tokens[-last:].to(device), reduction="none").cpu()


def last_logits(model: nn.Module, tokens: Tensor, count: int) -> Tensor:
    """Logits ``(batch, count, vocabulary)`` after the last tokens ``(batch, tokens)``."""
    logits: Tensor = called(model, tokens, count, use_cache=False).logits
    return logits[:, -count:]


def called(model: nn.Module, tokens: Tensor, count: int, *, use_cache: bool, cache: Any = None) -> Any:
    """What a model gives, with no more logits than the last ones where it can leave out others."""
    keep = {"logits_to_keep": count} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    return model(input_ids=tokens, past_key_values=cache, use_cache=use_cache, **keep)


def device_of(model: nn.Module) -> torch.device:
    """Where its inputs go."""
    return next(model.parameters()).device


def evenly(tokens: Tensor, length: int, count: int) -> Sequence[Tensor]:
    """Pieces of ``length`` tokens, evenly spread over a text.

    Raises:
        ValueError: for a text that is shorter than one.
    """
    if len(tokens) < length:
        raise ValueError(
            f"text: searches need pieces of {length:,} tokens beside what is scored, which leaves {len(tokens):,}: "
            "give a longer text"
        )
    gaps = max(1, count - 1)
    starts = sorted({(len(tokens) - length) * n // gaps for n in range(count)})
    return [tokens[start : start + length] for start in starts]
