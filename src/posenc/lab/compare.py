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
from posenc.lab.cost.measure import costs_of_run
from posenc.lab.execute import ranks
from posenc.lab.execute.mapping import map_jobs
from posenc.lab.execute.processes import Processes
from posenc.lab.execute.work import DiedError, Executor, Needs
from posenc.lab.plugins import called, is_own, load
from posenc.lab.report.numbers import build_table
from posenc.lab.report.render import terminal_summary, write_report
from posenc.lab.report.tables import terminal_table
from posenc.lab.run.folder import collect, read_run
from posenc.lab.run.job import Work
from posenc.lab.run.machine import available_cores
from posenc.lab.run.planning import Asked, Ready, jobs_of, prepare
from posenc.lab.run.progress import Display
from posenc.lab.run.reproduce import check_reproduction
from posenc.lab.run.run_job import bring
from posenc.lab.run.stopping import FailedJobsError
from posenc.lab.run.train import make_accelerator
from posenc.lab.specs import is_schedule

RUNNERS = ("local", "slurm", "ray")


@dataclass(frozen=True)
class How:
    """Where jobs run."""

    runner: str = "local"
    workers: int | None = None
    slurm: dict[str, Any] = field(default_factory=dict)  # of `SlurmOptions`
    ray_address: str = "auto"
    cost: bool = False  # whether to measure what the encodings cost, when all jobs are done

    @property
    def elsewhere(self) -> bool:
        """Whether other machines run them."""
        return self.runner == "slurm" or (self.runner == "ray" and self.ray_address != "local") or is_own(self.runner)


def compare(asked: Asked, how: How, console: Console) -> Path:
    """Run a plan to its report and return the folder.

    Raises:
        ValueError: for anything about the plan that cannot work, before any job starts.
        FailedJobsError: after all other jobs have run and the report has been written.
    """
    if how.runner not in RUNNERS and not is_own(how.runner):
        raise ValueError(f"--runner {how.runner}: {', '.join(RUNNERS)} or my_module:my_executor is needed")
    if how.runner == "ray":
        _ray()  # if it is not installed, that is said before any work is done
    if ranks.count() > 1:
        return _compare_distributed(asked, how, console)
    ready = prepare(asked, console)
    works, finished = jobs_of(ready, asked.profile.seeds, console)
    if works:
        check_reproduction(ready, console)
    failures = run_jobs(ready, works, finished, how, console)
    costs = None
    if how.cost and not failures:
        specs = [one.spec for one in ready.planned if not is_schedule(one.spec)]  # costs are those of one layer
        command = ready.run.command.splitlines()[-1]
        costs = costs_of_run(ready.out, specs, ready.config, asked.profile.name, console, command=command)
    finish(ready.out, console, costs)
    if failures:
        raise FailedJobsError("\n".join(failures))
    return ready.out


def run_jobs(ready: Ready, works: list[Work], finished: int, how: How, console: Console) -> list[str]:
    """Run what remains to be done; returns a line for each job that failed."""
    if not works:
        console.print("All jobs are finished already; writing the report again.")
        return []
    share = ready.task.train_share(ready.config)
    with (
        Display(console, works, finished, share, partial(_table_so_far, ready.out)) as display,
        executor_of(ready, how, console) as (executor, at_a_time, died),
    ):
        jobs = "1 job" if len(works) == 1 else f"{len(works)} jobs"
        console.print(f"{jobs}, {how.runner}; results in {ready.out}")
        return map_jobs(
            executor, works, workers=at_a_time, on_poll=display.poll, on_restart=console.print, died=died
        )  # fmt: skip


@contextmanager
def executor_of(
    ready: Ready, how: How, console: Console
) -> Iterator[tuple[Executor, int | None, tuple[type[BaseException], ...]]]:
    """The executor, how many jobs it is handed at a time, and by which errors it says that a process died."""
    machine = ready.config.machine
    gpus = max(1, torch.cuda.device_count()) if machine.device.startswith("cuda") else 0
    workers = how.workers or gpus or max(1, available_cores() // machine.threads)
    needs = Needs(workers, machine.threads, gpus)
    executor, at_a_time, died = _executor(ready, how, needs, console)
    try:
        yield executor, at_a_time, (*died, DiedError)
    finally:
        getattr(executor, "shutdown", lambda: None)()


def _executor(
    ready: Ready, how: How, needs: Needs, console: Console
) -> tuple[Any, int | None, tuple[type[BaseException], ...]]:
    if how.runner == "local":
        return Processes(needs), needs.workers, ()
    if how.runner == "slurm":
        from posenc.lab.execute.slurm import Slurm, SlurmOptions

        return Slurm(SlurmOptions(**how.slurm), ready.out / "slurm", needs), None, ()
    if how.runner == "ray":
        module = _ray()
        return module.RayCluster(how.ray_address, needs, console.print), how.workers, module.DIED
    return called(how.runner)(needs), how.workers, ()


def _ray() -> Any:
    """The module that needs what the extra ``ray`` brings."""
    return load("posenc.lab.execute.ray_cluster", packages=("ray",), extra="ray", user="--runner ray")


def _table_so_far(out: Path) -> RenderableType | None:
    run = read_run(out)
    return None if run.records.empty else terminal_table(run, build_table(run))


def finish(out: Path, console: Console, costs: Costs | None = None) -> None:
    """Write the report of whatever is there, and show it."""
    collect(out)
    run = read_run(out)
    if run.records.empty:
        return
    paths = write_report([run], out, costs=costs)
    console.print()
    console.print(terminal_table(run, build_table(run)))
    for line in terminal_summary([run]):
        console.print(line)
    console.print(f"\nWritten to {out}: {', '.join(str(path.relative_to(out)) for path in paths)}")


def _compare_distributed(asked: Asked, how: How, console: Console) -> Path:
    """The same under torchrun. Only rank 0 touches files, so what it finds wrong must reach the others."""
    if how.runner != "local":
        raise ValueError(f"--runner {how.runner} and torchrun exclude each other: choose one")
    first = ranks.is_first()
    cpu = asked.profile.config.machine.device == "cpu" or not torch.cuda.is_available()
    PartialState(cpu=cpu, timeout=timedelta(days=1))  # ranks wait for each other: rank 0 alone measures and reports
    ready, works, finished = _from_first(lambda: _all(asked, console) if first else None)
    accelerator, failures = make_accelerator(ready.config), list[str]()
    if works:
        check_reproduction(ready, console, accelerator)
    with Display(console, works, finished, ready.task.train_share(ready.config), lambda: None) as display:
        for work in works:
            on_progress = partial(display.poll, [work.name])
            try:
                bring(work.folder, work.rows, accelerator=accelerator, on_progress=on_progress)
            except ValueError as error:
                failures.append(f"{work.name}: {error}")
            display.poll([])
    if first:
        finish(ready.out, console)
    accelerator.wait_for_everyone()
    if failures:
        raise FailedJobsError("\n".join(failures))
    return ready.out


def _all(asked: Asked, console: Console) -> tuple[Ready, list[Work], int]:
    ready = prepare(asked, console, processes=ranks.count())
    works, finished = jobs_of(ready, asked.profile.seeds, console)
    return ready, works, finished


def _from_first(make: Callable[[], tuple[Ready, list[Work], int] | None]) -> tuple[Ready, list[Work], int]:
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
    found: tuple[Ready, list[Work], int] = shared[0]  # type: ignore[assignment]
    return found
