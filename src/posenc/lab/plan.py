"""From what was asked for to jobs that can run: everything that can be wrong is found here, before any job starts."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console

from posenc.lab.checkpoint import read_checkpoint
from posenc.lab.corpus import Corpus, make_corpus, store_corpus
from posenc.lab.documents import read_documents
from posenc.lab.jobs import (
    Job,
    code_in,
    corpus_identity,
    open_job,
    open_run,
    read_result,
    set_aside,
    shape_of,
    stored_settings,
)
from posenc.lab.machine import describe_machine, describe_versions
from posenc.lab.precision import choose_precision
from posenc.lab.profiles import Profile, Settings, check
from posenc.lab.record import RunRecord
from posenc.lab.runners.slurm import SlurmOptions
from posenc.lab.runners.tasks import Task
from posenc.lab.specs import WINDOW, check_specs, code_of, names, normal, trained


@dataclass(frozen=True)
class Plan:
    """A comparison that was asked for: what (profile, data) and how (the rest)."""

    profile: Profile
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

    settings: Settings
    tasks: list[Task]  # not finished, the longest first
    finished: int
    record: RunRecord


def prepare(plan: Plan, console: Console, processes: int) -> Prepared:
    """Check everything that can be checked, and make the folders."""
    settings = dataclasses.replace(plan.profile.settings, processes=processes)
    check(settings)
    specs = check_specs(_with_control(plan, console), shape_of(settings))
    code = code_of(specs)
    console.print(f"Reading the text ({plan.data}) …", style="dim")
    corpus = read_corpus(plan.data, settings)
    _make_folder(plan.out)
    settings = _choose(settings, stored_settings(plan.out), console, elsewhere=plan.runner == "slurm")
    identity, versions = corpus_identity(corpus.facts), describe_versions()
    open_run(plan.out, settings, identity, versions)
    store_corpus(corpus, plan.out / "corpus")
    facts = corpus.facts
    console.print(
        f"Corpus: {facts.name}, {facts.train_bytes / 1e6:.2f} MB to train on, "
        f"{facts.validation_bytes / 1e6:.2f} MB held out."
    )
    for folder in set_aside(plan.out, code):
        console.print(f"An own class has changed; what was trained with it before is kept as {folder}.")
    tasks, finished = [], 0
    for seed in range(plan.profile.seeds):
        for spec in dict.fromkeys(trained(spec) for spec in specs):
            rows = [row for row in specs if trained(row) == spec]
            rows = rows if spec in rows else [spec, *rows]
            own = {name: code[name] for name in names(spec) if name in code}
            job = Job(spec, seed, settings, identity, versions, own)
            task = _task(plan.out, job, rows)
            finished += task is None
            tasks += [task] if task else []
    shown = {**versions, **{name: f"SHA-256 {digest}" for name, digest in code_in(plan.out).items()}}
    record = RunRecord(settings, facts, shown, describe_machine(settings.device), plan.command)
    return Prepared(settings, sorted(tasks, key=_cost, reverse=True), finished, record)


def read_corpus(data: str, settings: Settings) -> Corpus:
    """The corpus of a run, large enough for its windows."""
    name, documents = read_documents(data)
    return make_corpus(name, documents, window=settings.longest + 1, windows=settings.windows, stride=settings.scored)


def _with_control(plan: Plan, console: Console) -> tuple[str, ...]:
    """The specs of a profile, and the control that every table needs."""
    specs = tuple(normal(spec) for spec in plan.profile.encodings)
    if not plan.control or WINDOW in specs:
        return specs
    if trained(WINDOW) not in specs:
        console.print(
            f"{trained(WINDOW)} is trained too, for the control {WINDOW} (--no-control leaves it out).", style="dim"
        )
    return (*specs, WINDOW)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {out}: {(error.strerror or 'cannot be made').lower()}") from error
    if not os.access(out, os.W_OK | os.X_OK):
        raise ValueError(f"--out {out}: the folder is not writable")


def _choose(settings: Settings, stored: dict[str, object], console: Console, *, elsewhere: bool) -> Settings:
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


def _task(out: Path, job: Job, rows: list[str]) -> Task | None:
    """What remains to be done of a job; its files are read now, so that a broken one stops the run before it starts."""
    folder = open_job(out, job)
    result = read_result(folder, job)
    if result is not None and all(row in result["rows"] for row in rows):
        return None
    read_checkpoint(folder / "checkpoint.pt", job.identity)
    return Task(job.name, folder, rows)


def _cost(task: Task) -> tuple[int, int]:
    """Orders jobs by how long they take: encodings that need every score, then those with more rows."""
    slow = ("cope", "stick", "fox", "forget", "fire", "shaw", "transformer", "mixture", "t5", "kerple")
    return sum(word in task.name for word in slow), len(task.rows)
