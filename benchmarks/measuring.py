"""What the benchmarks share: interleaved timing, peak memory of one call, and the header of a result."""

from __future__ import annotations

import ctypes
import gc
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

Run = Callable[[], object]


def interleaved(candidates: Mapping[str, Run], rounds: int) -> dict[str, list[float]]:
    """Seconds of each candidate in each round; one warm-up round is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 1):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratios(seconds: Mapping[str, list[float]], base: str) -> dict[str, float]:
    """The median over rounds of each candidate's time over the base's in the same round."""
    return {
        name: statistics.median(a / b for a, b in zip(times, seconds[base], strict=True))
        for name, times in seconds.items()
    }


def peak_growth(run: Run) -> float:
    """MiB by which the process's peak resident memory rises above its level before one call (Linux)."""
    run()  # thread pools, code pages
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # start the peak anew
    before = _status("VmRSS")
    run()
    return (_status("VmHWM") - before) / 1024


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(key + ":"))


def header(title: str) -> str:
    """Command, versions, machine and threads, as the first lines of a result."""
    command = "python " + " ".join([f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    return (
        f"# {title}\n\n"
        f"- command: `{command}`\n"
        f"- torch {torch.__version__}, Python {platform.python_version()}, threads {torch.get_num_threads()}\n"
        f"- machine: {_processor()}\n"
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                flags = " with AMX" if "amx_bf16" in info.read_text() else ""
                return line.split(":", 1)[1].strip() + flags
    return platform.processor() or platform.machine()
