"""The ranks of torchrun train each job together, one job after another; rank 0 writes and prints."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from accelerate import Accelerator, PartialState
from accelerate.utils import broadcast_object_list

from posenc.lab.runners.pending import Pending
from posenc.lab.worker import run_job


def meet(cpu: bool) -> None:
    """Meet the other ranks. They wait for each other up to a day: rank 0 alone measures and reports."""
    PartialState(cpu=cpu, timeout=timedelta(days=1))


def run_distributed(
    pending: list[Pending], accelerator: Accelerator, *, on_poll: Callable[[list[str]], None]
) -> list[str]:
    """Run jobs on all ranks together; returns one line for each that failed, which it does on all ranks alike."""
    failures = []
    for work in pending:
        try:
            run_job(work.folder, work.rows, accelerator=accelerator, on_progress=partial(on_poll, [work.name]))
        except ValueError as error:
            failures.append(f"{work.name}: {error}")
        on_poll([])
    return failures


def first_decides(value: object) -> object:
    """Hand what rank 0 has to all ranks."""
    shared = [value]
    broadcast_object_list(shared)
    return shared[0]
