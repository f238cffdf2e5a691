"""Measurements of a model before and after: loss on the last tokens of windows, and decoding with a cache.

Losses are in nats per token, with an interval, and kept in a `result_cache`. Decoding token by token must give the
logits of one call.

Measured numbers in a file of JSON lines, so that a run that was killed measures nothing twice.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from posenc.hf.text_loss import Windows, called, device_of, last_logits, token_losses

EXACT = 1e-3  # of the largest logit: a gap that float32 kernels of other shapes leave
_GROWN = 2.0  # times the gap of the model before, which another run of the same model can reach
_ROUNDING = 4  # units in the last place of the model's dtype, of the largest logit


@dataclass(frozen=True)
class Decoding:
    """The gap between decoding with a cache and one call, as a share of the largest logit.

    Attributes:
        tokens: at which it was measured.
        before: of the model as it was.
        after: of the extended model.
        dtype: of the model, as "bfloat16".
        length_dependent: whether the extended model's frequencies or distances depend on the length of the text.
    """

    tokens: int
    before: float
    after: float
    dtype: str
    length_dependent: bool

    @property
    def limit(self) -> float:
        """The largest gap that rounding alone explains: of the model before, and of its dtype."""
        rounding = torch.finfo(getattr(torch, self.dtype)).eps
        return max(EXACT, _GROWN * self.before, _ROUNDING * rounding)

    @property
    def equal(self) -> bool:
        """Whether the gap is no larger than rounding explains."""
        return self.after <= self.limit

    def sentence(self) -> str:
        """What was measured, and a reason only where there is one."""
        gaps = f"{self.after:.1e} of the largest logit, {self.before:.1e} before the extension, in {self.dtype}"
        if self.equal:
            return f"Decoding with a cache equals one call at {self.tokens:,} tokens up to rounding ({gaps})."
        reason = ""
        if self.length_dependent:
            reason = ": its frequencies depend on the length, and cached keys keep those of a shorter text"
        return f"Decoding with a cache differs from one call at {self.tokens:,} tokens ({gaps}){reason}."


@torch.no_grad()
def decoding_gap(model: nn.Module, tokens: Tensor, steps: int) -> float:
    """The largest difference of a logit, over the largest logit, in the last ``steps`` tokens of a text."""
    was = model.training
    model.eval()
    ids = tokens[None].to(device_of(model))
    try:
        whole = last_logits(model, ids, steps)
        out = called(model, ids[:, :-steps], 1, use_cache=True)
        steps_logits = []
        for n in range(ids.shape[1] - steps, ids.shape[1]):
            out = called(model, ids[:, n : n + 1], 1, use_cache=True, cache=out.past_key_values)
            steps_logits.append(out.logits[:, -1:])
    finally:
        model.train(was)
    gap = (torch.cat(steps_logits, 1) - whole).float().abs().max() / whole.float().abs().max().clamp(min=1)
    return float(gap)


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
    book: ResultCache,
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


class ResultCache:
    """Numbers by a key that says all that decides them.

    Args:
        path: of the file; None: nothing is kept.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.known: dict[str, list[float]] = {}
        if path is None or not path.exists():
            return
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            record = json.loads(line)
            self.known[record["key"]] = record["numbers"]
        if whole != content:  # killed in the midst of a line
            with path.open("r+b") as file:
                file.truncate(len(whole))

    def get(self, key: str) -> list[float] | None:
        """What is known."""
        return self.known.get(key)

    def put(self, key: str, numbers: list[float]) -> None:
        """Keep numbers."""
        self.known[key] = numbers
        if self.path is not None:
            with self.path.open("ab") as file:
                file.write(json.dumps({"key": key, "numbers": numbers}).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())


def fingerprint(model: nn.Module) -> str:
    """What tells one model's weights from another's: names, shapes and some numbers of each parameter."""
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        some = weight.detach().flatten()[:: max(1, weight.numel() // 64)].float().cpu()
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode() + some.numpy().tobytes())
    return digest.hexdigest()[:16]
