"""The main job from beginning to end: plan, jobs, report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console

from posenc.lab.cost.measured import costs_of_run
from posenc.lab.cost.store import read_cost
from posenc.lab.extras import load
from posenc.lab.machine import available_cores
from posenc.lab.plan import Plan, Prepared, prepare
from posenc.lab.progress import Display
from posenc.lab.report.page import Page, Part
from posenc.lab.results import read_measured
from posenc.lab.runners import distributed, ranks
from posenc.lab.runners.local import run_local
from posenc.lab.runners.pending import Pending
from posenc.lab.runners.slurm import run_slurm
from posenc.lab.stopping import FailedJobsError
from posenc.lab.tasks import task_of
from posenc.lab.tasks.task import Numbers
from posenc.lab.text.profiles import Settings
from posenc.lab.train import make_accelerator

RUNNERS = ("local", "slurm", "ray")


def compare(plan: Plan, console: Console) -> Path:
    """Run a plan to its report and return the folder.

    Raises:
        ValueError: for anything about the plan that cannot work, before any job starts.
        FailedJobsError: after all other jobs have run and the report has been written.
    """
    if plan.runner not in RUNNERS:
        raise ValueError(f"--runner {plan.runner}: {', '.join(RUNNERS)} is needed")
    if plan.runner == "ray":
        _ray()  # if it is not installed, that is said before any work is done
    if ranks.count() > 1:
        return _compare_distributed(plan, console)
    prepared = prepare(plan, console, processes=1)
    failures = _run(plan, prepared, console)
    _finish(plan, prepared, console)
    if failures:
        raise FailedJobsError("\n".join(failures))
    return plan.out


def _run(plan: Plan, prepared: Prepared, console: Console) -> list[str]:
    pending, failures = prepared.pending, list[str]()
    if not pending:
        console.print("All jobs are finished already; writing the report again.")
        return []
    with Display(console, plan.out, prepared.settings, pending, prepared.finished) as display:
        for phase in sorted({work.phase for work in pending}):
            part = [work for work in pending if work.phase == phase]
            failures += _run_phase(plan, prepared.settings, part, console, display)
    return failures


def _run_phase(plan: Plan, settings: Numbers, pending: list[Pending], console: Console, display: Display) -> list[str]:
    """Jobs that do not wait for each other."""
    if plan.runner == "slurm":
        console.print(f"{len(pending)} jobs handed to {plan.slurm.cluster}; results in {plan.out}")
        return run_slurm(pending, plan.slurm, plan.out / "slurm", threads=settings.threads, on_poll=display.poll)
    if plan.runner == "ray":
        gpus = int(settings.device.startswith("cuda"))
        console.print(f"{len(pending)} jobs handed to Ray (--ray-address {plan.ray_address}); results in {plan.out}")
        return _ray()(
            pending, plan.ray_address, workers=plan.workers, threads=settings.threads, gpus=gpus, on_poll=display.poll,
            on_restart=console.print,
        )  # fmt: skip
    gpus = torch.cuda.device_count() if settings.device.startswith("cuda") else 0
    workers = plan.workers or gpus or max(1, available_cores() // settings.threads)
    jobs = "1 job" if len(pending) == 1 else f"{len(pending)} jobs, {min(workers, len(pending))} at a time"
    console.print(f"{jobs}; results in {plan.out}")
    return run_local(
        pending, workers=workers, threads=settings.threads, gpus=gpus, on_poll=display.poll, on_restart=console.print
    )


def _ray() -> Callable[..., list[str]]:
    """`run_ray`, whose module needs what the extra ``ray`` brings."""
    module = "posenc.lab.runners.ray_cluster"
    runner: Callable[..., list[str]] = load(module, "run_ray", packages=("ray",), extra="ray", user="--runner ray")
    return runner


def _finish(plan: Plan, prepared: Prepared, console: Console) -> None:
    """Write the report of whatever is there, and show it."""
    record = prepared.record
    task = task_of(record.settings)
    rows = task.rows(read_measured(plan.out))
    if not rows:
        return
    paths = task.write_report(plan.out, rows, record)
    costs = [read_cost(plan.out)] if (plan.out / "cost.jsonl").exists() else []
    paths.append(Page([Part(rows, record)], costs).write(plan.out))
    if plan.cost and isinstance(record.settings, Settings):
        specs = [row.spec for row in rows]
        costs = [costs_of_run(plan.out, specs, record.settings, plan.profile.name, console, command=record.command)]
        Page([Part(rows, record)], costs).write(plan.out)
    console.print()
    console.print(task.table(rows, record.settings))
    for part, style in task.closing(rows, record):
        console.print(part, style=style or None)
    console.print(f"\nWritten to {plan.out}: {', '.join(path.name for path in paths)}")


def _compare_distributed(plan: Plan, console: Console) -> Path:
    """The same under torchrun. Only rank 0 touches files, so what it finds wrong must reach the others."""
    if plan.runner != "local":
        raise ValueError(f"--runner {plan.runner} and torchrun exclude each other: choose one")
    first = ranks.is_first()
    cpu = plan.profile.settings.device == "cpu" or not torch.cuda.is_available()
    distributed.meet(cpu)
    prepared = _from_first(lambda: prepare(plan, console, ranks.count()) if first else None)
    accelerator = make_accelerator(prepared.settings)
    with Display(console, plan.out, prepared.settings, prepared.pending, prepared.finished) as display:
        failures = distributed.run_distributed(prepared.pending, accelerator, on_poll=display.poll)
    if first:
        _finish(plan, prepared, console)
    accelerator.wait_for_everyone()
    if failures:
        raise FailedJobsError("\n".join(failures))
    return plan.out


def _from_first(prepare: Callable[[], Prepared | None]) -> Prepared:
    outcome: object = None
    try:
        outcome = prepare()
    except ValueError as error:
        outcome = error
    shared = distributed.first_decides(outcome)
    if isinstance(shared, ValueError):
        raise shared
    if not isinstance(shared, Prepared):
        raise TypeError(f"rank 0 prepared {type(shared).__name__}")
    return shared
