"""Time and memory of single calls: interleaved rounds in one process, so that load hits all alike, and peak memory."""

from __future__ import annotations

import gc
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from scipy.stats import binom
from torch.profiler import ProfilerActivity, profile

Run = Callable[[], object]
Rounds = dict[int, float]  # seconds of a call by the number of the round
LEAST = 2e-3  # seconds that a timing lasts: shorter calls are repeated, so that no clock or cold cache decides
REPEATS, FEW, ROUNDS = 64, 3, 100
PATIENCE = 4  # a call that takes this many times its seconds is timed once, others at least FEW times
LEVEL = 0.95  # of intervals
CPU = torch.device("cpu")


class Candidate(NamedTuple):
    """A call that was made before, and how long it takes, about."""

    run: Run
    seconds: float


class Ratio(NamedTuple):
    """A call's time divided by the base's time in the same round: median, and an interval for it."""

    median: float
    low: float
    high: float


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished its queued work."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def seconds_of(run: Run, device: torch.device = CPU, repeats: int = 1) -> float:
    """Seconds of a call, mean over ``repeats``."""
    wait_for(device)
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    wait_for(device)
    return (time.perf_counter() - start) / repeats


def interleaved(
    candidates: Mapping[str, Candidate], base: str | None = None, *, seconds: float = math.inf, rounds: int = ROUNDS,
    device: torch.device = CPU,
) -> dict[str, Rounds]:  # fmt: skip
    """Time all candidates in rounds whose order alternates.

    Args:
        candidates: by name.
        base: the name of the one that the others are compared with; it runs in every round.
        seconds: after which a candidate sits out, at the earliest after a few rounds, or one if calls are very slow.
        rounds: after which all are done.
        device: where they run.
    """
    repeats = {name: min(REPEATS, max(1, math.ceil(LEAST / max(c.seconds, 1e-9)))) for name, c in candidates.items()}
    taken: dict[str, Rounds] = {name: {} for name in candidates}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn in range(rounds):
            going = [name for name in candidates if _goes_on(taken[name], repeats[name], seconds)]
            if not going or (going == [base] and len(candidates) > 1):
                break
            names = [name for name in candidates if name in going or name == base]
            for name in reversed(names) if turn % 2 else names:
                taken[name][turn] = seconds_of(candidates[name].run, device, repeats[name])
    finally:
        if collecting:
            gc.enable()
    return taken


def relative(rounds: Rounds, base: Rounds) -> Ratio:
    """A call's time over the base's, round by round.

    The interval is between order statistics, which needs no distribution; with fewer than six rounds it is the whole
    range, and holds the median less often than `LEVEL`.
    """
    ratios = sorted(took / base[turn] for turn, took in rounds.items())
    rank = max(1, int(binom.ppf((1 - LEVEL) / 2, len(ratios), 0.5)))
    return Ratio(statistics.median(ratios), ratios[rank - 1], ratios[-rank])


def _goes_on(rounds: Rounds, repeats: int, seconds: float) -> bool:
    if not rounds:
        return True
    spent = repeats * sum(rounds.values())
    return spent < seconds or (len(rounds) < FEW and spent / len(rounds) <= PATIENCE * seconds)


class CallMemory(NamedTuple):
    """What one call needed."""

    bytes: int | None  # of tensors at the same time, beyond those before the call; None where nobody can tell
    events: int  # that the record of it has


def memory_of(run: Callable[[], object], device: torch.device) -> CallMemory:
    """Run once and return the peak memory of its tensors, without what the allocator caches.

    On a processor PyTorch's profiler records every piece of memory that is taken or given back. On an NVIDIA GPU the
    allocator keeps count.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        torch.cuda.synchronize(device)
        return CallMemory(torch.cuda.max_memory_allocated(device) - before, 0)
    if device.type != "cpu":
        run()
        return CallMemory(None, 0)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would write two lines on stderr each time
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    if profiled.profiler is None or profiled.profiler.kineto_results is None:
        raise RuntimeError("PyTorch's profiler left no record")
    events = profiled.profiler.kineto_results.events()
    taken = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    return CallMemory(max(itertools.accumulate((size for _, size in taken), initial=0)), len(events))
