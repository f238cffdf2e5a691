"""The ranks of torchrun: all of them run the same command and compute each job together.

Rank 0 alone reads what was asked for, writes files and prints, so what it prepares, or the error that it meets, must
reach the other ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import ClassVar, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from posenc.lab.execute import ranks
from posenc.lab.execute.executor import Executor, Resources
from posenc.lab.run.job import Work
from posenc.lab.run.run_job import run_job

T = TypeVar("T")


@dataclass
class Torchrun(Executor):
    """Runs each job in this process, within `submit`, together with the other ranks if there are any."""

    name: ClassVar[str] = "torchrun"
    has_queue: ClassVar[bool] = False

    @property
    def elsewhere(self) -> bool:
        """Never: each rank checks its own device."""
        return False

    def start(self, resources: Resources) -> None:
        """Note where progress is shown."""
        self.progress = resources.progress

    def submit(self, work: Work) -> Future[None]:
        """Run a job to its end."""
        future: Future[None] = Future()
        try:
            progress = partial(self.progress, [work.name])
            run_job(work.folder, work.rows, trackers=work.trackers, on_progress=progress)
            future.set_result(None)
        except ValueError as error:  # of this job; any other error ends the command on all ranks
            future.set_exception(error)
        return future


def join(device: str) -> None:
    """Join the other ranks, if there are any, before anything else uses the device."""
    if ranks.count() > 1:
        cpu = device == "cpu" or not torch.cuda.is_available()
        PartialState(cpu=cpu, timeout=timedelta(days=1))  # ranks wait while rank 0 alone measures and reports


def from_first(make: Callable[[], T]) -> T:
    """What ``make`` returns on rank 0, or the ValueError that it raises there, on all ranks."""
    if ranks.count() == 1:
        return make()
    outcome: T | ValueError | None = None
    if ranks.is_first():
        try:
            outcome = make()
        except ValueError as error:
            outcome = error
    shared = [outcome]
    broadcast_object_list(shared)
    if isinstance(shared[0], ValueError):
        raise shared[0]
    return shared[0]  # type: ignore[return-value]


def wait() -> None:
    """Wait until all ranks are here."""
    if ranks.count() > 1:
        PartialState().wait_for_everyone()
