"""Finds learning rates by training each encoding with several, and writes them where `posenc compare` reads them.

    OUT/tune/         a run's folder with a job for each trial, and the journal of Optuna
    OUT/tuned.json    the factors, the losses they rest on, and how they were found

Judged is the loss of the last twentieth of a training, on text or sequences that were not trained before. All trials
see the same batches, so that their losses differ by the rates alone. The windows of the comparison are never looked
at, nor any length but the trained one: nothing is tuned for what the comparison measures.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from rich.console import Console

from posenc.lab.foreign import refuse_links
from posenc.lab.jobs import open_job, read_result
from posenc.lab.machine import available_cores
from posenc.lab.own import permission
from posenc.lab.plan import Plan, Run, prepare_run
from posenc.lab.progress import Display
from posenc.lab.rates import Tuned, in_words, write_tuned
from posenc.lab.repeating import repeatable
from posenc.lab.runners.local import run_local
from posenc.lab.runners.pending import Pending
from posenc.lab.specs import build_encodings, is_control, own_names
from posenc.lab.tasks import task_of, to_record
from posenc.lab.tune import trials
from posenc.lab.tune.trials import Found

FOLDER, JOURNAL = "tune", "optuna.log"


@dataclass
class _Candidate:
    """One encoding that is being tuned."""

    spec: str
    study: optuna.Study
    default_own: float | None  # rate of its parameters, if it has any


class _Trial(NamedTuple):
    candidate: _Candidate
    number: int
    factors: Tuned


def tune(plan: Plan, count: int, console: Console) -> dict[str, Found]:
    """Make ``count`` trials for each encoding of a plan, and write OUT/tuned.json.

    Raises:
        ValueError: for anything about the plan that cannot work, before any trial starts.
    """
    task = task_of(plan.profile.settings)
    if not task.fresh:
        raise ValueError(f"--task {task.name}: its training repeats its data, so that its loss cannot judge a rate")
    if any(task.base(task.trained(row)) for row in plan.profile.encodings):
        raise ValueError(f"--task {task.name}: its jobs share one rate and start from a trained model; tune that model")
    out = plan.out / FOLDER
    run = prepare_run(dataclasses.replace(plan, out=out, control=False), console, processes=1)
    refuse_links([out, out / JOURNAL])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = JournalStorage(JournalFileBackend(str(out / JOURNAL)))
    specs = dict.fromkeys(task.trained(spec) for spec in run.specs if not is_control(spec))
    candidates = [_candidate(storage, spec, run.settings) for spec in specs]
    while batch := [asked for c in candidates if (asked := _next(c, count))]:
        _train(run, out, batch, plan.workers, console)
    found = {c.spec: trials.conclude(c.study, c.default_own) for c in candidates}
    facts = {
        "trials": {spec: f.trials for spec, f in found.items()},
        "settings": to_record(run.settings),
        "corpus": run.identity,
        "versions": run.versions,
        "command": repeatable(plan.command, plan.profile.settings, run.settings),
    }
    write_tuned(plan.out, {spec: f.tuned for spec, f in found.items() if f.tuned}, facts)
    return found


def _candidate(storage: JournalStorage, spec: str, settings: Any) -> _Candidate:
    built = build_encodings(spec, settings.shape)
    rates = set(built.lr_multipliers.values())
    own = max(rates) if rates else None
    return _Candidate(spec, trials.open_study(storage, spec, own), own)


def _next(candidate: _Candidate, count: int) -> _Trial | None:
    """The trial to make next, one that was begun before if there is one; None when there are enough."""
    begun = trials.unfinished(candidate.study)
    if begun:
        return _Trial(candidate, *begun[0])
    if trials.ended(candidate.study) >= count:
        return None
    return _Trial(candidate, *trials.ask(candidate.study, candidate.default_own is not None))


def _train(run: Run, out: Path, batch: list[_Trial], workers: int | None, console: Console) -> None:
    """Train one trial of each encoding, several at a time, and tell the studies."""
    settings = run.settings
    jobs = [run.job(trial.candidate.spec, 0, trial.factors, f"trial{trial.number}") for trial in batch]
    own = [permission().of(own_names([job.spec])) for job in jobs]
    work = [Pending(job.name, open_job(out, job), [], own=needed) for job, needed in zip(jobs, own, strict=True)]
    workers = workers or max(1, available_cores() // settings.threads)
    with Display(console, out, settings, work, 0) as display:
        run_local(work, workers=workers, threads=settings.threads, gpus=0, on_poll=display.poll)
    for trial, job, pending in zip(batch, jobs, work, strict=True):
        result = read_result(pending.folder, job)
        loss = result["training"][task_of(settings).loss_name] if result else None
        if loss is None:
            trial.candidate.study.tell(trial.number, state=TrialState.FAIL)
        else:
            trial.candidate.study.tell(trial.number, loss)
            (pending.folder / "checkpoint.pt").unlink(missing_ok=True)  # of no more use, and there are many
        shown = "failed" if loss is None else f"loss {loss:.4f}"
        console.print(f"{trial.candidate.spec}, trial {trial.number}: {in_words(trial.factors)}: {shown}")
