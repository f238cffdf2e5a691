"""Brings one job to its records: train, measure, write. What is there already is not done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import filelock
import pandas as pd
import torch
from accelerate import Accelerator
from typing_extensions import TypedDict

from posenc.lab.files import write_json
from posenc.lab.metrics import Values
from posenc.lab.models.decoder import LabModel
from posenc.lab.run.checkpoint import COUNT, Checkpoint, write_first_losses
from posenc.lab.run.job import LOCK_SECONDS, Job, check_code, read_job, read_rows, write_rows
from posenc.lab.run.records import records_frame
from posenc.lab.run.train import StoppedError, make_accelerator, train
from posenc.lab.schema import Line, Number
from posenc.lab.tasks import task_named
from posenc.lab.tasks.task import Data, Task

PROGRESS = "progress.json"
TRACE = 100  # points of a training's course that are kept
TAIL = 0.05  # last share of the steps whose loss is that of the training


class ProgressRecord(TypedDict):
    """What progress.json holds."""

    phase: Literal["train", "measure"]
    share: Number  # of the phase that is done
    detail: Line


@dataclass
class Reporter:
    """Writes progress.json, at most twice a second."""

    path: Path
    active: bool
    on_progress: Callable[[], None]
    last: float = 0.0

    def write(self, phase: str, share: float, detail: str) -> None:
        """Say how far a job is: ``phase`` "train" or "measure", ``share`` of it from 0 to 1, a few words."""
        now = time.monotonic()
        if self.active and now - self.last > 0.5:
            self.last = now
            write_json(self.path, {"phase": phase, "share": share, "detail": detail})
            self.on_progress()


def run_job(
    folder: Path,
    rows: Sequence[str],
    *,
    accelerator: Accelerator | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[], None] = lambda: None,
) -> None:
    """Train the job of a folder and measure ``rows`` on its weights. A lock keeps two workers from one job."""
    job = read_job(folder)
    check_code(job)
    accelerator = make_accelerator(job.config) if accelerator is None else accelerator
    first = accelerator.is_main_process
    report = Reporter(folder / PROGRESS, first, on_progress)
    lock = filelock.FileLock(folder / "lock") if first else None
    try:
        if lock:
            lock.acquire(timeout=LOCK_SECONDS)
            for left in folder.glob(".*.tmp"):  # by a worker that was killed while it wrote
                left.unlink(missing_ok=True)
        found = read_rows(folder, job)
        if found is None or set(rows) - set(found[1]):
            _complete(folder, job, rows, accelerator, report, should_stop)
        if first:
            (folder / PROGRESS).unlink(missing_ok=True)
    except filelock.Timeout:
        raise ValueError(f"{folder} is in use by another process: wait for it or stop it") from None
    finally:
        if lock:
            lock.release()


def _complete(
    folder: Path, job: Job, rows: Sequence[str], accelerator: Accelerator, report: Reporter,
    should_stop: Callable[[], bool],
) -> None:  # fmt: skip
    task, data = task_named(job.config.task), data_of(folder, job)
    if job.config.options.given:
        if accelerator.is_main_process:
            _measure(folder, job, rows, task, data, accelerator.device, report, should_stop)
        accelerator.wait_for_everyone()
        return
    steps = job.config.training.steps

    def on_step(step: int, loss: float, rate: float) -> None:
        report.write("train", step / steps, f"loss {loss:.3f}, {rate:,.0f} {task.per_second}/s")

    trained, state = train(job, data, folder, accelerator, on_step=on_step, should_stop=should_stop)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        found = task.evaluate(trained, data, rows, job.config, accelerator.device)
        measured = list(_told(found, job, report, should_stop))
        clip = job.config.training.clip
        frame = records_frame(
            [*measured, *course(task, trained, state, clip=clip)], job=job.name, spec=job.spec, seed=job.seed
        )
        _write(folder, job, frame, rows)
    accelerator.wait_for_everyone()


def _measure(
    folder: Path, job: Job, rows: Sequence[str], task: Task, data: Data, device: torch.device, report: Reporter,
    should_stop: Callable[[], bool],
) -> None:  # fmt: skip
    """Measure a model that is given. All rows of such a job are the same numbers under other names."""
    before = read_rows(folder, job)
    if before is not None and before[1]:
        known = before[0][before[0]["spec"] == before[1][0]]
        frame = pd.concat([known.assign(spec=row) for row in rows if row not in before[1]], ignore_index=True)
        told = dict.fromkeys([*before[1], *rows])
        write_rows(folder, job, pd.concat([before[0], frame], ignore_index=True), list(told))
        return
    model = task.model(job.spec, job.config, data, job.seed).to(device).eval()
    started = time.perf_counter()
    found = list(_told(task.evaluate(model, data, rows, job.config, device), job, report, should_stop))
    if losses := _first_losses(task, found, job):  # a search has none
        write_first_losses(folder, job.config, losses, time.perf_counter() - started)
    write_rows(folder, job, records_frame(found, job=job.name, spec=job.spec, seed=job.seed), list(rows))


def recompute_pretrained_losses(job: Job, data: Data, device: torch.device) -> list[float]:
    """The first losses of a job whose model is given, computed anew."""
    task = task_named(job.config.task)
    model = task.model(job.spec, job.config, data, job.seed).to(device).eval()
    return _first_losses(task, task.evaluate(model, data, [job.spec], job.config, device), job)


def _first_losses(task: Task, measured: Iterable[Values], job: Job) -> list[float]:
    """At most `COUNT` values of the deciding metric, of the row that comes first."""
    name, losses, row = task.metrics_of(job.config)[0].name, list[float](), None
    for values in measured:
        row = values.spec if row is None else row
        if values.metric == name and values.spec == row:
            losses += values.values
        if len(losses) >= COUNT:
            break
    return losses[:COUNT]


def _told(found: Iterable[Values], job: Job, report: Reporter, should_stop: Callable[[], bool]) -> Iterator[Values]:
    """What is measured, one after the other, with word of how far it is."""
    for values in found:
        yield values
        report.write("measure", 0.5, f"{values.spec or job.spec} {values.view} {values.length:,}")
        if should_stop():
            raise StoppedError


def _write(folder: Path, job: Job, frame: pd.DataFrame, rows: Sequence[str]) -> None:
    """Write new records beside those of other rows that were measured before."""
    before = read_rows(folder, job)
    kept = [] if before is None else [row for row in before[1] if row not in rows]
    if before is not None and kept:
        old = before[0][before[0]["spec"].isin(kept) & ~before[0]["spec"].isin([job.spec])]
        frame = pd.concat([frame, old], ignore_index=True)
    write_rows(folder, job, frame, [*kept, *rows])


def data_of(folder: Path, job: Job) -> Data:
    """The data beside a job; a ValueError where they are others than it was planned with."""
    data = task_named(job.config.task).load(folder.parent.parent / "data", job.config)
    if data.identity() != job.data:
        raise ValueError(f"{folder}: its configuration belongs to other data than those beside it")
    return data


def course(task: Task, model: LabModel, state: Checkpoint, *, clip: float) -> Iterator[Values]:
    """What a training took, and how it went: scalars at length 0, and curves with a step as item."""
    total, own = model.parameter_counts()
    steps, norms, losses = state.step, state.norms.double(), state.losses.double() / task.loss_unit
    tail = max(1, round(TAIL * steps))
    scalars = {
        "parameters": total, "encoding_parameters": own, "steps": steps, "train_loss": losses[-tail:].mean().item(),
        "seconds": state.seconds, "peak_memory": state.peak_memory, "grad_norm_median": norms.median().item(),
        "grad_norm_max": norms[steps // 10 :].max().item(), "clipped_share": (norms > clip).double().mean().item(),
    }  # fmt: skip
    for name, value in scalars.items():
        yield Values(name, [float(value)])
    every = max(1, steps // TRACE)
    points = torch.arange(every, steps + 1, every)
    for name, curve in (("loss", losses), ("grad_norm", norms)):
        means = [curve[max(0, int(p) - every) : int(p)].mean().item() for p in points]
        yield Values(name, means, items=points.tolist())
    probed = state.probes
    yield Values("probe", probed[:, 1].tolist(), items=[int(step) for step in probed[:, 0]])
