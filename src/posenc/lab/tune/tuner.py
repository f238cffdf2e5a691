"""Finds learning rates by training each encoding with several, and writes them where `posenc compare` reads them.

    OUT/tune/              a run's folder with a job for each trial; records.parquet has their losses and courses
    OUT/tune/trials.csv    the factors of each trial, and its loss
    OUT/tuned.json         the factors that were chosen, the losses they rest on, and how they were found; what was
                           tuned there before and is not asked for again stays as it is

The numbers are those of the comparison itself. Judged is the loss of the last twentieth of a training, on text or
sequences that were not trained before. All trials see the same batches, so that their losses differ by the rates alone.
What the comparison measures is never looked at: nothing is tuned for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import optuna
import pandas as pd
from rich.console import Console

from posenc.lab.display import Display
from posenc.lab.execute.executor import Resources, started
from posenc.lab.execute.local import Local
from posenc.lab.execute.mapping import map_jobs
from posenc.lab.files import write_atomically
from posenc.lab.job import Job, Work, open_job, read_job, read_rows, refuse_difference
from posenc.lab.planning import Asked, Ready, prepare, work_of
from posenc.lab.rates import Tuned, in_words, read_found, write_tuned
from posenc.lab.reproduce import check_reproduction
from posenc.lab.runs import FILE, collect, read_run
from posenc.lab.specs import tried
from posenc.lab.tasks import task_named
from posenc.lab.tasks.task import Planned
from posenc.lab.tune.trials import Found, Trial, conclude, propose

FOLDER, TABLE = "tune", "trials.csv"
_COLUMNS = ["spec", "trial", "lr", "own", "train_loss"]


@dataclass
class _Candidate:
    """One encoding that is being tuned."""

    planned: Planned
    default: Tuned  # its factors without tuning
    trials: list[Trial]


def tune(asked: Asked, count: int, workers: int | None, console: Console) -> dict[str, Found]:
    """Make ``count`` trials for each encoding of a comparison, and write OUT/tuned.json.

    Raises:
        ValueError: for anything about the comparison that cannot work, before any trial starts.
    """
    task = task_named(asked.profile.config.task)
    if not task.fresh:
        raise ValueError(f"--task {task.name}: its training repeats its data, so that its loss cannot judge a rate")
    ready = prepare(dataclasses.replace(asked, out=asked.out / FOLDER), console)
    if any(planned.base for planned in ready.planned):
        raise ValueError(f"--task {task.name}: its jobs share one rate and start from a trained model; tune that model")
    if (asked.out / FILE).exists():
        before = {"numbers": dict(read_run(asked.out).numbers)}
        refuse_difference(asked.out / FILE, before, {"numbers": ready.config.deciding()})
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    earlier = read_found(asked.out, ready.config.deciding(), ready.data.identity())
    candidates = [_candidate(ready, dataclasses.replace(planned, rows=())) for planned in ready.planned]
    if any(len(c.trials) < count for c in candidates):
        check_reproduction(ready, console)
    while batch := [c for c in candidates if len(c.trials) < count]:
        _train(ready, batch, workers, console)
    collect(ready.out)
    _table(ready.out, candidates)
    found = {c.planned.spec: conclude(c.planned.spec, c.trials, c.default) for c in candidates}
    losses = {c.planned.spec: {"default": found[c.planned.spec].default, "best": found[c.planned.spec].best,
                               "trials": len(c.trials)} for c in candidates}  # fmt: skip
    kept = {spec: tuned for spec, tuned in earlier.encodings.items() if spec not in found}
    chosen = {**kept, **{spec: f.tuned for spec, f in found.items() if f.tuned}}
    facts = {"numbers": ready.config.deciding(), "data": ready.data.identity(), "versions": ready.versions}
    write_tuned(asked.out, chosen, {"losses": {**earlier.losses, **losses}, **facts, "command": ready.run.command})
    return found


def _candidate(ready: Ready, planned: Planned) -> _Candidate:
    """An encoding with the trials that were finished before."""
    rates = tried(planned.spec, ready.task.shape(planned.config)).lr_multipliers.values()
    found = _Candidate(planned, {"lr": 1.0, **({"own": max(rates)} if rates else {})}, [])
    while (trial := _read(ready, planned, len(found.trials))) is not None:
        found.trials.append(trial)
    return found


def _read(ready: Ready, planned: Planned, number: int) -> Trial | None:
    """A trial that was finished; None if it was not, or never begun."""
    begun = _begun(ready, planned, number)
    if begun is None:
        return None
    folder = open_job(ready.out, begun)
    rows = read_rows(folder, read_job(folder))
    if rows is None:
        return None
    frame = rows[0]
    return Trial(begun.tuned, float(frame.loc[frame["metric"] == "train_loss", "value"].iloc[0]))


def _begun(ready: Ready, planned: Planned, number: int) -> Job | None:
    """The job of a trial that was begun, with the factors that were chosen then."""
    job = ready.job(planned, 0, {}, f"trial{number}")
    folder = ready.out / "jobs" / job.name
    return dataclasses.replace(job, tuned=read_job(folder).tuned) if folder.exists() else None


def _train(ready: Ready, batch: Sequence[_Candidate], workers: int | None, console: Console) -> None:
    """Train one more trial of each encoding, several at a time."""
    jobs = [_next(ready, candidate) for candidate in batch]
    works = [work for c, job in zip(batch, jobs, strict=True) if (work := work_of(ready, job, c.planned))]
    _run(ready, works, workers, console)
    for candidate, job in zip(batch, jobs, strict=True):
        trial = _read(ready, candidate.planned, len(candidate.trials)) or Trial(job.tuned, None)
        candidate.trials.append(trial)
        (ready.out / "jobs" / job.name / "checkpoint.pt").unlink(missing_ok=True)  # of no more use, and there are many
        shown = "failed" if trial.loss is None else f"loss {trial.loss:.4f}"
        console.print(f"{job.spec}, {job.trial}: {in_words(job.tuned)}: {shown}")


def _next(ready: Ready, candidate: _Candidate) -> Job:
    """The job of the next trial: one that was begun before, or what is proposed."""
    planned, number = candidate.planned, len(candidate.trials)
    begun = _begun(ready, planned, number)
    if begun is not None:
        return begun
    tuned = propose(planned.spec, candidate.trials, candidate.default)
    return ready.job(planned, 0, tuned, f"trial{number}")


def _run(ready: Ready, works: list[Work], workers: int | None, console: Console) -> None:
    resources = Resources.of(ready.config.machine, workers, ready.out)
    with Display(console, works, 0, 1.0, lambda: None) as display, started(Local(), resources) as executor:
        for line in map_jobs(
            executor, works, workers=resources.workers, on_poll=display.poll, on_restart=console.print
        ):  # a failure is a trial that failed
            console.print(line)


def _table(out: Path, candidates: Sequence[_Candidate]) -> None:
    """Write OUT/trials.csv; lines of encodings that are not asked for this time stay."""
    names = [c.planned.spec for c in candidates]
    before = pd.read_csv(out / TABLE) if (out / TABLE).exists() else pd.DataFrame(columns=_COLUMNS)
    lines = [
        {"spec": c.planned.spec, "trial": number, **trial.tuned, "train_loss": trial.loss}
        for c in candidates
        for number, trial in enumerate(c.trials)
    ]
    new = pd.DataFrame(lines, columns=_COLUMNS)
    table = pd.concat([part for part in (before[~before["spec"].isin(names)], new) if len(part)], ignore_index=True)
    write_atomically(out / TABLE, table.to_csv(index=False, float_format="%.6g").encode())
