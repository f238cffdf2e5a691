"""Jobs on a cluster, through `submitit`: one SLURM job for each training, as an array.

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

import submitit

from posenc.lab.own import Permission, permitted
from posenc.lab.runners.pending import Pending
from posenc.lab.worker import run_job

POLL_SECONDS = 1.0
CLUSTERS = ("slurm", "local", "debug")


@dataclass(frozen=True)
class SlurmOptions:
    """Where and how long. ``local`` runs the same jobs as processes of this machine, ``debug`` in this process."""

    cluster: str = "slurm"
    partition: str | None = None
    timeout: int = 240  # minutes a job may run before it is queued again
    gpus: int = 0  # of each job


class Submission:
    """What a cluster's machine runs; pickled by submitit."""

    def __call__(self, folder: Path, rows: list[str], own: Permission) -> None:
        """Run one job."""
        with permitted(own):
            run_job(folder, rows)

    def checkpoint(self, folder: Path, rows: list[str], own: Permission) -> submitit.helpers.DelayedSubmission:
        """What to queue when the time is up: the same again, which continues from the checkpoint in the folder."""
        return submitit.helpers.DelayedSubmission(self, folder, rows, own)


def run_slurm(
    pending: list[Pending], options: SlurmOptions, folder: Path, *, threads: int, on_poll: Callable[[list[str]], None]
) -> list[str]:
    """Submit what is pending, wait for it, and return one line for each that failed.

    Args:
        pending: the longest first.
        options: cluster, partition, time limit.
        folder: for submitit's scripts and logs.
        threads: processor cores of each job.
        on_poll: told every second the names of the jobs that have not ended.
    """
    # A folder of its own: submitit reads back pickles, and none but those of these jobs may lie there.
    folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=folder, prefix=time.strftime("%Y%m%d-%H%M%S-")))
    executor = _executor(options, folder, threads)
    with _safe_path(), executor.batch():
        jobs = [executor.submit(Submission(), work.folder.resolve(), work.rows, _here(work.own)) for work in pending]
    open_jobs, failures = list(zip(pending, jobs, strict=True)), list[str]()
    try:
        while open_jobs:
            for work, job in [pair for pair in open_jobs if options.cluster == "debug" or pair[1].done()]:
                open_jobs.remove((work, job))
                error = job.exception()
                if error is not None:
                    failures.append(f"{work.name}: {_reason(error)}; see {folder}")
                if options.cluster == "debug":
                    break  # it ran in this process; show it before the next one
            on_poll([work.name for work, _ in open_jobs])
            if open_jobs and options.cluster != "debug":
                time.sleep(POLL_SECONDS)
    finally:
        for _, job in open_jobs:
            job.cancel(check=False)
    return failures


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


def _here(own: Permission) -> Permission:
    return own._replace(folder=own.folder.resolve())


def _executor(options: SlurmOptions, folder: Path, threads: int) -> submitit.AutoExecutor:
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=options.cluster)
    except RuntimeError as error:
        raise ValueError(f"--runner slurm: {error} (--slurm-cluster local runs the jobs on this machine)") from error
    executor.update_parameters(
        name="posenc",
        timeout_min=options.timeout,
        cpus_per_task=threads,
        gpus_per_node=options.gpus,
        slurm_setup=[
            f"export OMP_NUM_THREADS={threads} MKL_NUM_THREADS={threads} PYTHONSAFEPATH=1"
        ],  # before torch is imported
    )
    if options.partition:
        executor.update_parameters(slurm_partition=options.partition)
    return executor


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
