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
from posenc.lab.machine import check_machine, describe_machine, describe_versions
from posenc.lab.own import permission, source_of
from posenc.lab.precision import choose_precision
from posenc.lab.rates import FILE as TUNED
from posenc.lab.rates import Tuned, in_words, read_tuned
from posenc.lab.record import RunRecord
from posenc.lab.repeating import repeatable
from posenc.lab.runners.pending import Pending
from posenc.lab.runners.slurm import SlurmOptions
from posenc.lab.specs import code_of, names, own_names
from posenc.lab.tasks import task_of
from posenc.lab.tasks.task import Facts, Numbers, Profile, S, Task


@dataclass(frozen=True)
class Plan:
    """A comparison that was asked for: what (profile, data) and how (the rest)."""

    profile: Profile[Any]
    data: str
    out: Path
    workers: int | None = None
    runner: str = "local"
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    ray_address: str = "auto"
    control: bool = True
    cost: bool = False  # whether to measure what the encodings of texts cost, when all jobs are done
    command: str = "posenc compare"  # as it was typed, for the report


@dataclass(frozen=True)
class Prepared:
    """What a runner needs, and what the report will state."""

    settings: Numbers
    pending: list[Pending]  # not finished, the longest first
    finished: int
    record: RunRecord[Any, Any]


@dataclass(frozen=True)
class Run:
    """A folder that is ready for jobs."""

    settings: Numbers
    specs: list[str]  # rows of the table
    facts: Facts
    versions: dict[str, str]
    code: dict[str, str]  # SHA-256 of the files of own classes

    @property
    def identity(self) -> dict[str, str]:
        """What tells its data from others."""
        return corpus_identity(self.facts)

    def code_of(self, spec: str) -> dict[str, str]:
        """Of the own classes in a spec."""
        return {name: self.code[name] for name in names(spec) if name in self.code}

    def job(self, spec: str, seed: int, tuned: Tuned, trial: str = "") -> Job:
        """One of its jobs."""
        return Job(spec, seed, self.settings, self.identity, self.versions, self.code_of(spec), tuned, trial)


def default_folder(task: str, profile: str) -> Path:
    """The folder of a run, if nobody says."""
    return Path("posenc-compare") / (profile if task == "text" else f"{task}-{profile}")


def prepare(plan: Plan, console: Console, processes: int) -> Prepared:
    """Check everything that can be checked, and make the folders."""
    run = prepare_run(plan, console, processes)
    task: Task[Any, Any, Any] = task_of(run.settings)
    tuned = {spec: factors for spec, factors in read_tuned(plan.out).items() if spec in run.specs}
    rates = {spec: in_words(factors) for spec, factors in tuned.items()}
    for spec, factors in rates.items():
        console.print(f"Tuned ({plan.out / TUNED}): {spec}, {factors}.", style="dim")
    pending, finished = [], 0
    for seed in range(plan.profile.seeds):
        for spec in dict.fromkeys(task.trained(row) for row in run.specs):
            rows = [row for row in run.specs if task.trained(row) == spec]
            rows = rows if spec in rows else [spec, *rows]
            job = _pending(plan.out, run.job(spec, seed, tuned.get(spec, {})), rows, phase=_phase(task, spec))
            finished += job is None
            pending += [job] if job else []
    shown = {**run.versions, **{name: f"SHA-256 {digest}" for name, digest in code_in(plan.out).items()}}
    command = repeatable(plan.command, plan.profile.settings, run.settings)
    record = RunRecord(run.settings, run.facts, shown, describe_machine(run.settings.device), command, rates)
    longest = sorted(pending, key=partial(_cost, task.slow), reverse=True)
    return Prepared(run.settings, longest, finished, record)


def prepare_run(plan: Plan, console: Console, processes: int) -> Run:
    """Check what was asked for, read the data, and make the folder or make sure that it holds the same."""
    settings = dataclasses.replace(plan.profile.settings, processes=processes)
    task: Task[Any, Any, Any] = task_of(settings)
    task.check(settings)
    specs, remark = task.specs(plan.profile.encodings, settings, control=plan.control)
    if remark:
        console.print(remark, style="dim")
    code = code_of(specs)
    for name in code:
        console.print(f"{name} is imported from {source_of(name)}.")
    console.print(f"Reading the data ({plan.data}) …", style="dim")
    data, settings = task.read(plan.data, settings)
    told = task.remark(data, settings)
    make_folder(plan.out)
    elsewhere = plan.runner == "slurm" or (plan.runner == "ray" and plan.ray_address != "local")
    settings = settle(settings, stored_settings(plan.out), console, elsewhere=elsewhere)
    check_machine(settings, elsewhere=elsewhere)
    versions = describe_versions()
    open_run(plan.out, settings, corpus_identity(data.facts), versions)
    task.store(data, plan.out)
    console.print(" ".join(filter(None, (task.found(data), told))))
    for folder in set_aside(plan.out, code):
        console.print(f"An own class has changed; what was trained with it before is kept as {folder}.")
    return Run(settings, specs, data.facts, versions, code)


def make_folder(out: Path) -> None:
    """Make a folder for results; a ValueError that says why it cannot be written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {out}: {(error.strerror or 'cannot be made').lower()}") from error
    if not os.access(out, os.W_OK | os.X_OK):
        raise ValueError(f"--out {out}: the folder is not writable")


def settle(settings: S, stored: dict[str, object], console: Console, *, elsewhere: bool) -> S:
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


def _phase(task: Task[Any, Any, Any], spec: str) -> int:
    """How many jobs must come before, one after the other."""
    base = task.base(spec)
    return 0 if base is None else 1 + _phase(task, base)


def _pending(out: Path, job: Job, rows: list[str], *, phase: int) -> Pending | None:
    """What remains to be done of a job; its files are read now, so that a broken one stops the run before it starts."""
    folder = open_job(out, job)
    result = read_result(folder, job)
    if result is not None and all(row in result["rows"] for row in rows):
        return None
    read_checkpoint(folder / "checkpoint.pt", job.identity)
    return Pending(job.name, folder, rows, phase, permission().of(own_names([job.spec])))


def _cost(slow: tuple[str, ...], job: Pending) -> tuple[int, int, int]:
    """Orders jobs by phase, then by how long they take: encodings that are slow, then those with more rows."""
    return -job.phase, sum(word in job.name for word in slow), len(job.rows)
