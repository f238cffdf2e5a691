"""From what was asked for to jobs that can run: everything that can be wrong is found here, before any job starts."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from posenc.lab.checkpoint import read_checkpoint
from posenc.lab.jobs import (
    Job,
    code_in,
    corpus_identity,
    open_job,
    open_run,
    read_result,
    set_aside,
    stored_settings,
)
from posenc.lab.machine import describe_machine, describe_versions
from posenc.lab.precision import choose_precision
from posenc.lab.record import RunRecord
from posenc.lab.runners.pending import Pending
from posenc.lab.runners.slurm import SlurmOptions
from posenc.lab.specs import code_of, names, trained
from posenc.lab.tasks import task_of
from posenc.lab.tasks.task import Numbers, Profile, S, Task


@dataclass(frozen=True)
class Plan:
    """A comparison that was asked for: what (profile, data) and how (the rest)."""

    profile: Profile[Any]
    data: str
    out: Path
    workers: int | None = None
    runner: str = "local"
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    control: bool = True
    command: str = "posenc compare"  # as it was typed, for the report


@dataclass(frozen=True)
class Prepared:
    """What a runner needs, and what the report will state."""

    settings: Numbers
    pending: list[Pending]  # not finished, the longest first
    finished: int
    record: RunRecord[Any, Any]


def prepare(plan: Plan, console: Console, processes: int) -> Prepared:
    """Check everything that can be checked, and make the folders."""
    settings = dataclasses.replace(plan.profile.settings, processes=processes)
    task: Task[Any, Any, Any] = task_of(settings)
    task.check(settings)
    specs, remark = task.specs(plan.profile.encodings, settings, control=plan.control)
    if remark:
        console.print(remark, style="dim")
    code = code_of(specs)
    console.print(f"Reading the data ({plan.data}) …", style="dim")
    data, settings = task.read(plan.data, settings)
    _make_folder(plan.out)
    settings = _choose(settings, stored_settings(plan.out), console, elsewhere=plan.runner == "slurm")
    identity, versions = corpus_identity(data.facts), describe_versions()
    open_run(plan.out, settings, identity, versions)
    task.store(data, plan.out)
    console.print(task.found(data))
    for folder in set_aside(plan.out, code):
        console.print(f"An own class has changed; what was trained with it before is kept as {folder}.")
    pending, finished = [], 0
    for seed in range(plan.profile.seeds):
        for spec in dict.fromkeys(trained(spec) for spec in specs):
            rows = [row for row in specs if trained(row) == spec]
            rows = rows if spec in rows else [spec, *rows]
            own = {name: code[name] for name in names(spec) if name in code}
            job = _pending(plan.out, Job(spec, seed, settings, identity, versions, own), rows)
            finished += job is None
            pending += [job] if job else []
    shown = {**versions, **{name: f"SHA-256 {digest}" for name, digest in code_in(plan.out).items()}}
    record = RunRecord(settings, data.facts, shown, describe_machine(settings.device), plan.command)
    longest = sorted(pending, key=partial(_cost, task.slow), reverse=True)
    return Prepared(settings, longest, finished, record)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {out}: {(error.strerror or 'cannot be made').lower()}") from error
    if not os.access(out, os.W_OK | os.X_OK):
        raise ValueError(f"--out {out}: the folder is not writable")


def _choose(settings: S, stored: dict[str, object], console: Console, *, elsewhere: bool) -> S:
    """Settle what was left to the machine: as in the folder's run, else by its GPU and a probe.

    ``elsewhere``: the jobs run on other machines, so a device that is named need not be here.
    """
    device, precision = settings.device, settings.precision
    if device == "auto":
        device = str(stored.get("device") or ("cuda" if torch.cuda.is_available() else "cpu"))
    if not _is_here(device):
        if not elsewhere:
            raise ValueError(f"--device {device}: not available here")
        if precision == "auto" and not stored.get("precision"):
            raise ValueError(f"--precision auto: {device} is not here to be measured; float32 or bfloat16 is needed")
    if precision == "auto" and stored.get("precision"):
        precision = str(stored["precision"])
        console.print(f"Precision: {precision}, as in this folder's run.")
    elif precision == "auto":
        precision, reason = choose_precision(device)
        console.print(f"Precision: {reason}.")
    return dataclasses.replace(settings, device=device, precision=precision)


def _is_here(device: str) -> bool:
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, ValueError):
        return False
    return True


def _pending(out: Path, job: Job, rows: list[str]) -> Pending | None:
    """What remains to be done of a job; its files are read now, so that a broken one stops the run before it starts."""
    folder = open_job(out, job)
    result = read_result(folder, job)
    if result is not None and all(row in result["rows"] for row in rows):
        return None
    read_checkpoint(folder / "checkpoint.pt", job.identity)
    return Pending(job.name, folder, rows)


def _cost(slow: tuple[str, ...], job: Pending) -> tuple[int, int]:
    """Orders jobs by how long they take: encodings that are slow, then those with more rows."""
    return sum(word in job.name for word in slow), len(job.rows)
