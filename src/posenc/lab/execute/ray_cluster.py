"""A Ray cluster: one task for each training, in a process of its own.

The folder of the run must lie on a file system that all machines share. A job whose process or machine dies goes on
from its checkpoint, on whatever machine Ray finds for it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import LocalRayletDiedError, NodeDiedError, OutOfMemoryError, RayError, WorkerCrashedError

from posenc.lab.execute.work import Needs, threads_of
from posenc.lab.plugins import allow_imports
from posenc.lab.run.job import Work
from posenc.lab.run.machine import available_cores
from posenc.lab.run.run_job import run_job
from posenc.lab.run.train import StoppedError

STOP_SECONDS = 20  # a job finishes its step and saves; then its process is killed
REACH_SECONDS = 10
_STORE_BYTES = 80 * 2**20  # of memory that processes share: the least Ray takes, for jobs hand over nothing
DIED = (WorkerCrashedError, NodeDiedError, LocalRayletDiedError, OutOfMemoryError)


class RayFuture:
    """A task of Ray as a future."""

    def __init__(self, reference: Any) -> None:
        self.reference = reference

    def done(self) -> bool:
        """Whether it has ended."""
        return bool(ray.wait([self.reference], timeout=0)[0])

    def exception(self) -> BaseException | None:
        """Why it failed, if it did."""
        try:
            ray.get(self.reference)
        except RayError as error:
            found: BaseException = error
            return found
        return None


class RayCluster:
    """Hands jobs to a cluster.

    Args:
        address: ``auto``, ``HOST:PORT``, or ``local`` for a cluster of this machine alone.
        needs: cores and GPUs of each job.
        on_remark: told a line if no machine has room for a job.
    """

    def __init__(self, address: str, needs: Needs, on_remark: Callable[[str], None]) -> None:
        self.running: list[Any] = []
        _connect(address, needs)
        gpus = min(1, needs.gpus)
        if not any(_has_room(node, needs.threads, gpus) for node in ray.nodes()):
            needed = f"{needs.threads} cores" + (f" and {gpus} GPU" if gpus else "")
            on_remark(f"no machine of the cluster has {needed}; jobs wait until one joins that has")
        # One process a job, so that nothing of one job is left for the next. What dies is counted by the caller, not
        # by Ray, which knows nothing of checkpoints.
        wanted = {"num_cpus": needs.threads, "num_gpus": gpus, "runtime_env": {"env_vars": _environment(needs.threads)}}
        self.task = ray.remote(max_calls=1, max_retries=0, **wanted)(_run)

    def submit(self, function: Callable[[Work], None], work: Work, /) -> RayFuture:
        """Hand a job over."""
        reference = self.task.remote(work.elsewhere())
        self.running.append(reference)
        return RayFuture(reference)

    def shutdown(self) -> None:
        """Stop what runs, after its step, and leave the cluster; one of this machine ends with it."""
        try:
            for job in self.running:
                ray.cancel(job, force=False)
            if self.running:
                _, left = ray.wait(self.running, num_returns=len(self.running), timeout=STOP_SECONDS)
                for job in left:
                    ray.cancel(job, force=True)
        finally:
            ray.shutdown()


def _run(work: Work) -> None:
    """What a machine of the cluster does. Its words go to the job's log."""
    stopping: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: stopping.append(number))  # Ray's way to cancel a task
    with (work.folder / "log.txt").open("a") as log, redirect_stdout(log), redirect_stderr(log):
        try:
            with allow_imports(work.own):
                run_job(work.folder, work.rows, should_stop=lambda: bool(stopping))
        except StoppedError:
            raise
        except Exception:
            traceback.print_exc()
            raise


def _has_room(node: dict[str, Any], threads: int, gpus: int) -> bool:
    """Whether a machine could take a job if it had nothing else to do."""
    there = node["Resources"]
    return bool(node["Alive"] and there.get("CPU", 0) >= threads and there.get("GPU", 0) >= gpus)


def _environment(threads: int) -> dict[str, str]:
    """What must be set before torch is imported, and where this process finds its modules."""
    known = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    paths = os.pathsep.join(dict.fromkeys(str(Path(path).resolve()) for path in known))
    return {**threads_of(threads), "PYTHONPATH": paths}


def _connect(address: str, needs: Needs) -> None:
    """Connect to a cluster; one of this machine is begun, and has the cores that the jobs need."""
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody asked for a report to the makers of Ray
        cores = max(available_cores(), needs.workers * needs.threads)
        options |= {"num_cpus": cores, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
    before = signal.getsignal(signal.SIGTERM)
    try:
        _reach(address)
        ray.init(**options)
    except (OSError, RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines()
        raise ValueError(
            f"--ray-address {address}: {lines[0] if lines else type(error).__name__} (`ray start --head` begins a "
            "cluster, --ray-address local one of this machine alone)"
        ) from error
    finally:
        signal.signal(signal.SIGTERM, before)  # Ray's own handler would end this process before its jobs have saved


def _reach(address: str) -> None:
    """Raise an OSError at once if nothing answers at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit():
        socket.create_connection((host.rpartition("/")[2], int(port)), timeout=REACH_SECONDS).close()
