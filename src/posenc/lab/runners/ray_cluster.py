"""Jobs on a Ray cluster: one task for each training, in a process of its own.

The folder of the run must lie on a file system that all machines share. A job whose process or machine dies goes on
from its checkpoint, on whatever machine Ray finds for it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import LocalRayletDiedError, NodeDiedError, OutOfMemoryError, RayError, WorkerCrashedError

from posenc.lab.machine import available_cores
from posenc.lab.own import Permission, permitted
from posenc.lab.runners.pending import Pending
from posenc.lab.runners.retries import DEATHS, Retries
from posenc.lab.train import StoppedError
from posenc.lab.worker import run_job

POLL_SECONDS = 1.0
STOP_SECONDS = 20  # a job finishes its step and saves; then its process is killed
REACH_SECONDS = 10
_STORE_BYTES = 80 * 2**20  # of memory that processes share: the least Ray takes, for jobs hand over nothing
_DIED = (WorkerCrashedError, NodeDiedError, LocalRayletDiedError, OutOfMemoryError)


def run_ray(
    pending: list[Pending],
    address: str,
    *,
    workers: int | None,
    threads: int,
    gpus: int,
    on_poll: Callable[[list[str]], None],
    on_restart: Callable[[str], None],
) -> list[str]:
    """Run what is pending on a cluster, and return one line for each job that failed.

    Args:
        pending: the longest first.
        address: ``auto``, ``HOST:PORT``, or ``local`` for a cluster of this machine alone.
        workers: jobs handed to Ray at a time; None for all.
        threads: processor cores of each job.
        gpus: of each job.
        on_poll: told every second the names of the jobs that have been handed over and have not ended.
        on_restart: told a line when a job that died is handed over again, and if no machine has room for a job.
    """
    with _connected(address, (workers or 1) * threads):
        if not any(_has_room(node, threads, gpus) for node in ray.nodes()):
            needed = f"{threads} cores" + (f" and {gpus} GPU" if gpus else "")
            on_restart(f"no machine of the cluster has {needed}; jobs wait until one joins that has")
        jobs = _Jobs(pending, threads, gpus)
        try:
            while jobs.waiting or jobs.running:
                while jobs.waiting and (workers is None or len(jobs.running) < workers):
                    jobs.start(jobs.waiting.pop(0))
                for ended in ray.wait(list(jobs.running), timeout=POLL_SECONDS)[0]:
                    jobs.end(ended, on_restart)
                on_poll([work.name for work in jobs.running.values()])
        finally:
            _stop(list(jobs.running))
    return jobs.failures


class _Jobs:
    """What waits, what runs, and what failed."""

    def __init__(self, pending: list[Pending], threads: int, gpus: int) -> None:
        self.waiting, self.failures = list(pending), list[str]()
        self.running: dict[Any, Pending] = {}
        self.retries = {work.name: Retries(work.folder) for work in pending}
        # One process a job, so that nothing of one job is left for the next. What dies is counted here, not by Ray,
        # which knows nothing of checkpoints.
        needs = {"num_cpus": threads, "num_gpus": gpus, "runtime_env": {"env_vars": _environment(threads)}}
        self.task = ray.remote(max_calls=1, max_retries=0, **needs)(_run)

    def start(self, work: Pending) -> None:
        own = work.own._replace(folder=work.own.folder.resolve())
        self.running[self.task.remote(work.folder.resolve(), work.rows, own)] = work

    def end(self, ended: Any, on_restart: Callable[[str], None]) -> None:
        work, error = self.running.pop(ended), _error(ended)
        if error is None:
            return
        reason, log = _reason(error), work.folder / "log.txt"
        if not isinstance(error, _DIED):
            self.failures.append(f"{work.name}: {reason}; see {log}")
        elif self.retries[work.name].after_death():
            on_restart(f"{work.name}: {reason}; it is taken up again")
            self.start(work)
        else:
            self.failures.append(f"{work.name}: {reason}, {DEATHS} times without a new checkpoint; see {log}")


def _has_room(node: dict[str, Any], threads: int, gpus: int) -> bool:
    """Whether a machine could take a job if it had nothing else to do."""
    there = node["Resources"]
    return bool(node["Alive"] and there.get("CPU", 0) >= threads and there.get("GPU", 0) >= gpus)


def _run(folder: Path, rows: list[str], own: Permission) -> None:
    """What a machine of the cluster does. Its words go to the job's log."""
    stopping: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: stopping.append(number))  # Ray's way to cancel a task
    with (folder / "log.txt").open("a") as log, redirect_stdout(log), redirect_stderr(log):
        try:
            with permitted(own):
                run_job(folder, rows, should_stop=lambda: bool(stopping))
        except StoppedError:
            raise
        except Exception:
            traceback.print_exc()
            raise


def _environment(threads: int) -> dict[str, str]:
    """What must be set before torch is imported, and where this process finds its modules."""
    known = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    paths = os.pathsep.join(dict.fromkeys(str(Path(path).resolve()) for path in known))
    return {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "PYTHONPATH": paths}


@contextmanager
def _connected(address: str, cores: int) -> Iterator[None]:
    """A connection to the cluster; one of this machine is begun and ended with it, and has at least ``cores``."""
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody asked for a report to the makers of Ray
        options |= {"num_cpus": max(available_cores(), cores), "object_store_memory": _STORE_BYTES}
        options |= {"include_dashboard": False}
    before = signal.getsignal(signal.SIGTERM)
    try:
        _reach(address)
        ray.init(**options)
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"--ray-address {address}: {_first_line(error)} (`ray start --head` begins a cluster, --ray-address local "
            "one of this machine alone)"
        ) from error
    finally:
        signal.signal(signal.SIGTERM, before)  # Ray's own handler would end this process before its jobs have saved
    try:
        yield
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Raise an OSError at once if nothing answers at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit():
        socket.create_connection((host.rpartition("/")[2], int(port)), timeout=REACH_SECONDS).close()


def _stop(running: list[Any]) -> None:
    for job in running:
        ray.cancel(job, force=False)
    if running:
        _, left = ray.wait(running, num_returns=len(running), timeout=STOP_SECONDS)
        for job in left:
            ray.cancel(job, force=True)


def _error(ended: Any) -> Exception | None:
    try:
        ray.get(ended)
    except RayError as error:
        found: Exception = error
        return found
    return None


def _reason(error: Exception) -> str:
    """In a few words why a job ended: its own error if it had one, else what Ray says first."""
    cause = getattr(error, "cause", None)
    if cause is not None:
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        return lines[-1] if lines else type(cause).__name__
    return _first_line(error)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].split(". ")[0].rstrip(".") if lines else type(error).__name__
