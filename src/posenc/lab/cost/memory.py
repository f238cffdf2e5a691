"""Memory of one call, and how much of it there is on a device."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile


class Held(NamedTuple):
    """What one call needed."""

    bytes: int | None  # of tensors at the same time, beyond those before the call; None where nobody can tell
    events: int  # that the record of it has


def memory_of(run: Callable[[], object], device: torch.device) -> Held:
    """Run once, and find what its tensors hold at most at the same time, whatever the allocator keeps besides.

    On a processor PyTorch's profiler records every piece of memory that is taken or given back. On an NVIDIA GPU the
    allocator keeps count.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        torch.cuda.synchronize(device)
        return Held(torch.cuda.max_memory_allocated(device) - before, 0)
    if device.type != "cpu":
        run()
        return Held(None, 0)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would write two lines on stderr each time
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    if profiled.profiler is None or profiled.profiler.kineto_results is None:
        raise RuntimeError("PyTorch's profiler left no record")
    events = profiled.profiler.kineto_results.events()
    taken = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    return Held(max(itertools.accumulate((size for _, size in taken), initial=0)), len(events))


def free_memory(device: torch.device) -> int | None:
    """Bytes that new tensors could take; None where the system does not tell."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    if device.type != "cpu":
        return None
    known = [size for size in (_system(), _control_group()) if size is not None]
    return min(known, default=None)


def out_of_memory(error: RuntimeError) -> bool:
    """Whether an error says that an allocation failed; that of the processor's allocator has no class of its own."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def _system() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:")))
    except (OSError, StopIteration):
        pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
        return pages * os.sysconf("SC_PAGE_SIZE") if pages > 0 else None


def _control_group() -> int | None:
    """What a container's limit leaves; files that the system only keeps for later count as free."""
    root = Path("/sys/fs/cgroup")
    try:
        most, now = (root / "memory.max").read_text().strip(), int((root / "memory.current").read_text())
        lines = (root / "memory.stat").read_text().splitlines()
    except OSError:
        return None
    files = next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
    return None if most == "max" else max(0, int(most) - now + files)
