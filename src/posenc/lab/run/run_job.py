"""Runs one job to its records: train, evaluate, write. Work that is already finished is not repeated."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import filelock
import torch
from accelerate import Accelerator
from typing_extensions import TypedDict

from posenc.lab.decoder import LabModel, attention_mass
from posenc.lab.files import Number, write_json
from posenc.lab.metrics import ATTENTION, Values
from posenc.lab.run.job import LOCK_SECONDS, Job, check_code, read_job, read_results, write_results
from posenc.lab.run.records import records_frame
from posenc.lab.run.tracking import JobTracker
from posenc.lab.run.train import Checkpoint, StepReport, StoppedError, make_accelerator, train
from posenc.lab.tasks import task_named
from posenc.lab.tasks.task import Data, Task

PROGRESS = "progress.json"
TRAINING = 0.8  # share of a job that is training, about
TRACE = 100  # points of a training's curves that are recorded
TAIL = 0.05  # last share of the steps whose loss is that of the training


class ProgressRecord(TypedDict):
    """What progress.json holds."""

    share: Number  # of the job that is done
    detail: str


@dataclass
class Reporter:
    """Writes progress.json, at most twice a second."""

    path: Path
    active: bool
    last: float = 0.0

    def write(self, share: float, detail: str) -> None:
        """Report the finished ``share`` of a job (0 to 1), and a short text."""
        now = time.monotonic()
        if self.active and now - self.last > 0.5:
            self.last = now
            write_json(self.path, {"share": share, "detail": detail})


def run_job(
    folder: Path,
    *,
    accelerator: Accelerator | None = None,
    trackers: Sequence[str] = (),
    should_stop: Callable[[], bool] = lambda: False,
    lock_seconds: float = LOCK_SECONDS,
) -> None:
    """Train the job of a folder and evaluate it, unless it is a trial of rates; what is there is not done again.

    Args:
        folder: of the job.
        accelerator: of this rank under torchrun; default a new one for this process.
        trackers: receive the numbers: `posenc.lab.run.tracking.TRACKERS`.
        should_stop: called after each step; True saves a checkpoint and raises `StoppedError`.
        lock_seconds: to wait for another worker to let go of the folder.

    Raises:
        ValueError: for a folder that another worker holds, other data than those planned with, or a loss that diverges.
    """
    job = read_job(folder)
    check_code(job)
    accelerator = make_accelerator(job.config) if accelerator is None else accelerator
    first = accelerator.is_main_process
    report = Reporter(folder / PROGRESS, first)
    lock = filelock.FileLock(folder / "lock") if first else None
    try:
        if lock:
            lock.acquire(timeout=lock_seconds)
            for left in folder.glob(".*/"):  # by a worker that was killed while it wrote
                shutil.rmtree(left, ignore_errors=True)
        if read_results(folder, job) is None:
            tracker = JobTracker(trackers if first else (), job, folder.parent.parent)
            try:
                _complete(folder, job, accelerator, report, tracker, should_stop)
            finally:
                tracker.finish()
        if first:
            (folder / PROGRESS).unlink(missing_ok=True)
    except filelock.Timeout:
        raise ValueError(f"{folder} is in use by another process: wait for it or stop it") from None
    finally:
        if lock:
            lock.release()


def _complete(
    folder: Path, job: Job, accelerator: Accelerator, report: Reporter, tracker: JobTracker,
    should_stop: Callable[[], bool],
) -> None:  # fmt: skip
    task, data = task_named(job.config.task), data_of(folder, job)
    steps, metrics, per_second = job.config.training.steps, task.metrics_of(job.config), task.speed_unit(job.config)

    def on_step(now: StepReport) -> None:
        report.write(TRAINING * now.step / steps, f"loss {now.loss:.3f}, {now.per_second:,.0f} {per_second}/s")
        tracker.step(now, metrics[0].name, per_second)

    trained, state = train(job, data, folder, accelerator, on_step=on_step, should_stop=should_stop)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        values = () if job.trial else task.evaluate(trained, data, job.spec, job.config, accelerator.device)
        measured = list(_with_progress(tracker.evaluation(values, metrics), report, should_stop))
        clip, unit = job.config.training.clip, task.loss_unit_of(data)
        every = [*measured, *reach(trained, task, data, job), *course(trained, state, clip=clip, unit=unit)]
        write_results(folder, job, records_frame(every, job=job.name, spec=job.spec, seed=job.seed))
    accelerator.wait_for_everyone()


def _with_progress(
    measurements: Iterable[Values], report: Reporter, should_stop: Callable[[], bool]
) -> Iterator[Values]:
    """What is measured, one after the other, with word of how far it is."""
    for values in measurements:
        yield values
        report.write(TRAINING, f"measuring {values.view} {values.length:,}")
        if should_stop():
            raise StoppedError


def data_of(folder: Path, job: Job) -> Data:
    """The data of the run that a job belongs to; a ValueError if they are not those that it was planned with."""
    data = task_named(job.config.task).load(folder.parent.parent / "data", job.config)
    if data.identity() != job.data:
        raise ValueError(f"{folder}: its configuration belongs to other data than the folder's")
    return data


def reach(model: LabModel, task: Task, data: Data, job: Job) -> Iterator[Values]:
    """How far back each head attends at the training length; nothing where the task has no such texts."""
    read = task.read_for_attention(data, job.config)
    if read is None:
        return
    edges, mass = attention_mass(model, *read)
    heads = len(mass)
    shares, items = mass.flatten().tolist(), edges * heads
    numbers = [head for head in range(heads) for _ in edges]
    yield Values(ATTENTION, shares, job.config.training.train_length, items=items, documents=numbers)


def course(model: LabModel, state: Checkpoint, *, clip: float, unit: float) -> Iterator[Values]:
    """The cost and the course of a training: scalars at length 0, and curves whose items are steps.

    Args:
        model: trained.
        state: at the end.
        clip: norm that gradients were clipped to.
        unit: nats of one unit of the losses that are recorded.
    """
    total, of_encodings = model.parameter_counts()
    steps, norms, losses = state.step, state.norms.double(), state.losses.double() / unit
    tail = max(1, round(TAIL * steps))
    scalars = {
        "parameters": total, "encoding_parameters": of_encodings, "steps": steps,
        "train_loss": losses[-tail:].mean().item(),
        "seconds": state.seconds, "grad_norm_median": norms.median().item(),
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
