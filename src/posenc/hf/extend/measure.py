"""Measurements of a model before and after an extension: loss on the last tokens of windows, decoding with a cache.

Losses are in nats per token, with a confidence interval. Decoding token by token must give the logits of one call.
Numbers are kept in a `MeasurementLog`, so that a run that was killed measures nothing twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from posenc.evaluation.likelihood import Windows, call_model, device_of, last_logits, token_losses
from posenc.evaluation.log import MeasurementLog
from posenc.evaluation.statistics import mean_interval
from posenc.hf.extend.estimate import Workload

EXACT = 1e-3  # of the largest logit: the gap between float32 kernels of different shapes
_NOISE = 2.0  # times the gap of the model before, which another run of the same model can reach
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
        """The largest gap that rounding explains, by the gap of the model before and by its dtype."""
        rounding = torch.finfo(getattr(torch, self.dtype)).eps
        return max(EXACT, _NOISE * self.before, _ROUNDING * rounding)

    @property
    def equal(self) -> bool:
        """Whether the gap is no larger than rounding explains."""
        return self.after <= self.limit

    def sentence(self) -> str:
        """The measurement in words, with a reason where there is one."""
        gaps = f"{self.after:.1e} of the largest logit, {self.before:.1e} before the extension, in {self.dtype}"
        if self.equal:
            return f"Decoding with a cache equals one call at {self.tokens:,} tokens up to rounding ({gaps})."
        reason = ""
        if self.length_dependent:
            reason = ": its frequencies depend on the length, and cached keys keep the frequencies of a shorter text"
        return f"Decoding with a cache differs from one call at {self.tokens:,} tokens ({gaps}){reason}."


@torch.no_grad()
def decoding_gap(model: nn.Module, tokens: Tensor, steps: int) -> float:
    """The largest difference of a logit, over the largest logit, in the last ``steps`` tokens of a text."""
    was_training = model.training
    model.eval()
    ids = tokens[None].to(device_of(model))
    try:
        at_once = last_logits(model, ids, steps)
        out = call_model(model, ids[:, :-steps], 1, use_cache=True)
        steps_logits = []
        for n in range(ids.shape[1] - steps, ids.shape[1]):
            out = call_model(model, ids[:, n : n + 1], 1, use_cache=True, after=out)
            steps_logits.append(out.logits[:, -1:])
    finally:
        model.train(was_training)
    gap = (torch.cat(steps_logits, 1) - at_once).float().abs().max() / at_once.float().abs().max().clamp(min=1)
    return float(gap)


@dataclass(frozen=True)
class WindowLosses:
    """Losses of the windows of a text, or differences of two such losses.

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
    def half_interval(self) -> float | None:
        """Half of the 95 % interval of the mean over windows; None for a single window."""
        return None if len(self.windows) == 1 else mean_interval(self.windows).half_width

    def minus(self, other: WindowLosses) -> WindowLosses:
        """The differences of the same windows."""
        return WindowLosses(tuple(a - b for a, b in zip(self.windows, other.windows, strict=True)))

    def text(self, *, signed: bool = False) -> str:
        """The mean as text, with the interval where there is one."""
        mean = f"{self.mean:+.4f}" if signed else f"{self.mean:.4f}"
        return mean if self.half_interval is None else f"{mean} ± {self.half_interval:.4f}"


def measure_losses(
    model: nn.Module,
    windows: Windows,
    length: int,
    cache: MeasurementLog,
    label: str,
    progress: Callable[[str], None] = lambda text: None,
    workload: Workload | None = None,
) -> WindowLosses:
    """Measure the loss on the scored tokens of windows of ``length`` tokens.

    Args:
        model: on its device.
        windows: of the text.
        length: of each window, at most the longest.
        cache: of earlier measurements, to which new ones are added.
        label: names the state of the model in the cache.
        progress: is called with a line of text for each window.
        workload: is told of each window, and estimates the time that is left.
    """
    losses: list[float] = []
    seconds = 0.0
    for end in windows.ends:
        key = f"{label} {windows.digest} {end} {length} {windows.last}"
        known = cache.get(key)
        if workload is not None and known is not None:
            workload.done(length, None)
        if known is None:
            start = time.perf_counter()
            loss = float(token_losses(model, windows.tokens[end - length : end], windows.last).mean())
            known = [loss, time.perf_counter() - start]
            cache.put(key, known)
            left = ""
            if workload is not None:
                workload.done(length, known[1])
                left = f"; {workload.time_left()}"
            progress(
                f"  window {len(losses) + 1} of {len(windows.ends)}, {length:,} tokens: {known[0]:.4f} nats, "
                f"{known[1]:.1f} s{left}"
            )
        losses.append(known[0])
        seconds += known[1] / len(windows.ends)
    return WindowLosses(tuple(losses), seconds)
