"""Finds learning rates by training each encoding on one grid, and writes them where `posenc compare` reads them.

    OUT/tune/         a run folder with a job for each training; records.parquet has the losses and curves
    OUT/trials.csv    every training of the search: its factors, its seed and its loss
    OUT/tuned.json    the factors chosen, the losses behind them, and the procedure; encodings that are not tuned again
                      keep their entries

The settings are the comparison's. The criterion is the loss over the last twentieth of a training, on text or
sequences not trained on before, as a mean over two seeds. All trainings of a seed see the same batches, so that their
losses differ by the rates alone. The comparison's own measurements are never looked at: nothing is tuned on them.

The grid is the same for all encodings, so that no row of a table owes its place to a better search: five common rates,
in steps of √2 around 2.83 times the profile's, and where an encoding has parameters, each of them with three rates of
their own, in steps of √10 around the encoding's. Where the best point lies at an edge, the grid grows there by one step
and the search goes on. What is tried next is a function of the losses so far, so that a run can be stopped and resumed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from posenc.lab.execute.executor import Executor, Resources, started
from posenc.lab.execute.local import Local
from posenc.lab.execute.mapping import map_jobs
from posenc.lab.files import write_atomically
from posenc.lab.run.folder import FILE, TRIALS, collect_records, read_run
from posenc.lab.run.job import Job, open_job, read_job, read_rows, refuse_difference
from posenc.lab.run.optimizer import Tuned, describe_factors, read_earlier_tuning, write_tuned
from posenc.lab.run.planning import PreparedRun, RunRequest, prepare, work_of
from posenc.lab.run.progress import Display
from posenc.lab.run.reproduce import check_reproduction
from posenc.lab.specs import build_for_inspection
from posenc.lab.tasks import task_named
from posenc.lab.tasks.task import Planned

FOLDER, SEEDS = "tune", 2
COMMON_RATES = range(1, 6)  # exponents of √2, times the profile's rate
OWN_RATES = (-1, 0, 1)  # exponents of √10, times the encoding's own rate
LIMITS = ((-4, 12), (-5, 5))  # to which the grid may grow: factors of 0.25 to 64, and of 0.003 to 316
PROCEDURE = (
    "grid of common rates (5 steps of √2 around × 2.83) and own rates (3 steps of √10 around the encoding's), every "
    f"combination, {SEEDS} seeds, grown at edges"
)
Exponents = tuple[int, ...]  # of the common rate and, where an encoding has parameters, of their own rate
_COLUMNS = ["spec", "trial", "seed", "lr", "own", "train_loss"]


@dataclass(frozen=True)
class Conclusion:
    """What the trainings of an encoding say: the factors of the least mean loss, and that loss."""

    tuned: Tuned
    loss: float
    points: int  # of the grid that were tried
    at_limit: bool  # whether the best point lies where the grid may grow no further


@dataclass
class Search:
    """The search for the rates of one encoding.

    Args:
        own_rate: the encoding's own rate relative to the model's; None for an encoding without parameters.
    """

    own_rate: float | None
    losses: dict[tuple[Exponents, int], float | None] = field(default_factory=dict)  # by point and seed; None: failed

    @property
    def points(self) -> list[Exponents]:
        """The grid in the order of its trials: as it began, and as the losses have made it grow."""
        points = list(itertools.product(COMMON_RATES, *([] if self.own_rate is None else [OWN_RATES])))
        while (grown := self._grown(points)) != points:
            points = grown
        return points

    def untried(self) -> list[tuple[int, Exponents, int]]:
        """The trainings that are due: number of the trial, point and seed; none at the end of the search."""
        every = itertools.product(enumerate(self.points), range(SEEDS))
        return [(number, point, seed) for (number, point), seed in every if (point, seed) not in self.losses]

    def mean_losses(self) -> dict[Exponents, float]:
        """The mean over the seeds of each point that was tried with all of them; infinite where one failed."""
        means = {}
        for point in {point for point, _ in self.losses}:
            of_point = [self.losses.get((point, seed), math.nan) for seed in range(SEEDS)]
            mean = float(np.mean([math.inf if loss is None else loss for loss in of_point]))
            if not math.isnan(mean):
                means[point] = mean
        return means

    def conclude(self, spec: str) -> Conclusion:
        """The best point; a ValueError that names ``spec`` where every training failed."""
        means = self.mean_losses()
        best = self._best(list(means), means)
        if not math.isfinite(means[best]):
            raise ValueError(f"{spec}: every training of the search has failed; see their logs in {FOLDER}/jobs")
        at_limit = any(value in limit for value, limit in zip(best, LIMITS, strict=False))
        return Conclusion(self.factors(best), means[best], len(means), at_limit)

    def factors(self, point: Exponents) -> Tuned:
        """From a point to factors."""
        factors = {"lr": 2.0 ** (point[0] / 2)}
        return factors if self.own_rate is None else {**factors, "own": self.own_rate * 10.0 ** (point[1] / 2)}

    def _grown(self, points: list[Exponents]) -> list[Exponents]:
        """The grid with a further line at each edge that the best point lies on; the same until all were tried."""
        means = self.mean_losses()
        if any(point not in means for point in points) or not math.isfinite(min(means[point] for point in points)):
            return points
        best, axes = self._best(points, means), list[list[int]]()
        for value, values, (least, most) in zip(best, map(set, zip(*points, strict=True)), LIMITS, strict=False):
            low, high = min(values), max(values)
            low -= value == low > least
            high += value == high < most
            axes.append(list(range(low, high + 1)))
        return [*points, *(point for point in itertools.product(*axes) if point not in points)]

    @staticmethod
    def _best(points: Sequence[Exponents], means: Mapping[Exponents, float]) -> Exponents:
        return min(points, key=lambda point: (means[point], point))


@dataclass
class _Candidate:
    """One encoding that is being tuned."""

    planned: Planned
    search: Search


def tune(
    request: RunRequest, workers: int | None, console: Console, executor: Executor | None = None
) -> dict[str, Conclusion]:
    """Search the rates of each encoding of a comparison, and write OUT/trials.csv and OUT/tuned.json.

    Args:
        request: the comparison.
        workers: jobs at a time; None: as many as this machine has cores or GPUs for.
        console: shows progress and results.
        executor: runs the trainings; default: processes of this machine.

    Raises:
        ValueError: for anything about the comparison that cannot work, before any training starts.
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
    earlier = read_earlier_tuning(request.out, prepared.config.deciding(), prepared.data.identity())
    candidates = [_candidate(prepared, dataclasses.replace(planned, rows=())) for planned in prepared.planned]
    if any(candidate.search.untried() for candidate in candidates):
        check_reproduction(prepared, console)
    while any(candidate.search.untried() for candidate in candidates):
        _train(prepared, candidates, workers, console, executor or Local())
    collect_records(prepared.out)
    _write_trials(request.out / TRIALS, candidates)
    conclusions = {c.planned.spec: c.search.conclude(c.planned.spec) for c in candidates}
    losses = {spec: {"best": conclusion.loss, "points": conclusion.points} for spec, conclusion in conclusions.items()}
    facts = {"numbers": prepared.config.deciding(), "data": prepared.data.identity(), "versions": prepared.versions}
    chosen = {**earlier.encodings, **{spec: conclusion.tuned for spec, conclusion in conclusions.items()}}
    procedures = {**earlier.procedures, **dict.fromkeys(conclusions, PROCEDURE)}
    more = {"losses": {**earlier.losses, **losses}, "procedures": procedures, "command": prepared.run.command}
    write_tuned(request.out, chosen, {**more, **facts})
    return conclusions


def _candidate(prepared: PreparedRun, planned: Planned) -> _Candidate:
    """An encoding with the trainings that were finished before."""
    rates = build_for_inspection(planned.spec, prepared.task.shape(planned.config)).lr_multipliers.values()
    candidate = _Candidate(planned, Search(max(rates) if rates else None))
    while finished := {
        (point, seed): loss
        for number, point, seed in candidate.search.untried()
        if (loss := _read(prepared, _job(prepared, candidate, number, point, seed))) is not None
    }:
        candidate.search.losses |= finished
    return candidate


def _job(prepared: PreparedRun, candidate: _Candidate, number: int, point: Exponents, seed: int) -> Job:
    return prepared.job(candidate.planned, seed, candidate.search.factors(point), f"trial{number}")


def _read(prepared: PreparedRun, job: Job) -> float | None:
    """The loss of a finished training; None if it is not finished, or was never begun."""
    if not (prepared.out / "jobs" / job.name).exists():
        return None
    folder = open_job(prepared.out, job)
    rows = read_rows(folder, read_job(folder))
    if rows is None:
        return None
    loss = float(rows[0].loc[rows[0]["metric"] == "train_loss", "value"].iloc[0])
    return loss if math.isfinite(loss) else math.inf


def _train(
    prepared: PreparedRun, candidates: Sequence[_Candidate], workers: int | None, console: Console, executor: Executor
) -> None:
    """Make every training that is due."""
    due = [(c, trial, _job(prepared, c, *trial)) for c in candidates for trial in c.search.untried()]
    works = [work for c, _, job in due if (work := work_of(prepared, job, c.planned))]
    resources = Resources.of(prepared.config.machine, workers, prepared.out)
    with Display(console, works, 0, 1.0, lambda: None) as display, started(executor, resources):
        failures = map_jobs(executor, works, workers=resources.workers, on_poll=display.poll, on_restart=console.print)
    for line in failures:  # such a training has no loss
        console.print(line)
    for candidate, (_, point, seed), job in due:
        loss = _read(prepared, job)
        candidate.search.losses[point, seed] = loss
        checkpoint = prepared.out / "jobs" / job.name / "checkpoint.pt"
        checkpoint.unlink(missing_ok=True)  # no longer needed, and there is one for each training
        shown = "failed" if loss is None else f"loss {loss:.4f}"
        console.print(f"{job.spec}, {job.trial}, seed {seed}: {describe_factors(job.tuned)}: {shown}")


def _write_trials(path: Path, candidates: Sequence[_Candidate]) -> None:
    """Write trials.csv; lines of encodings that are not asked for this time stay."""
    names = [candidate.planned.spec for candidate in candidates]
    before = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=_COLUMNS)
    lines = [
        {"spec": c.planned.spec, "trial": number, "seed": seed, **c.search.factors(point),
         "train_loss": c.search.losses[point, seed]}
        for c in candidates
        for number, point in enumerate(c.search.points)
        for seed in range(SEEDS)
    ]  # fmt: skip
    new = pd.DataFrame(lines, columns=_COLUMNS)
    table = pd.concat([part for part in (before[~before["spec"].isin(names)], new) if len(part)], ignore_index=True)
    write_atomically(path, table.to_csv(index=False, float_format="%.6g").encode())
