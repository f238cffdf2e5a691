"""Before a run is resumed: do the first losses of its cheapest job come out as they did when it began?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import Accelerator
from rich.console import Console

from posenc.lab.plugins import import_allowlist
from posenc.lab.run.checkpoint import FirstLosses, read_first_losses
from posenc.lab.run.job import PROTOCOL, Job, job_folders, read_job
from posenc.lab.run.machine import processor
from posenc.lab.run.planning import PreparedRun
from posenc.lab.run.run_job import recompute_pretrained_losses
from posenc.lab.run.train import make_accelerator, recompute_first_losses
from posenc.lab.specs import plugin_hashes

SAME_MACHINE, OTHER_MACHINE = 1e-6, 1e-3  # how much a loss may differ, absolute below 1 and relative above


def check_reproduction(prepared: PreparedRun, console: Console, accelerator: Accelerator | None = None) -> None:
    """Recompute the first losses of the cheapest job of a run that is resumed, and compare.

    On the processor model and with the thread count of the first computation they must agree within 1e-6; elsewhere,
    on a GPU and among several processes within 1e-3, which is printed. A run that has no losses yet passes.

    Args:
        prepared: the run, with its folder and data.
        console: where a note is printed.
        accelerator: of this rank under torchrun, where all ranks call this together; default a new one.

    Raises:
        ValueError: they differ by more; it names the job, the step and both losses.
    """
    cheapest = _cheapest_job(prepared.out)
    if cheapest is None:
        return
    job, recorded = cheapest
    machine = job.config.machine
    if machine.device.startswith("cuda") and not torch.cuda.is_available():
        console.print(f"{job.name}: its first losses are not recomputed, for there is no {machine.device} here.")
        return
    threads = torch.get_num_threads()
    try:
        losses = _recompute(prepared, job, accelerator)
    finally:
        torch.set_num_threads(threads)
    here = (processor(), machine.device, machine.threads)
    there = (recorded.processor, recorded.device, recorded.threads)
    exact = here == there and machine.device == "cpu" and machine.processes == 1
    _compare(prepared.out, job, recorded.losses, losses, SAME_MACHINE if exact else OTHER_MACHINE)
    if not exact:
        reason = f"begun on {recorded.processor}" if here != there else "rounding is not fixed on this device"
        console.print(
            f"The first losses of {job.name} agree with those recorded within {OTHER_MACHINE:g} ({reason}).",
            style="dim",
        )


def _recompute(prepared: PreparedRun, job: Job, accelerator: Accelerator | None) -> list[float]:
    accelerator = make_accelerator(job.config) if accelerator is None else accelerator
    if job.config.options.pretrained:
        return recompute_pretrained_losses(job, prepared.data, accelerator.device)
    return recompute_first_losses(job, prepared.data, accelerator)


def _cheapest_job(out: Path) -> tuple[Job, FirstLosses] | None:
    """The job whose first losses took the least time, among those that can be computed from nothing."""
    cheapest: tuple[Job, FirstLosses] | None = None
    for folder in job_folders(out):
        recorded = read_first_losses(folder)
        if recorded is None or (cheapest and recorded.seconds >= cheapest[1].seconds):
            continue
        job = read_job(folder)
        importable = set(job.code) <= import_allowlist().names and plugin_hashes(job.code) == job.code
        if not job.base and job.protocol == PROTOCOL and importable:
            cheapest = job, recorded
    return cheapest


def _compare(out: Path, job: Job, recorded: Sequence[float], losses: Sequence[float], tolerance: float) -> None:
    if len(recorded) != len(losses):
        raise ValueError(f"{out}: {job.name} has {len(losses)} first losses now, {len(recorded)} are recorded")
    for step, (before, now) in enumerate(zip(recorded, losses, strict=True), 1):
        if not math.isclose(before, now, rel_tol=tolerance, abs_tol=tolerance):
            raise ValueError(
                f"{out}: the run cannot be resumed, because posenc now computes other numbers: {job.name} had loss "
                f"{before:.8g} at step {step} when it began, and has {now:.8g} now (tolerance {tolerance:g}). What is "
                "finished stays as it is: resume with the version that began the run, or choose another --out"
            )
