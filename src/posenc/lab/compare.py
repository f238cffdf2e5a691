"""The main job from beginning to end: plan, jobs, report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from rich.console import Console, RenderableType

from posenc.lab.cost.costs import Costs
from posenc.lab.cost.measure import LENGTHS, SECONDS, costs_of_run
from posenc.lab.execute import ranks
from posenc.lab.execute.mapping import map_jobs
from posenc.lab.execute.processes import Processes
from posenc.lab.execute.work import DiedError, Executor, Needs
from posenc.lab.plugins import is_plugin, load_function, load_optional
from posenc.lab.report.numbers import build_table
from posenc.lab.report.render import terminal_summary, write_report
from posenc.lab.report.tables import terminal_table
from posenc.lab.run.folder import collect_records, read_run
from posenc.lab.run.job import Work
from posenc.lab.run.machine import available_cores
from posenc.lab.run.planning import PreparedRun, RunRequest, jobs_of, prepare
from posenc.lab.run.progress import Display
from posenc.lab.run.reproduce import check_reproduction
from posenc.lab.run.run_job import run_job
from posenc.lab.run.stopping import FailedJobsError
from posenc.lab.run.train import make_accelerator
from posenc.lab.specs import is_schedule

RUNNERS = ("local", "slurm", "ray")


@dataclass(frozen=True)
class ExecutionConfig:
    """Where jobs run."""

    runner: str = "local"
    workers: int | None = None
    slurm: dict[str, Any] = field(default_factory=dict)  # of `SlurmOptions`
    ray_address: str = "auto"
    cost: bool = False  # whether to measure what the encodings cost, when all jobs are done

    @property
    def elsewhere(self) -> bool:
        """Whether other machines run them."""
        return (
            self.runner == "slurm" or (self.runner == "ray" and self.ray_address != "local") or is_plugin(self.runner)
        )


def compare(request: RunRequest, execution: ExecutionConfig, console: Console) -> Path:
    """Run a plan to its report and return the folder.

    Raises:
        ValueError: for anything about the plan that cannot work, before any job starts.
        FailedJobsError: after all other jobs have run and the report has been written.
    """
    if execution.runner not in RUNNERS and not is_plugin(execution.runner):
        raise ValueError(f"--runner {execution.runner}: {', '.join(RUNNERS)} or my_module:my_executor is needed")
    if execution.runner == "ray":
        _ray()  # if it is not installed, that is said before any work is done
    if ranks.count() > 1:
        return _compare_distributed(request, execution, console)
    prepared = prepare(request, console)
    works, finished = jobs_of(prepared, request.profile.seeds, console)
    if works:
        check_reproduction(prepared, console)
    failures = run_jobs(prepared, works, finished, execution, console)
    costs = None
    if execution.cost and not failures:
        specs = [one.spec for one in prepared.planned if not is_schedule(one.spec)]  # costs are those of one layer
        command = prepared.run.command.splitlines()[-1]
        lengths, seconds = LENGTHS[request.profile.name], SECONDS[request.profile.name]
        costs = costs_of_run(prepared.out, specs, prepared.config, lengths, seconds, console, command=command)
    finish(prepared.out, console, costs)
    if failures:
        raise FailedJobsError("\n".join(failures))
    return prepared.out


def run_jobs(
    prepared: PreparedRun, works: list[Work], finished: int, execution: ExecutionConfig, console: Console
) -> list[str]:
    """Run what remains to be done; returns a line for each job that failed."""
    if not works:
        console.print("All jobs are finished already; writing the report again.")
        return []
    share = prepared.task.train_share(prepared.config)
    with (
        Display(console, works, finished, share, partial(_table_so_far, prepared.out)) as display,
        executor_of(prepared, execution, console) as (executor, at_a_time, died),
    ):
        jobs = "1 job" if len(works) == 1 else f"{len(works)} jobs"
        console.print(f"{jobs}, {execution.runner}; results in {prepared.out}")
        return map_jobs(
            executor, works, workers=at_a_time, on_poll=display.poll, on_restart=console.print, died=died
        )  # fmt: skip


@contextmanager
def executor_of(
    prepared: PreparedRun, execution: ExecutionConfig, console: Console
) -> Iterator[tuple[Executor, int | None, tuple[type[BaseException], ...]]]:
    """The executor, how many jobs it is handed at a time, and by which errors it says that a process died."""
    machine = prepared.config.machine
    gpus = max(1, torch.cuda.device_count()) if machine.device.startswith("cuda") else 0
    workers = execution.workers or gpus or max(1, available_cores() // machine.threads)
    needs = Needs(workers, machine.threads, gpus)
    executor, at_a_time, died = _executor(prepared, execution, needs, console)
    try:
        yield executor, at_a_time, (*died, DiedError)
    finally:
        getattr(executor, "shutdown", lambda: None)()


def _executor(
    prepared: PreparedRun, execution: ExecutionConfig, needs: Needs, console: Console
) -> tuple[Any, int | None, tuple[type[BaseException], ...]]:
    if execution.runner == "local":
        return Processes(needs), needs.workers, ()
    if execution.runner == "slurm":
        from posenc.lab.execute.slurm import Slurm, SlurmOptions

        return Slurm(SlurmOptions(**execution.slurm), prepared.out / "slurm", needs), None, ()
    if execution.runner == "ray":
        module = _ray()
        return module.RayCluster(execution.ray_address, needs, console.print), execution.workers, module.DIED
    return load_function(execution.runner)(needs), execution.workers, ()


def _ray() -> Any:
    """The module that needs what the extra ``ray`` brings."""
    return load_optional("posenc.lab.execute.ray_cluster", packages=("ray",), extra="ray", user="--runner ray")


def _table_so_far(out: Path) -> RenderableType | None:
    run = read_run(out)
    return None if run.records.empty else terminal_table(run, build_table(run))


def finish(out: Path, console: Console, costs: Costs | None = None) -> None:
    """Write the report of whatever is there, and show it."""
    collect_records(out)
    run = read_run(out)
    if run.records.empty:
        return
    paths = write_report([run], out, costs=costs)
    console.print()
    console.print(terminal_table(run, build_table(run)))
    for line in terminal_summary([run]):
        console.print(line)
    console.print(f"\nWritten to {out}: {', '.join(str(path.relative_to(out)) for path in paths)}")


def _compare_distributed(request: RunRequest, execution: ExecutionConfig, console: Console) -> Path:
    """The same under torchrun. Only rank 0 touches files, so what it finds wrong must reach the others."""
    if execution.runner != "local":
        raise ValueError(f"--runner {execution.runner} and torchrun exclude each other: choose one")
    first = ranks.is_first()
    cpu = request.profile.config.machine.device == "cpu" or not torch.cuda.is_available()
    PartialState(cpu=cpu, timeout=timedelta(days=1))  # ranks wait for each other: rank 0 alone measures and reports
    prepared, works, finished = _from_first(lambda: _all(request, console) if first else None)
    accelerator, failures = make_accelerator(prepared.config), list[str]()
    if works:
        check_reproduction(prepared, console, accelerator)
    with Display(console, works, finished, prepared.task.train_share(prepared.config), lambda: None) as display:
        for work in works:
            on_progress = partial(display.poll, [work.name])
            try:
                run_job(work.folder, work.rows, accelerator=accelerator, on_progress=on_progress)
            except ValueError as error:
                failures.append(f"{work.name}: {error}")
            display.poll([])
    if first:
        finish(prepared.out, console)
    accelerator.wait_for_everyone()
    if failures:
        raise FailedJobsError("\n".join(failures))
    return prepared.out


def _all(request: RunRequest, console: Console) -> tuple[PreparedRun, list[Work], int]:
    prepared = prepare(request, console, processes=ranks.count())
    works, finished = jobs_of(prepared, request.profile.seeds, console)
    return prepared, works, finished


def _from_first(make: Callable[[], tuple[PreparedRun, list[Work], int] | None]) -> tuple[PreparedRun, list[Work], int]:
    """What rank 0 made, or the error that it met, on all ranks."""
    outcome: object = None
    try:
        outcome = make()
    except ValueError as error:
        outcome = error
    shared = [outcome]
    broadcast_object_list(shared)
    if isinstance(shared[0], ValueError):
        raise shared[0]
    found: tuple[PreparedRun, list[Work], int] = shared[0]  # type: ignore[assignment]
    return found
