"""SLURM, through `submitit`: one SLURM job for each training.

The folder of the run must be on a file system that all machines share. A job that is preempted or reaches its time
limit is queued again and continues from its checkpoint.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import submitit

from posenc.lab.execute.executor import Executor, Resources, run_work, thread_variables
from posenc.lab.run.job import Work

CLUSTERS = ("slurm", "local", "debug")


class Submission:
    """What a machine of the cluster runs; pickled by submitit."""

    def __call__(self, work: Work) -> None:
        """Run one job."""
        run_work(work)

    def checkpoint(self, work: Work) -> submitit.helpers.DelayedSubmission:
        """What to queue when the time is up: the same job, which continues from the checkpoint in its folder."""
        return submitit.helpers.DelayedSubmission(self, work)


class Slurm(Executor):
    """Queues jobs through submitit.

    Args:
        cluster: slurm; local runs the same jobs as processes of this machine, debug in this process.
        partition: of the cluster.
        timeout: minutes that a job may run before it is queued again.
    """

    name = "slurm"

    def __init__(self, cluster: str = "slurm", partition: str = "", timeout: int = 240) -> None:
        if cluster not in CLUSTERS:
            raise ValueError(f"--slurm-cluster {cluster}: {' or '.join(CLUSTERS)} is needed")
        if timeout < 1:
            raise ValueError(f"--slurm-timeout {timeout}: at least 1 is needed")
        self.cluster, self.partition, self.timeout = cluster, partition, timeout
        self.jobs: list[Any] = []

    def start(self, resources: Resources) -> None:
        """Find the cluster."""
        # A new folder, because submitit reads pickles from it: it may hold no other pickles.
        folder = resources.folder / "slurm"
        folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=folder, prefix=time.strftime("%Y%m%d-%H%M%S-")))
        try:
            self.executor = submitit.AutoExecutor(folder=folder, cluster=self.cluster)
        except RuntimeError as error:
            raise ValueError(f"--executor slurm: {error} (--slurm-cluster local runs the jobs here)") from error
        # Processes that are started import nothing from the current folder just because it is the current one.
        os.environ["PYTHONSAFEPATH"] = "1"
        variables = {**thread_variables(resources.threads), "PYTHONSAFEPATH": "1"}
        self.executor.update_parameters(
            name="posenc",
            timeout_min=self.timeout,
            cpus_per_task=resources.threads,
            gpus_per_node=min(1, resources.gpus),
            slurm_setup=["export " + " ".join(f"{name}={value}" for name, value in variables.items())],
        )
        if self.partition:
            self.executor.update_parameters(slurm_partition=self.partition)

    def submit(self, work: Work) -> Any:
        """Queue a job."""
        self.jobs.append(self.executor.submit(Submission(), work.elsewhere()))
        return self.jobs[-1]

    def stop(self) -> None:
        """Cancel the jobs that have not ended."""
        for job in self.jobs:
            if not job.done():
                job.cancel(check=False)
