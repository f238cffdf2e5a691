"""The interface of executors: what decides where a job runs, and what every executor needs.

An executor is a class derived from `Executor`. A command creates it, calls `Executor.start` once, `Executor.submit` for
each job, and `Executor.stop` at the end, also after an error. `posenc.lab.execute.mapping` does the rest for all
executors alike: phases, failed jobs, and restarting a job whose process died.

To add an executor, write one class. In a file of this folder that has the executor's name it is found as
``--executor NAME``; in a file of a user's, as ``--executor my_module:MyClass``:

    class Threads(Executor):
        def start(self, resources):
            self.pool = ThreadPoolExecutor(resources.workers)

        def submit(self, work):
            return self.pool.submit(run_work, work)

        def stop(self):
            self.pool.shutdown()

If the class is a dataclass, its fields are options of the command line, declared by `posenc.lab.config.number`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import torch

import posenc.lab.execute
from posenc.lab.config import Machine
from posenc.lab.plugins import allow_imports, builtin_names, by_name, is_plugin
from posenc.lab.run.job import Work
from posenc.lab.run.machine import available_cores
from posenc.lab.run.run_job import run_job

_END = 2**16  # bytes of a log that its last line is looked for in


class Future(Protocol):
    """The outcome of a submitted job: `concurrent.futures.Future`, a job of submitit, and the like."""

    def done(self) -> bool: ...
    def exception(self) -> BaseException | None: ...


class DiedError(Exception):
    """A job's process ended without an error of its own, for example because it was killed: the job is restarted."""


@dataclass(frozen=True)
class Resources:
    """What an executor may use, and whom it informs.

    Attributes:
        workers: how many jobs may run at once, as the command line says, or as many as this machine has cores or GPUs
            for.
        threads: CPU threads of each job.
        gpus: GPUs to share among the jobs; 0 for none.
        folder: of the run; every job's folder is inside it.
        remark: prints a line for the user.
        progress: shows the state of the jobs with these names; for executors that run a job within `Executor.submit`.
    """

    workers: int
    threads: int = 1
    gpus: int = 0
    folder: Path = Path()
    remark: Callable[[str], None] = lambda line: None
    progress: Callable[[list[str]], None] = lambda names: None

    @classmethod
    def of(cls, machine: Machine, workers: int | None, folder: Path) -> Resources:
        """The resources of this machine, for ``workers`` jobs at once; None: one per GPU, else one per core."""
        gpus = max(1, torch.cuda.device_count()) if machine.device.startswith("cuda") else 0
        return cls(workers or gpus or max(1, available_cores() // machine.threads), machine.threads, gpus, folder)


@dataclass
class Executor(ABC):
    """Runs jobs somewhere. Which executor runs a job never changes the job's numbers."""

    name: ClassVar[str] = ""  # of a built-in executor: its file's; of a user's: as it was typed
    panel: ClassVar[str] = "Executors"  # of its options in the help
    has_queue: ClassVar[bool] = True  # whether it accepts all jobs at once; False: at most `Resources.workers`
    poll_seconds: ClassVar[float] = 0.25  # between two looks at the state of the submitted jobs
    death: ClassVar[tuple[type[BaseException], ...]] = (DiedError,)  # exceptions after which a job is restarted

    @property
    def elsewhere(self) -> bool:
        """Whether other machines may run the jobs, whose devices this process cannot check."""
        return True

    def start(self, resources: Resources) -> None:  # noqa: B027  (an executor may need nothing before its first job)
        """Connect to whatever runs the jobs; a ValueError says why that is impossible."""

    @abstractmethod
    def submit(self, work: Work) -> Future:
        """Start a job, or queue it. Its process calls `run_work`."""

    def stop(self) -> None:  # noqa: B027  (nor anything after its last job)
        """Stop all jobs that still run and release everything. Jobs that can save a checkpoint do so."""


def executor_names() -> tuple[str, ...]:
    """The built-in executors."""
    return builtin_names(posenc.lab.execute, Executor)


def executor_class(name: str) -> type[Executor]:
    """An executor by name, or a user's, ``my_module:MyExecutor``, whose module must be on the import allowlist."""
    cls = by_name(posenc.lab.execute, Executor, name, "--executor")  # type: ignore[type-abstract]
    if is_plugin(name):
        cls.name = name
    return cls


@contextmanager
def started(executor: Executor, resources: Resources) -> Iterator[Executor]:
    """An executor between `Executor.start` and `Executor.stop`."""
    executor.start(resources)
    try:
        yield executor
    finally:
        executor.stop()


def run_work(work: Work) -> None:
    """Run a job to its records, in this process."""
    with allow_imports(work.plugins):
        run_job(work.folder, work.rows, trackers=work.trackers)


def thread_variables(threads: int) -> dict[str, str]:
    """The environment variables that a job's process needs before torch is imported."""
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


def last_line(log: Path) -> str:
    """The last line of a log that is not blank."""
    lines = _end(log).decode(errors="replace").split("\n") if log.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "ended without a message")


def _end(log: Path) -> bytes:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _END))
        return file.read(_END)


def checkpoint_time(folder: Path) -> int:
    """When a job's checkpoint was written, ns; 0 if there is none. Each new checkpoint has more steps."""
    try:
        # Opened, because a file system that machines share may answer an old time otherwise.
        with (folder / "checkpoint.pt").open("rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return 0
