"""SLURM, through `submitit`: one SLURM job for each training.

The folder of the run must lie on a file system that all machines share. A job that is preempted or runs into its
time limit is queued again and goes on from its checkpoint.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import submitit

from posenc.lab.execute.work import Needs
from posenc.lab.run.job import Work

CLUSTERS = ("slurm", "local", "debug")


@dataclass(frozen=True)
class SlurmOptions:
    """Where and how long. ``local`` runs the same jobs as processes of this machine, ``debug`` in this process."""

    cluster: str = "slurm"
    partition: str | None = None
    timeout: int = 240  # minutes a job may run before it is queued again


class Submission:
    """What a cluster's machine runs; pickled by submitit."""

    def __init__(self, function: Callable[[Work], None]) -> None:
        self.function = function

    def __call__(self, work: Work) -> None:
        """Run one job."""
        self.function(work)

    def checkpoint(self, work: Work) -> submitit.helpers.DelayedSubmission:
        """What to queue when the time is up: the same again, which continues from the checkpoint in the folder."""
        return submitit.helpers.DelayedSubmission(self, work)


class Slurm:
    """Hands jobs to submitit.

    Args:
        options: cluster, partition, time limit.
        folder: for submitit's scripts and logs.
        needs: cores and GPUs of each job.
    """

    def __init__(self, options: SlurmOptions, folder: Path, needs: Needs) -> None:
        # A folder of its own: submitit reads back pickles, and none but those of these jobs may lie there.
        folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=folder, prefix=time.strftime("%Y%m%d-%H%M%S-")))
        try:
            self.executor = submitit.AutoExecutor(folder=folder, cluster=options.cluster)
        except RuntimeError as error:
            raise ValueError(
                f"--runner slurm: {error} (--slurm-cluster local runs the jobs on this machine)"
            ) from error
        self.executor.update_parameters(
            name="posenc",
            timeout_min=options.timeout,
            cpus_per_task=needs.threads,
            gpus_per_node=min(1, needs.gpus),
            slurm_setup=[  # before torch is imported
                f"export OMP_NUM_THREADS={needs.threads} MKL_NUM_THREADS={needs.threads} PYTHONSAFEPATH=1"
            ],
        )
        if options.partition:
            self.executor.update_parameters(slurm_partition=options.partition)
        self.jobs: list[Any] = []

    def submit(self, function: Callable[[Work], None], work: Work, /) -> Any:
        """Queue a job."""
        with _safe_path():
            job = self.executor.submit(Submission(function), work.elsewhere())
        self.jobs.append(job)
        return job

    def shutdown(self) -> None:
        """Cancel what has not ended."""
        for job in self.jobs:
            if not job.done():
                job.cancel(check=False)


@contextmanager
def _safe_path() -> Iterator[None]:
    """The processes that are started import nothing from the current folder because it is the current one."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before
