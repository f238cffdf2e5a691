"""SLURM, through `submitit`: one SLURM job for each training.

The folder of the run must be on a file system that all machines share. A job that is preempted or reaches its time
limit is queued again and continues from its checkpoint.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import submitit

from posenc.lab.config import number
from posenc.lab.execute.executor import Executor, Resources, run_work, thread_variables
from posenc.lab.run.job import Work


class Submission:
    """What a machine of the cluster runs; pickled by submitit."""

    def __call__(self, work: Work) -> None:
        """Run one job."""
        run_work(work)

    def checkpoint(self, work: Work) -> submitit.helpers.DelayedSubmission:
        """What to queue when the time is up: the same job, which continues from the checkpoint in its folder."""
        return submitit.helpers.DelayedSubmission(self, work)


@dataclass
class Slurm(Executor):
    """Queues jobs through submitit."""

    name: ClassVar[str] = "slurm"
    slurm_cluster: str = number(
        "slurm", "slurm; local runs the same jobs as processes of this machine, debug in this process.",
        choices=("slurm", "local", "debug"),
    )  # fmt: skip
    slurm_partition: str = number("", "Partition of the cluster.")
    slurm_timeout: int = number(240, "Minutes that a job may run before it is queued again.", least=1, most=10**6)

    def start(self, resources: Resources) -> None:
        """Find the cluster."""
        # A new folder, because submitit reads pickles from it: it may hold no other pickles.
        folder = resources.folder / "slurm"
        folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=folder, prefix=time.strftime("%Y%m%d-%H%M%S-")))
        try:
            self.executor = submitit.AutoExecutor(folder=folder, cluster=self.slurm_cluster)
        except RuntimeError as error:
            raise ValueError(
                f"--executor slurm: {error} (--slurm-cluster local runs the jobs on this machine)"
            ) from error
        variables = {**thread_variables(resources.threads), "PYTHONSAFEPATH": "1"}
        self.executor.update_parameters(
            name="posenc",
            timeout_min=self.slurm_timeout,
            cpus_per_task=resources.threads,
            gpus_per_node=min(1, resources.gpus),
            slurm_setup=["export " + " ".join(f"{name}={value}" for name, value in variables.items())],
        )
        if self.slurm_partition:
            self.executor.update_parameters(slurm_partition=self.slurm_partition)
        self.jobs: list[Any] = []

    def submit(self, work: Work) -> Any:
        """Queue a job."""
        with _safe_path():
            job = self.executor.submit(Submission(), work.elsewhere())
        self.jobs.append(job)
        return job

    def stop(self) -> None:
        """Cancel the jobs that have not ended."""
        for job in self.jobs:
            if not job.done():
                job.cancel(check=False)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Processes that are started import nothing from the current folder just because it is the current one."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before
