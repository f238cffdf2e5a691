"""Finds learning rates by training each encoding with several, and writes them where `posenc compare` reads them.

    OUT/tune/              a run folder with a job for each trial; records.parquet has their losses and curves
    OUT/tune/trials.csv    the factors and the loss of each trial
    OUT/tuned.json         the factors chosen, the losses behind them, and how they were found; encodings that are not
                           tuned again keep their entries

The settings are those of the comparison. The criterion is the loss over the last twentieth of a training, on text or
sequences not trained on before. All trials see the same batches, so that their losses differ by the rates alone. The
comparison's own measurements are never looked at: nothing is tuned on them.

Two integers are searched: the model's rate in steps of √2 around the profile's and, where an encoding has parameters,
their own rate in steps of √10. The first trial is the default, the next ones change one of the two; then Optuna's tree
of Parzen estimators proposes. Proposal and conclusion are functions of the trials so far, so that a run can go on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.trial import TrialState, create_trial
from rich.console import Console

from posenc.lab.execute.executor import Resources, started
from posenc.lab.execute.local import Local
from posenc.lab.execute.mapping import map_jobs
from posenc.lab.files import write_atomically
from posenc.lab.run.folder import FILE, collect_records, read_run
from posenc.lab.run.job import Job, Work, open_job, read_job, read_rows, refuse_difference
from posenc.lab.run.optimizer import Tuned, describe_factors, read_earlier_tuning, write_tuned
from posenc.lab.run.planning import PreparedRun, RunRequest, prepare, work_of
from posenc.lab.run.progress import Display
from posenc.lab.run.reproduce import check_reproduction
from posenc.lab.specs import build_for_inspection
from posenc.lab.tasks import task_named
from posenc.lab.tasks.task import Planned

WORTHWHILE = 0.01  # share of the loss that must be gained before a default is given up: less may be chance
LR, OWN = range(-4, 5), range(-1, 5)  # exponents of √2 and of √10
PATIENCE = 20  # how often the sampler may propose what was tried
Exponents = tuple[int, ...]  # of the model's rate and, where there are own parameters, of theirs


@dataclass(frozen=True)
class Trial:
    """One training: its factors, and the loss of its last twentieth; None where it failed."""

    tuned: Tuned
    loss: float | None

    @property
    def exponents(self) -> Exponents:
        """What was searched."""
        return exponents_of(self.tuned)


@dataclass(frozen=True)
class Found:
    """What the trials of an encoding say: factors, empty where the default stays, and the losses they rest on."""

    tuned: Tuned
    default: float
    best: float


def propose(spec: str, trials: Sequence[Trial], default: Tuned) -> Tuned:
    """The factors to try next; a ValueError where nothing is left.

    Args:
        spec: for the error.
        trials: so far.
        default: factors without tuning: 1 for "lr", and for "own" the encoding's, if it has parameters.
    """
    done = [trial.exponents for trial in trials]
    first = exponents_of(default)
    known: list[Exponents] = [first, (2,), (-2,)]
    if len(first) > 1:
        known = [first, *((0, own) for own in (0, 2, 3) if own != first[1]), (2, first[1])]
    left = [wanted for wanted in (*known, *_all(len(first) > 1)) if wanted not in done]
    if not left:
        raise ValueError(f"{spec}: nothing is left to try after {len(done)} trials; ask for fewer")
    return factors_of(left[0] if left[0] in known else _sampled(trials, left))


def _sampled(trials: Sequence[Trial], left: Sequence[Exponents]) -> Exponents:
    ranges = {"lr": LR, "own": OWN} if len(left[0]) > 1 else {"lr": LR}
    searched: dict[str, BaseDistribution] = {n: IntDistribution(r[0], r[-1]) for n, r in ranges.items()}
    study = optuna.create_study(sampler=TPESampler(seed=len(trials)))
    for trial in trials:
        state = TrialState.FAIL if trial.loss is None else TrialState.COMPLETE
        params = dict(zip(searched, trial.exponents, strict=True))
        study.add_trial(create_trial(state=state, value=trial.loss, params=params, distributions=searched))
    for _ in range(PATIENCE):
        proposal = study.ask(searched)
        found = tuple(proposal.params.values())
        if found in left:
            return found
        study.tell(proposal, state=TrialState.PRUNED)
    return left[0]  # the sampler insists on what it knows


def conclude(spec: str, trials: Sequence[Trial], default: Tuned) -> Found:
    """The factors of the least loss, unless the default comes near it; a ValueError where the default failed."""
    losses = {trial.exponents: trial.loss for trial in trials if trial.loss is not None}
    first = exponents_of(default)
    if first not in losses:
        raise ValueError(f"{spec}: the training with the default rates has failed; see its log")
    best = min(losses, key=losses.__getitem__)
    gained = losses[best] < (1 - WORTHWHILE) * losses[first]
    changed = [name for name, a, b in zip(default, best, first, strict=True) if a != b and gained]
    return Found({name: factors_of(best)[name] for name in changed}, losses[first], losses[best])


def factors_of(exponents: Exponents) -> Tuned:
    """From exponents to factors."""
    bases = {"lr": 2.0, "own": 10.0}
    return {name: base ** (e / 2) for (name, base), e in zip(bases.items(), exponents, strict=False)}


def exponents_of(tuned: Tuned) -> Exponents:
    """From factors to the nearest exponents that are searched."""
    steps = {"lr": (LR, 2.0), "own": (OWN, 10.0)}
    near = {name: round(2 * math.log(factor, steps[name][1])) for name, factor in sorted(tuned.items())}
    return tuple(min(max(e, steps[name][0][0]), steps[name][0][-1]) for name, e in near.items())


def _all(has_own: bool) -> list[Exponents]:
    return [(lr, own) for lr in LR for own in OWN] if has_own else [(lr,) for lr in LR]


FOLDER, TABLE = "tune", "trials.csv"
_COLUMNS = ["spec", "trial", "lr", "own", "train_loss"]


@dataclass
class _Candidate:
    """One encoding that is being tuned."""

    planned: Planned
    default: Tuned  # its factors without tuning
    trials: list[Trial]


def tune(request: RunRequest, count: int, workers: int | None, console: Console) -> dict[str, Found]:
    """Make ``count`` trials for each encoding of a comparison, and write OUT/tuned.json.

    Raises:
        ValueError: for anything about the comparison that cannot work, before any trial starts.
    """
    task = task_named(request.profile.config.task)
    if not task.fresh:
        raise ValueError(f"--task {task.name}: its training repeats its data, so that its loss cannot judge a rate")
    prepared = prepare(dataclasses.replace(request, out=request.out / FOLDER), console)
    if any(planned.base for planned in prepared.planned):
        raise ValueError(f"--task {task.name}: its jobs share one rate and start from a trained model; tune that model")
    if (request.out / FILE).exists():
        before = {"numbers": dict(read_run(request.out).numbers)}
        refuse_difference(request.out / FILE, before, {"numbers": prepared.config.deciding()})
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    earlier = read_earlier_tuning(request.out, prepared.config.deciding(), prepared.data.identity())
    candidates = [_candidate(prepared, dataclasses.replace(planned, rows=())) for planned in prepared.planned]
    if any(len(c.trials) < count for c in candidates):
        check_reproduction(prepared, console)
    while batch := [c for c in candidates if len(c.trials) < count]:
        _train(prepared, batch, workers, console)
    collect_records(prepared.out)
    _table(prepared.out, candidates)
    found = {c.planned.spec: conclude(c.planned.spec, c.trials, c.default) for c in candidates}
    losses = {c.planned.spec: {"default": found[c.planned.spec].default, "best": found[c.planned.spec].best,
                               "trials": len(c.trials)} for c in candidates}  # fmt: skip
    kept = {spec: tuned for spec, tuned in earlier.encodings.items() if spec not in found}
    chosen = {**kept, **{spec: f.tuned for spec, f in found.items() if f.tuned}}
    facts = {"numbers": prepared.config.deciding(), "data": prepared.data.identity(), "versions": prepared.versions}
    write_tuned(request.out, chosen, {"losses": {**earlier.losses, **losses}, **facts, "command": prepared.run.command})
    return found


def _candidate(prepared: PreparedRun, planned: Planned) -> _Candidate:
    """An encoding with the trials that were finished before."""
    rates = build_for_inspection(planned.spec, prepared.task.shape(planned.config)).lr_multipliers.values()
    found = _Candidate(planned, {"lr": 1.0, **({"own": max(rates)} if rates else {})}, [])
    while (trial := _read(prepared, planned, len(found.trials))) is not None:
        found.trials.append(trial)
    return found


def _read(prepared: PreparedRun, planned: Planned, number: int) -> Trial | None:
    """A trial that was finished; None if it was not, or never begun."""
    begun = _begun(prepared, planned, number)
    if begun is None:
        return None
    folder = open_job(prepared.out, begun)
    rows = read_rows(folder, read_job(folder))
    if rows is None:
        return None
    frame = rows[0]
    return Trial(begun.tuned, float(frame.loc[frame["metric"] == "train_loss", "value"].iloc[0]))


def _begun(prepared: PreparedRun, planned: Planned, number: int) -> Job | None:
    """The job of a trial that was begun, with the factors that were chosen then."""
    job = prepared.job(planned, 0, {}, f"trial{number}")
    folder = prepared.out / "jobs" / job.name
    return dataclasses.replace(job, tuned=read_job(folder).tuned) if folder.exists() else None


def _train(prepared: PreparedRun, batch: Sequence[_Candidate], workers: int | None, console: Console) -> None:
    """Train one more trial of each encoding, several at a time."""
    jobs = [_next(prepared, candidate) for candidate in batch]
    works = [work for c, job in zip(batch, jobs, strict=True) if (work := work_of(prepared, job, c.planned))]
    _run(prepared, works, workers, console)
    for candidate, job in zip(batch, jobs, strict=True):
        trial = _read(prepared, candidate.planned, len(candidate.trials)) or Trial(job.tuned, None)
        candidate.trials.append(trial)
        checkpoint = prepared.out / "jobs" / job.name / "checkpoint.pt"
        checkpoint.unlink(missing_ok=True)  # no longer needed, and there is one per trial
        shown = "failed" if trial.loss is None else f"loss {trial.loss:.4f}"
        console.print(f"{job.spec}, {job.trial}: {describe_factors(job.tuned)}: {shown}")


def _next(prepared: PreparedRun, candidate: _Candidate) -> Job:
    """The job of the next trial: one that was begun before, or what is proposed."""
    planned, number = candidate.planned, len(candidate.trials)
    begun = _begun(prepared, planned, number)
    if begun is not None:
        return begun
    tuned = propose(planned.spec, candidate.trials, candidate.default)
    return prepared.job(planned, 0, tuned, f"trial{number}")


def _run(prepared: PreparedRun, works: list[Work], workers: int | None, console: Console) -> None:
    resources = Resources.of(prepared.config.machine, workers, prepared.out)
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
