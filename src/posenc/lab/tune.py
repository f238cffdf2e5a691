"""``posenc tune``: learning rates for each encoding from one table of rates, alike for all.

    OUT/tune/         a run folder with a job for each training; records.parquet has the losses and curves
    OUT/trials.csv    every training: its factors, its seed and its loss
    OUT/tuned.json    the factors chosen and the procedure; encodings that are not tuned again keep their entries

Five common rates, in steps of √2 around 2.83 times the profile's (``--rates``); where an encoding has parameters, each
of them with three rates of their own, in steps of √10 around the encoding's. The criterion is the loss over the last
twentieth of a training, on text or sequences not trained on before, as a mean over two seeds. All trainings of a seed
see the same batches, so that their losses differ by the rates alone; what compare scores is never looked at. Where the
best rate is the first or the last of the table, the command says so: a table further along decides.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import pandas as pd

from posenc.lab.cli_options import add_training, chosen, reading
from posenc.lab.compare import profile_of
from posenc.lab.console import plain_console, stoppable
from posenc.lab.execute.executor import Resources, make_executor, map_jobs, started
from posenc.lab.files import Factors, write_atomically
from posenc.lab.plugins import ImportAllowlist, allow_imports, is_plugin
from posenc.lab.run.folder import FILE as RUN
from posenc.lab.run.folder import collect_records, read_run
from posenc.lab.run.job import (
    TRIALS,
    TUNED,
    Job,
    describe_factors,
    factors_of,
    open_job,
    read_results,
    read_tuned,
    refuse_difference,
    write_tuned,
)
from posenc.lab.run.planning import PreparedRun, RunRequest, default_folder, prepare, work_of
from posenc.lab.run.progress import Display
from posenc.lab.specs import build_for_inspection, plugin_names
from posenc.lab.tasks import TASKS, task_named
from posenc_cli.parsing import Parser

FOLDER, SEEDS = "tune", 2
RATES = (1.414, 2, 2.828, 4, 5.657)  # times the profile's rate
OWN_RATES = (10**-0.5, 1.0, 10**0.5)  # times the encoding's own rate


def tune_options(parser: Parser) -> None:
    """The options of ``posenc tune``."""
    add = parser.add_argument
    add("--task", default="text", help="as in compare; not images (default: %(default)s)")
    add("--profile", default="quick", help="quick, standard or full (default: %(default)s)")
    add("--data", help="as in compare")
    rates = ",".join(f"{rate:g}" for rate in RATES)
    text = f"common rates to try, as factors of the profile's (default: {rates})"
    add("--rates", default=RATES, type=reading(tuple), help=text)
    add("--out", type=Path, metavar="FOLDER", help="of the run (default: the one of compare)")
    add_training(parser, [task_named(name).options for name in TASKS])


def tune_command(o: Namespace, command: str) -> None:
    """Find learning rates for each encoding, and write them where compare reads them: tuned.json in the run's folder.

    Give the numbers that compare will be given. All encodings are tried with one table: 5 common rates and, where an
    encoding has parameters, 3 rates of their own with each; two seeds. That is 10 or 30 trainings of each encoding.
    What compare scores is never looked at. Stop it any way you like: the same command goes on.
    """
    table = tuple(map(float, o.rates))  # as tuned.json and job.json have them
    if any(not rate > 0 for rate in table):
        raise ValueError(f"--rates {','.join(map(str, table))}: factors above 0 are needed")
    typed = plugin_names([*o.encodings, *filter(is_plugin, (o.task,))])
    with allow_imports(ImportAllowlist(frozenset(typed), o.classes_from)), stoppable(command):
        task = task_named(o.task)
        profile = profile_of(task, o.profile, o.encodings, None)
        profile = dataclasses.replace(profile, config=chosen(o, profile.config))
        folder = default_folder(o.task, profile.name) if o.out is None else o.out
        tune(RunRequest(profile, task.source if o.data is None else o.data, folder, command), table, o.workers)


def tune(request: RunRequest, rates: tuple[float, ...], workers: int | None) -> dict[str, Factors]:
    """Try the table of rates for each encoding of a comparison, and write OUT/trials.csv and OUT/tuned.json.

    Args:
        request: the comparison.
        rates: common rates, as factors of the profile's.
        workers: jobs at a time; None: as many as this machine has cores or GPUs for.

    Returns:
        The chosen factors by spec.

    Raises:
        ValueError: for anything about the comparison that cannot work, before any training starts.
    """
    task, console = task_named(request.profile.config.task), plain_console()
    if not task.fresh:
        raise ValueError(f"--task {task.name}: its training repeats its data, so that its loss cannot judge a rate")
    prepared = prepare(dataclasses.replace(request, out=request.out / FOLDER), console)
    numbers, data = prepared.config.deciding(), prepared.data.identity()
    if (request.out / RUN).exists():
        refuse_difference(request.out / TUNED, {"numbers": read_run(request.out).numbers}, {"numbers": numbers})
    numbers = json.loads(json.dumps(numbers))  # as a file has them
    earlier = read_tuned(request.out)
    if earlier["encodings"] and (earlier.get("numbers"), earlier.get("data")) != (numbers, data):
        raise ValueError(f"{request.out / TUNED} is of other numbers or data: move it away, or choose another --out")
    trials = [job for spec in prepared.specs for job in _trials(prepared, spec, rates)]
    works = [work for job in trials if (work := work_of(prepared, job))]
    resources, executor = Resources.of(prepared.config.machine, workers, prepared.out), make_executor("local", {})
    with Display(console, works, 0, lambda: None) as display, started(executor, resources):
        failures = map_jobs(executor, works, workers=resources.workers, on_poll=display.poll, on_restart=console.print)
    for line in failures:  # such a training has no loss
        console.print(line)
    collect_records(prepared.out)
    frame = pd.DataFrame([_line(prepared, job) for job in trials])
    chosen_factors = {
        spec: _best(str(spec), part, rates, console.print) for spec, part in frame.groupby("spec", sort=False)
    }
    before = pd.read_csv(request.out / TRIALS) if (request.out / TRIALS).exists() else frame[:0]
    remaining = before[~before["spec"].isin(list(chosen_factors))]
    every = pd.concat([part for part in (remaining, frame) if len(part)], ignore_index=True)
    write_atomically(request.out / TRIALS, every.to_csv(index=False, float_format="%.6g").encode())
    procedure = (
        f"table of common rates × {', '.join(f'{rate:g}' for rate in rates)} and own rates (3 steps of √10 around the "
        f"encoding's), every combination, {SEEDS} seeds"
    )
    facts = {
        "procedures": {**earlier.get("procedures", {}), **dict.fromkeys(chosen_factors, procedure)},
        "numbers": numbers, "data": data, "versions": prepared.versions, "command": prepared.run.command,
    }  # fmt: skip
    write_tuned(request.out, {**factors_of(request.out), **chosen_factors}, facts)
    console.print(f"Written to {request.out / TUNED}; posenc compare reads it there.")
    return chosen_factors


def _trials(prepared: PreparedRun, spec: str, rates: tuple[float, ...]) -> list[Job]:
    """The trainings of an encoding: every combination of its rates, from each seed."""
    multipliers = build_for_inspection(spec, prepared.task.shape(prepared.config)).lr_multipliers.values()
    table: list[Factors] = [
        {"lr": rate, "own": max(multipliers) * factor} for rate, factor in itertools.product(rates, OWN_RATES)
    ] if multipliers else [{"lr": rate} for rate in rates]  # fmt: skip
    return [
        prepared.job(spec, seed, factors, f"trial{number}")
        for number, factors in enumerate(table)
        for seed in range(SEEDS)
    ]


def _line(prepared: PreparedRun, job: Job) -> dict[str, Any]:
    """A line of trials.csv; a training that failed, or diverged, has no loss. Its checkpoint is no longer needed."""
    folder = open_job(prepared.out, job)
    records = read_results(folder, job)
    (folder / "checkpoint.pt").unlink(missing_ok=True)
    loss = math.nan if records is None else float(records.loc[records["metric"] == "train_loss", "value"].iloc[0])
    factors = {"lr": job.tuned["lr"], "own": job.tuned.get("own", math.nan)}
    return {"spec": job.spec, "trial": job.trial, "seed": job.seed, **factors, "train_loss": loss}


def _best(spec: str, trials: pd.DataFrame, rates: tuple[float, ...], say: Any) -> Factors:
    """The factors of the least mean loss; a ValueError where every training failed."""
    by_trial = trials.groupby("trial", sort=False)
    means = by_trial["train_loss"].agg(lambda losses: losses.mean(skipna=False)).fillna(math.inf)
    best = str(means.idxmin())
    if not math.isfinite(means[best]):
        raise ValueError(f"{spec}: every training has failed; see their logs in {FOLDER}/jobs")
    line = trials[trials["trial"] == best].iloc[0]
    factors: Factors = {"lr": float(line["lr"])}
    if not math.isnan(line["own"]):
        factors["own"] = float(line["own"])
    at_edge = len(rates) > 1 and factors["lr"] in (min(rates), max(rates))
    edge = ", at the edge of the table: give --rates further along" if at_edge else ""
    say(f"{spec}: {describe_factors(factors)}: loss {means[best]:.4f}, the best of {len(means)} rates{edge}")
    return factors
