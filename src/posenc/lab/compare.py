"""The main job from beginning to end: plan, jobs, report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rich.console import Console, RenderableType

from posenc.lab.cost.costs import Costs
from posenc.lab.cost.watched import costs_of_run
from posenc.lab.display import Display
from posenc.lab.execute import ranks, torchrun
from posenc.lab.execute.executor import Executor, Resources, started
from posenc.lab.execute.local import Local
from posenc.lab.execute.mapping import map_jobs
from posenc.lab.job import Work
from posenc.lab.planning import Asked, Ready, jobs_of, prepare
from posenc.lab.report.numbers import build_table
from posenc.lab.report.render import terminal_summary, write_report
from posenc.lab.report.tables import terminal_table
from posenc.lab.reproduce import check_reproduction
from posenc.lab.runs import collect, read_run
from posenc.lab.specs import is_schedule
from posenc.lab.stopping import FailedJobsError


@dataclass(frozen=True)
class How:
    """Where jobs run."""

    executor: Executor = field(default_factory=Local)
    workers: int | None = None
    cost: bool = False  # whether to measure what the encodings cost, when all jobs are done


def compare(request: Asked, how: How, console: Console) -> Path:
    """Run a plan to its report and return the folder; under torchrun, all ranks call it together.

    Raises:
        ValueError: for anything about the plan that cannot work, before any job starts.
        FailedJobsError: after all other jobs have run and the report has been written.
    """
    torchrun.join(request.profile.config.machine.device)
    ready, works, finished = torchrun.from_first(partial(_plan, request, console))
    if works:
        check_reproduction(ready, console)
    failures = run_jobs(ready, works, finished, how, console)
    costs = None
    if how.cost and not failures:
        specs = [
            planned.spec for planned in ready.planned if not is_schedule(planned.spec)
        ]  # costs are those of one layer
        command = ready.run.command.splitlines()[-1]
        costs = costs_of_run(ready.out, specs, ready.config, request.profile.name, console, command=command)
    if ranks.is_first():
        finish(ready.out, console, costs)
    torchrun.wait()
    if failures:
        raise FailedJobsError("\n".join(failures))
    return ready.out


def _plan(request: Asked, console: Console) -> tuple[Ready, list[Work], int]:
    ready = prepare(request, console, processes=ranks.count())
    works, finished = jobs_of(ready, request.profile.seeds, console)
    return ready, works, finished


def run_jobs(ready: Ready, works: list[Work], finished: int, how: How, console: Console) -> list[str]:
    """Run what remains to be done; returns a line for each job that failed."""
    if not works:
        console.print("All jobs are finished already; writing the report again.")
        return []
    share, resources = ready.task.train_share(ready.config), Resources.of(ready.config.machine, how.workers, ready.out)
    table: Callable[[], RenderableType | None] = partial(_table_so_far, ready.out) if ranks.is_first() else lambda: None
    with Display(console, works, finished, share, table) as display:
        resources = replace(resources, remark=console.print, progress=display.poll)
        with started(how.executor, resources) as executor:
            jobs = "1 job" if len(works) == 1 else f"{len(works)} jobs"
            console.print(f"{jobs}, {executor.name}; results in {ready.out}")
            workers = how.workers if executor.has_queue else resources.workers
            return map_jobs(executor, works, workers=workers, on_poll=display.poll, on_restart=console.print)


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
