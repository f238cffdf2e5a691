"""Brings one job to its result: train, measure, write result.json. As a program, the process of the local runner.

python -m posenc.lab.worker JOB_FOLDER --rows rope,rope+window --parent PID --classes mine:Steep --classes-from FOLDER
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import filelock
from accelerate import Accelerator

from posenc.lab.files import UnwritableError, write_json
from posenc.lab.jobs import LOCK_SECONDS, RESULT_FORMAT, Job, check_code, corpus_identity, read_job, read_result
from posenc.lab.machine import describe_machine
from posenc.lab.own import Permission, permitted
from posenc.lab.tasks import task_of
from posenc.lab.tasks.task import Data
from posenc.lab.train import StoppedError, make_accelerator, numbers_of, train

STOPPED, BAD_INPUT, UNWRITABLE = 143, 2, 74  # exit codes


class Progress(TypedDict):
    """What progress.json says of a running job."""

    phase: str  # "train" or "measure"
    share: float  # of the phase, 0 to 1
    detail: str  # a few words


def run_job(
    folder: Path,
    rows: list[str],
    *,
    accelerator: Accelerator | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[], None] = lambda: None,
) -> None:
    """Train the job of a folder and measure ``rows``: its own spec and controls on its checkpoint.

    What is there already is not done again. A lock on the folder keeps two workers from running one job.
    """
    job = read_job(folder)
    check_code(job)
    accelerator = make_accelerator(job.settings) if accelerator is None else accelerator
    report = _Reporter(folder / "progress.json", accelerator.is_main_process, on_progress)
    lock = filelock.FileLock(folder / "lock") if accelerator.is_main_process else None
    try:
        if lock:
            lock.acquire(timeout=LOCK_SECONDS)
            for left in folder.glob(".*.tmp"):  # by a worker that was killed while it wrote
                left.unlink(missing_ok=True)
        result = read_result(folder, job) or {"rows": {}}
        missing = [row for row in rows if row not in result["rows"]]
        if missing or "training" not in result:
            _complete(folder, job, result["rows"], missing, accelerator, report, should_stop)
        (folder / "progress.json").unlink(missing_ok=True)
    except filelock.Timeout:
        raise ValueError(f"{folder} is in use by another process: wait for it or stop it") from None
    finally:
        if lock:
            lock.release()


def _complete(
    folder: Path,
    job: Job,
    measured: dict[str, Any],
    missing: list[str],
    accelerator: Accelerator,
    report: _Reporter,
    should_stop: Callable[[], bool],
) -> None:
    task, data = task_of(job.settings), _data_of(folder, job)
    on_step = partial(report.step, numbers_of(job).steps, task.progress)
    trained = train(job, data, folder, accelerator, on_step=on_step, should_stop=should_stop)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        for number, row in enumerate(missing):
            on_forward = partial(_measuring, report, should_stop, row, number, len(missing))
            measured[row] = task.measure(trained.model, data, row, job.settings, accelerator.device, on_forward)
        result = {
            "format": RESULT_FORMAT,
            "identity": job.identity,
            "spec": job.spec,
            "seed": job.seed,
            "training": trained.record,
            "rows": measured,
            "machine": describe_machine(job.settings.device),
        }
        write_json(folder / "result.json", result)
    accelerator.wait_for_everyone()


def _data_of(folder: Path, job: Job) -> Data:
    data: Data = task_of(job.settings).load(folder.parent.parent)
    if corpus_identity(data.facts) != job.corpus:
        raise ValueError(f"{folder}: its configuration belongs to other data than those beside it")
    return data


def _measuring(
    report: _Reporter, should_stop: Callable[[], bool], row: str, number: int, count: int, share: float
) -> None:
    report.write("measure", (number + share) / count, row)
    if should_stop():
        raise StoppedError


class _Reporter:
    """Writes progress.json, at most twice a second."""

    def __init__(self, path: Path, active: bool, on_progress: Callable[[], None]) -> None:
        self.path, self.active, self.on_progress, self.last = path, active, on_progress, 0.0

    def step(self, steps: int, words: Callable[[float, float], str], step: int, loss: float, rate: float) -> None:
        self.write("train", step / steps, words(loss, rate))

    def write(self, phase: str, share: float, detail: str) -> None:
        now = time.monotonic()
        if self.active and now - self.last > 0.5:
            self.last = now
            write_json(self.path, {"phase": phase, "share": share, "detail": detail})
            self.on_progress()


def main() -> int:
    """Run one job; stop at the next step on SIGTERM or when the parent has died."""
    parser = argparse.ArgumentParser(prog="posenc.lab.worker")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", required=True, help="separated by commas; empty for the training alone")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--classes", default="", help="own classes that may be imported, separated by commas")
    parser.add_argument("--classes-from", type=Path, default=Path(), help="the folder that they lie in")
    arguments = parser.parse_args()
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    try:
        with permitted(Permission(frozenset(filter(None, arguments.classes.split(","))), arguments.classes_from)):
            run_job(
                arguments.folder,
                arguments.rows.split(",") if arguments.rows else [],
                should_stop=lambda: bool(stopping) or os.getppid() != arguments.parent,
            )
    except StoppedError:
        return STOPPED
    except (ValueError, OSError) as error:
        with suppress(OSError):  # on a full disk the log is full too
            traceback.print_exc()
            print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201  (the last line of log.txt)
        return UNWRITABLE if isinstance(error, UnwritableError) else BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
