"""What an executor is handed, what it must be able to do, and how a job is brought to its end in its process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from posenc.lab.plugins import allow_imports
from posenc.lab.run.job import Work
from posenc.lab.run.run_job import run_job

_END = 2**16  # bytes of a log that its last line is looked for in


class Needs(NamedTuple):
    """What a job needs of a machine, and how many may run at a time."""

    workers: int
    threads: int
    gpus: int  # to deal out among the jobs; 0 for none


class Future(Protocol):
    """What `Executor.submit` returns: `concurrent.futures.Future`, a job of submitit, and the like."""

    def done(self) -> bool: ...
    def exception(self) -> BaseException | None: ...


class Executor(Protocol):
    """Runs functions somewhere; `concurrent.futures.Executor` is one."""

    def submit(self, function: Callable[[Work], None], work: Work, /) -> Any: ...


class DiedError(Exception):
    """The process of a job ended without a word of its own: it may be taken up again."""


def run_work(work: Work) -> None:
    """Bring a job to its records, in this process; what executors run."""
    with allow_imports(work.own):
        run_job(work.folder, work.rows)


def threads_of(threads: int) -> dict[str, str]:
    """The environment that a job's process needs before torch is imported."""
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


def last_line(log: Path) -> str:
    """The last line of a log that says anything."""
    lines = _end(log).decode(errors="replace").split("\n") if log.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "ended without a word")


def _end(log: Path) -> bytes:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _END))
        return file.read(_END)


def saved_at(folder: Path) -> int:
    """When a job's checkpoint was written, ns; 0 if there is none. Each one that is written has more steps."""
    try:
        # Opened, because a file system that machines share may answer an old time otherwise.
        with (folder / "checkpoint.pt").open("rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return 0
