"""Where jobs run: the interface of executors, and what serves all of them.

local     processes of this machine, one a job (`posenc.lab.execute.local`)
ray       tasks of a Ray cluster (`posenc.lab.execute.ray`)
slurm     jobs of SLURM, through submitit (`posenc.lab.execute.slurm`)
torchrun  this process and the other ranks together (`InProcess`)

A command creates an executor, calls `Executor.start` once, `Executor.submit` for each job, and `Executor.stop` at the
end, also after an error. `map_jobs` does the rest for all alike: failed jobs, and restarting a job whose process died
from its checkpoint. Which executor runs a job never changes the job's numbers.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch

from posenc.lab.config import Machine
from posenc.lab.plugins import allow_imports
from posenc.lab.run.job import Work
from posenc.lab.run.machine import available_cores
from posenc.lab.run.run_job import run_job

NAMES = {"local": "Local", "ray": "Ray", "slurm": "Slurm"}
DEATHS = 3  # in a row without a new checkpoint, after which a job has failed
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
    """

    workers: int
    threads: int = 1
    gpus: int = 0
    folder: Path = Path()
    remark: Callable[[str], None] = lambda line: None

    @classmethod
    def of(cls, machine: Machine, workers: int | None, folder: Path) -> Resources:
        """The resources of this machine, for ``workers`` jobs at once; None: one per GPU, else one per core."""
        gpus = max(1, torch.cuda.device_count()) if machine.device.startswith("cuda") else 0
        return cls(workers or gpus or max(1, available_cores() // machine.threads), machine.threads, gpus, folder)


class Executor(ABC):
    """Runs jobs somewhere."""

    name: ClassVar[str]
    has_queue: ClassVar[bool] = True  # whether it accepts all jobs at once; False: at most `Resources.workers`
    elsewhere: bool = True  # whether other machines may run the jobs, whose devices this process cannot check
    poll_seconds: ClassVar[float] = 0.25  # between two looks at the state of the submitted jobs
    death: tuple[type[BaseException], ...] = (DiedError,)  # exceptions after which a job is restarted

    def start(self, resources: Resources) -> None:
        """Connect to whatever runs the jobs; a ValueError says why that is impossible."""
        self.resources = resources

    @abstractmethod
    def submit(self, work: Work) -> Future:
        """Start a job, or queue it. Its process calls `run_work`."""

    def stop(self) -> None:  # noqa: B027  (an executor may need nothing after its last job)
        """Stop all jobs that still run and release everything. Jobs that can save a checkpoint do so."""


class InProcess(Executor):
    """Runs each job in this process, within `submit`, together with the other ranks of torchrun if there are any."""

    name, has_queue, elsewhere = "torchrun", False, False

    def submit(self, work: Work) -> futures.Future[None]:
        """Run a job to its end."""
        future: futures.Future[None] = futures.Future()
        try:
            run_work(work)
            future.set_result(None)
        except ValueError as error:  # of this job; any other error ends the command on all ranks
            future.set_exception(error)
        return future


def make_executor(name: str, options: Mapping[str, Any]) -> Executor:
    """An executor by name, with the options of the command line that are its own; a ValueError for others' options."""
    if name not in NAMES:
        raise ValueError(f"--executor {name}: {', '.join(NAMES)} is needed")
    foreign = [key for key in options if not key.startswith(f"{name}_")]
    if foreign:
        option = foreign[0]
        raise ValueError(
            f"--{option.replace('_', '-')}: an option of --executor {option.partition('_')[0]}, not {name}"
        )
    arguments = {key.removeprefix(f"{name}_"): value for key, value in options.items()}
    executor: Executor = getattr(import_module(f"posenc.lab.execute.{name}"), NAMES[name])(**arguments)
    return executor


@contextmanager
def started(executor: Executor, resources: Resources) -> Iterator[Executor]:
    """An executor between `Executor.start` and `Executor.stop`."""
    executor.start(resources)
    try:
        yield executor
    finally:
        executor.stop()


def run_work(work: Work, should_stop: Callable[[], bool] = lambda: False) -> None:
    """Run a job to its records, in this process."""
    with allow_imports(work.plugins):
        run_job(work.folder, trackers=work.trackers, should_stop=should_stop)


def thread_variables(threads: int) -> dict[str, str]:
    """The environment variables that a job's process needs before torch is imported."""
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


def last_line(log: Path) -> str:
    """The last line of a log that is not blank."""
    if not log.is_file():
        return "ended without a message"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _END))
        lines = file.read(_END).decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "ended without a message")


def checkpoint_time(folder: Path) -> int:
    """When a job's checkpoint was written, ns; 0 if there is none. Each new checkpoint has more steps."""
    try:
        # Opened, because a file system that machines share may answer an old time otherwise.
        with (folder / "checkpoint.pt").open("rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return 0


# ---- All jobs of a run ----


def map_jobs(
    executor: Executor,
    works: Sequence[Work],
    *,
    workers: int | None = None,
    on_poll: Callable[[list[str]], None] = lambda running: None,
    on_restart: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """Run jobs to their records; returns a line for each job that failed.

    Args:
        executor: where they run; started, and stopped by the caller.
        works: in the order in which they are submitted.
        workers: jobs submitted at a time; None for all.
        on_poll: called several times a second with the names of the jobs that were submitted and have not ended.
        on_restart: called with a line when a job that died is submitted again.
    """
    mapping = _Mapping(executor, works, workers, on_restart)
    while mapping.step():
        on_poll([work.name for work, _ in mapping.running])
        time.sleep(executor.poll_seconds)
    on_poll([])
    return mapping.failures


class _Mapping:
    """The jobs of a run: waiting, running, failed."""

    def __init__(
        self, executor: Executor, works: Sequence[Work], workers: int | None, on_restart: Callable[[str], None]
    ) -> None:
        self.executor, self.workers, self.on_restart = executor, workers, on_restart
        self.waiting, self.failures = list(works), list[str]()
        self.running: list[tuple[Work, Future]] = []
        self.saved = {work.name: checkpoint_time(work.folder) for work in works}
        self.deaths = dict.fromkeys(self.saved, 0)  # in a row without a new checkpoint

    def step(self) -> bool:
        """Submit as many jobs as there is room for and look at those that have ended; whether any are left."""
        while self.waiting and (self.workers is None or len(self.running) < self.workers):
            work = self.waiting.pop(0)
            self.running.append((work, self.executor.submit(work)))
        for work, future in [pair for pair in self.running if pair[1].done()]:
            self.running.remove((work, future))
            error = future.exception()
            if error is not None:
                self._end(work, error)
        return bool(self.waiting or self.running)

    def _end(self, work: Work, error: BaseException) -> None:
        reason, log = _reason(error), work.folder / "log.txt"
        if isinstance(error, self.executor.death):
            reason = reason.partition(". ")[0]  # Ray goes on with a paragraph of advice
            if self._may_restart(work):
                self.on_restart(f"{work.name}: {reason}; restarted")
                self.waiting.insert(0, work)
                return
            reason += f", {DEATHS} times without a new checkpoint"
        self.failures.append(f"{work.name}: {reason}" + (f"; see {log}" if log.is_file() else ""))

    def _may_restart(self, work: Work) -> bool:
        """Whether a job that died is restarted.

        A machine that is preempted now and then ends a long job many times, which is no fault of the job. A job that
        ends its own process, perhaps for lack of memory, does so again before the next checkpoint.
        """
        saved = checkpoint_time(work.folder)
        self.deaths[work.name] = 0 if saved != self.saved[work.name] else self.deaths[work.name] + 1
        self.saved[work.name] = saved
        return self.deaths[work.name] < DEATHS


def _reason(error: BaseException) -> str:
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return lines[-1] if lines else type(cause).__name__
