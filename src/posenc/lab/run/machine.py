"""What this machine is (device, cores, memory, versions), for a report and for a run's identity."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import torch

import posenc
from posenc.evaluation.log import processor

DECIDING_LIBRARIES = ("torch", "transformers", "tokenizers")  # a run is continued with the same versions alone


def device_of(device: str, *, elsewhere: bool = False) -> str:
    """The requested device; ``auto`` is a GPU if there is one. A ValueError for a device that is missing here.

    ``elsewhere``: another machine is meant, so the device may be missing here.
    """
    if ":" in device:
        kind = device.partition(":")[0]
        raise ValueError(f"--device {device}: {kind} is needed; CUDA_VISIBLE_DEVICES chooses among several GPUs")
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
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    facts = {
        "processor": processor(),
        "cores": str(available_cores()),
        "memory": f"{pages / 2**30:.0f} GiB" if pages else "unknown",
        "system": f"{platform.system()} {platform.machine()}",
    }
    if device.startswith("cuda") and torch.cuda.is_available():  # a cluster's machines may have a GPU that this lacks
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
