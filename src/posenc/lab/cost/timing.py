"""Calls timed side by side: rounds over all of them in one process, so that the machine's load meets all alike."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

Run = Callable[[], object]
LEAST = 2e-3  # seconds that a timing lasts: shorter calls are repeated, so that no clock or cold cache decides
REPEATS, FEW, ROUNDS = 64, 3, 100
PATIENCE = 4  # a call that takes this many times its seconds is timed once, others at least FEW times


class Timed(NamedTuple):
    """A call over its rounds."""

    milliseconds: float  # median
    relative: float | None  # to the base of the same round, median; None without a base
    low: float | None  # quartiles of that ratio
    high: float | None
    rounds: int
    quickest: float  # milliseconds: what a busy machine has the least part in


class Candidate(NamedTuple):
    """A call, and how long it takes, about."""

    run: Run
    seconds: float


def wait_for(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def once(run: Run, device: torch.device, repeats: int = 1) -> float:
    """Seconds of a call, mean over ``repeats``."""
    wait_for(device)
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    wait_for(device)
    return (time.perf_counter() - start) / repeats


def interleaved(
    candidates: Mapping[str, Candidate], base: str, seconds: float, device: torch.device
) -> dict[str, Timed]:
    """Time all candidates, which are warm, in rounds whose order turns round each time.

    Args:
        candidates: by name.
        base: the name of the one that the others are compared with; it runs in every round.
        seconds: after which a candidate sits out, at the earliest after a few rounds, or one if calls are very slow.
        device: where they run.
    """
    repeats = {name: min(REPEATS, max(1, math.ceil(LEAST / max(c.seconds, 1e-9)))) for name, c in candidates.items()}
    taken: dict[str, dict[int, float]] = {name: {} for name in candidates}  # by round
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn in range(ROUNDS):
            going = [name for name in candidates if _goes_on(taken[name], repeats[name], seconds)]
            if not going or (going == [base] and len(candidates) > 1):
                break
            names = [name for name in candidates if name in going or name == base]
            for name in reversed(names) if turn % 2 else names:
                taken[name][turn] = once(candidates[name].run, device, repeats[name])
    finally:
        if collecting:
            gc.enable()
    return {name: _summary(own, taken.get(base)) for name, own in taken.items()}


def _goes_on(own: Mapping[int, float], repeats: int, seconds: float) -> bool:
    if not own:
        return True
    spent = repeats * sum(own.values())
    return spent < seconds or (len(own) < FEW and spent / len(own) <= PATIENCE * seconds)


def _summary(own: Mapping[int, float], base: Mapping[int, float] | None) -> Timed:
    middle, least, rounds = 1000 * statistics.median(own.values()), 1000 * min(own.values()), len(own)
    if base is None:
        return Timed(middle, None, None, None, rounds, least)
    ratios = [took / base[turn] for turn, took in own.items()]
    if rounds == 1:
        return Timed(middle, ratios[0], ratios[0], ratios[0], 1, least)
    low, relative, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Timed(middle, relative, low, high, rounds, least)
