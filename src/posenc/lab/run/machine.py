"""What this machine can do (device, memory, torch.compile), its description for a report, and peak memory.

Only training is compiled. An evaluation runs one or two forwards per length, and each length would be compiled anew;
its cost is mostly attention, which has kernels of its own.
"""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from torch import nn

import posenc
from posenc.lab.config import Config, Model
from posenc.lab.models.decoder import Block


@cache
def check_compiler(device: str) -> None:
    """Raise a ValueError unless something small compiles and runs on the device; takes seconds."""
    try:
        total: float = torch.compile(_something)(torch.ones(8, device=device)).sum().item()
    except Exception as error:  # whatever a compiler that is missing or broken raises
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ValueError(
            f"--compile: torch.compile does not work on {device} here ({reason}): "
            "install the compiler it needs (C++ for processors, Triton and C for GPUs), or give --no-compile"
        ) from error
    if total != 16.0:
        raise ValueError(f"--compile: torch.compile computes wrongly on {device} here; give --no-compile")


def compile_blocks(model: nn.Module) -> None:
    """Compile each block's forward in place, so that no parameter gets another name; it happens at the first call."""
    # A block is one graph. Cutting it for DDP gains nothing, and some versions cannot where FlexAttention is in it.
    torch._dynamo.config.optimize_ddp = False
    torch.compiler.reset()  # what jobs before it have compiled in this process, of which there may be a few only
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        setattr(block, "forward", torch.compile(block.forward))  # noqa: B010  (mypy: a method is no attribute)


def _something(x: torch.Tensor) -> torch.Tensor:
    return x * 2


DECIDING_LIBRARIES = ("torch", "transformers", "tokenizers")  # a run is continued with the same versions alone
_BYTES = 16  # of a number in training: itself, its gradient and two averages


def check_machine(config: Config, *, elsewhere: bool, memory: int | None = None) -> None:
    """Raise a ValueError unless this machine can run a configuration.

    Args:
        config: with its device decided.
        elsewhere: whether another machine runs it, and checks it there.
        memory: bytes of this machine; default the number that the system reports.
    """
    device = config.machine.device
    if ":" in device:
        kind = device.partition(":")[0]
        raise ValueError(f"--device {device}: {kind} is needed; CUDA_VISIBLE_DEVICES chooses among several GPUs")
    if config.machine.shard:
        from posenc.lab.run.sharding import check_sharding  # which loads what nothing else needs

        check_sharding(config.machine)
    if config.training.compile and not elsewhere:
        check_compiler(device)
    if device == "cpu" and not elsewhere:
        _check_memory(config.model, _memory() if memory is None else memory)


def _check_memory(model: Model, there: int) -> None:
    """Raise a ValueError where the weights, gradients and averages of one model alone are more than there is."""
    needed = _BYTES * model.matrices
    if there and needed > there:
        raise ValueError(
            f"--dim {model.dim} and --layers {model.layers}: a model of {model.matrices:,} numbers takes "
            f"{needed / 2**30:,.0f} GiB for its training, and this machine has {there / 2**30:,.0f} GiB"
        )


def _memory() -> int:
    """Bytes of the machine; 0 where the system does not say."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0


def device_of(device: str, *, elsewhere: bool = False) -> str:
    """The requested device; ``auto`` is a GPU if there is one. A ValueError for a device that is missing here.

    ``elsewhere``: another machine is meant, so the device may be missing here.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if elsewhere:
        return device
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, ValueError):
        raise ValueError(f"--device {device}: not available here") from None
    return device


def describe_machine(device: str) -> dict[str, str]:
    """Processor, cores, memory, system and device; no name that would tell whose machine it is."""
    memory = _memory() / 2**30
    facts = {
        "processor": processor(),
        "cores": str(available_cores()),
        "memory": f"{memory:.0f} GiB" if memory else "unknown",
        "system": f"{platform.system()} {platform.machine()}",
    }
    if device.startswith("cuda") and torch.cuda.is_available():  # a cluster's machine may have one that this has not
        facts["device"] = torch.cuda.get_device_name()
    return facts


def describe_versions() -> dict[str, str]:
    """Versions of everything that takes part, for a report."""
    python = {"posenc": posenc.__version__, "python": platform.python_version()}
    return {**python, **library_versions(), **_installed("accelerate", "numpy")}


def library_versions() -> dict[str, str]:
    """Versions of the libraries that decide the numbers of a run: they are part of its identity."""
    return {"torch": torch.__version__, **_installed(*DECIDING_LIBRARIES[1:])}


def _installed(*packages: str) -> dict[str, str]:
    versions = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def available_cores() -> int:
    """Cores this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def reset_peak_memory(device: torch.device) -> None:
    """Start a new maximum where the system can; elsewhere the maximum covers the process's whole life."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_memory(device: torch.device) -> int:
    """Most bytes in use since `reset_peak_memory`: of the GPU, else of the process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))
    except (OSError, StopIteration):
        import resource  # which not every system has

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def processor() -> str:
    """The processor's model, as the system names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
