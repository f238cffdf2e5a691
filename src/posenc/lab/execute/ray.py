"""A Ray cluster: one task for each training, in a process of its own.

The folder of the run must be on a file system that all machines share. A job whose process or machine dies continues
from its checkpoint, on whichever machine Ray chooses.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import traceback
from concurrent.futures import Future
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from posenc.lab.execute.executor import DiedError, Executor, Resources, run_work, thread_variables
from posenc.lab.run.job import Work
from posenc.lab.run.machine import available_cores
from posenc.lab.run.train import StoppedError

STOP_SECONDS = 20  # for a job to finish its step and save; then its process is killed
REACH_SECONDS = 10
_STORE_BYTES = 80 * 2**20  # of memory that processes share: the least Ray accepts, because jobs return nothing


class Ray(Executor):
    """Submits jobs to a cluster.

    Args:
        address: auto, HOST:PORT, or local for a cluster on this machine alone.
    """

    name = "ray"

    def __init__(self, address: str = "auto") -> None:
        if "RAY_AUTH_MODE" not in os.environ and _has_token():
            # A cluster that Ray 2.60 starts where there is a token asks for it, and a client that was told HOST:PORT
            # would not send it. An open cluster takes a client with a token, too. Ray reads this when it is imported.
            os.environ["RAY_AUTH_MODE"] = "token"
        try:
            self.ray = import_module("ray")
        except ModuleNotFoundError as error:
            text = f"--executor ray needs {error.name}: pip install 'posenc[ray]', in a clone '.[ray]'"
            raise ValueError(text) from error
        self.address, self.elsewhere = address, address != "local"
        self.running: list[Any] = []

    def start(self, resources: Resources) -> None:
        """Connect to the cluster; a remark says so if no machine of it has room for a job."""
        ray, threads, gpus = self.ray, resources.threads, min(1, resources.gpus)
        failures = ray.exceptions
        self.death = (
            DiedError, failures.WorkerCrashedError, failures.NodeDiedError, failures.LocalRayletDiedError,
            failures.OutOfMemoryError,
        )  # fmt: skip
        self._connect(resources)
        if not any(_has_room(node, threads, gpus) for node in ray.nodes()):
            needed = f"{threads} cores" + (f" and {gpus} GPU" if gpus else "")
            resources.remark(f"no machine of the cluster has {needed}; jobs wait until one joins that has")
        # One process a job, so that nothing of one job is left for the next. The caller counts deaths, not Ray, which
        # knows nothing of checkpoints.
        options = {"num_cpus": threads, "num_gpus": gpus, "runtime_env": {"env_vars": _environment(threads)}}
        self.task = ray.remote(max_calls=1, max_retries=0, **options)(_run)

    def submit(self, work: Work) -> Future[None]:
        """Submit a job."""
        self.running.append(self.task.remote(work.elsewhere()))
        future: Future[None] = self.running[-1].future()
        return future

    def stop(self) -> None:
        """Stop what runs, after its step, and leave the cluster; a cluster of this machine ends with it."""
        ray = self.ray
        try:
            for job in self.running:
                ray.cancel(job, force=False)
            if self.running:
                _, unfinished = ray.wait(self.running, num_returns=len(self.running), timeout=STOP_SECONDS)
                for job in unfinished:
                    ray.cancel(job, force=True)
        finally:
            ray.shutdown()

    def _connect(self, resources: Resources) -> None:
        """Connect to a cluster; one of this machine is started, with the cores that the jobs need."""
        options: dict[str, Any] = {"address": self.address, "log_to_driver": False, "logging_level": logging.ERROR}
        if self.address == "local":
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports unless the user enables them
            cores = max(available_cores(), resources.workers * resources.threads)
            options |= {"num_cpus": cores, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
        before = signal.getsignal(signal.SIGTERM)
        try:
            _reach(self.address)
            self.ray.init(**options)
        except (OSError, RuntimeError, ValueError) as error:
            lines = str(error).strip().splitlines()
            raise ValueError(
                f"--ray-address {self.address}: {lines[0] if lines else type(error).__name__} (`ray start --head` "
                "starts a cluster, --ray-address local one on this machine alone; a cluster that asks for a token "
                "needs it here, in ~/.ray/auth_token or RAY_AUTH_TOKEN, with RAY_AUTH_MODE=token)"
            ) from error
        finally:
            signal.signal(signal.SIGTERM, before)  # Ray's own handler would end this process before its jobs have saved


def _run(work: Work) -> None:
    """What a machine of the cluster does. Its output goes to the job's log."""
    stopping: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: stopping.append(number))  # Ray's way to cancel a task
    with (work.folder / "log.txt").open("a") as log, redirect_stdout(log), redirect_stderr(log):
        try:
            run_work(work, should_stop=lambda: bool(stopping))
        except StoppedError:
            raise
        except Exception:
            traceback.print_exc()
            raise


def _has_token() -> bool:
    """Whether there is a token for clusters that ask for one."""
    named = os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token"
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or Path(named).is_file()


def _has_room(node: dict[str, Any], threads: int, gpus: int) -> bool:
    """Whether a machine could run a job if it had nothing else to do."""
    available = node["Resources"]
    return bool(node["Alive"] and available.get("CPU", 0) >= threads and available.get("GPU", 0) >= gpus)


def _environment(threads: int) -> dict[str, str]:
    """What must be set before torch is imported, and where this process finds its modules."""
    folders = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    paths = os.pathsep.join(dict.fromkeys(str(Path(path).resolve()) for path in folders))
    return {**thread_variables(threads), "PYTHONPATH": paths}


def _reach(address: str) -> None:
    """Raise an OSError at once if nothing answers at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit():
        socket.create_connection((host.rpartition("/")[2], int(port)), timeout=REACH_SECONDS).close()
