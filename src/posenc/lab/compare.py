"""The main job from beginning to end: plan, jobs, report."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rich.console import Console, RenderableType

from posenc.lab.cost.costs import Costs
from posenc.lab.cost.measure import LENGTHS, SECONDS, costs_of_run
from posenc.lab.execute import ranks, torchrun
from posenc.lab.execute.executor import Executor, Resources, started
from posenc.lab.execute.local import Local
from posenc.lab.execute.mapping import map_jobs
from posenc.lab.report.numbers import build_table
from posenc.lab.report.render import terminal_summary, write_report
from posenc.lab.report.tables import terminal_table
from posenc.lab.run.baselines import write_baselines
from posenc.lab.run.folder import collect_records, read_run
from posenc.lab.run.job import Work
from posenc.lab.run.planning import PreparedRun, RunRequest, jobs_of, prepare
from posenc.lab.run.progress import Display
from posenc.lab.run.reproduce import check_reproduction
from posenc.lab.run.stopping import FailedJobsError
from posenc.lab.run.tracking import check_trackers
from posenc.lab.specs import is_schedule


@dataclass(frozen=True)
class ExecutionConfig:
    """Where jobs run."""

    executor: Executor = field(default_factory=Local)
    workers: int | None = None
    cost: bool = False  # whether to measure what the encodings cost, when all jobs are done


def compare(request: RunRequest, execution: ExecutionConfig, console: Console) -> Path:
    """Run a plan to its report and return the folder; under torchrun, all ranks call it together.

    Raises:
        ValueError: for anything about the plan that cannot work, before any job starts.
        FailedJobsError: after all other jobs have run and the report has been written.
    """
    torchrun.join(request.profile.config.machine.device)
    prepared, works, finished = torchrun.from_first(partial(_plan, request, console))
    if works:
        check_reproduction(prepared, console)
    failures = run_jobs(prepared, works, finished, execution, console)
    costs = None
    if execution.cost and not failures:
        # a cost is the cost of one layer, so a schedule has none
        specs = [planned.spec for planned in prepared.planned if not is_schedule(planned.spec)]
        command = prepared.run.command.splitlines()[-1]
        lengths, seconds = LENGTHS[request.profile.name], SECONDS[request.profile.name]
        costs = costs_of_run(prepared.out, specs, prepared.config, lengths, seconds, console, command=command)
    if ranks.is_first():
        finish(prepared.out, console, costs)
    torchrun.wait()
    if failures:
        raise FailedJobsError("\n".join(failures))
    return prepared.out


def _plan(request: RunRequest, console: Console) -> tuple[PreparedRun, list[Work], int]:
    check_trackers(request.trackers, elsewhere=request.elsewhere)
    prepared = prepare(request, console, processes=ranks.count())
    write_baselines(prepared.out, prepared.task, prepared.data, prepared.config)
    works, finished = jobs_of(prepared, request.profile.seeds, console)
    return prepared, [work._replace(trackers=request.trackers) for work in works], finished


def run_jobs(
    prepared: PreparedRun, works: list[Work], finished: int, execution: ExecutionConfig, console: Console
) -> list[str]:
    """Run what remains to be done; returns a line for each job that failed."""
    if not works:
        console.print("All jobs are finished already; writing the report again.")
        return []
    share = prepared.task.train_share(prepared.config)
    resources = Resources.of(prepared.config.machine, execution.workers, prepared.out)
    with Display(console, works, finished, share, partial(_table_so_far, prepared.out)) as display:
        resources = replace(resources, remark=console.print, progress=display.poll)
        with started(execution.executor, resources) as executor:
            jobs = "1 job" if len(works) == 1 else f"{len(works)} jobs"
            console.print(f"{jobs}, {executor.name}; results in {prepared.out}")
            workers = execution.workers if executor.has_queue else resources.workers
            return map_jobs(executor, works, workers=workers, on_poll=display.poll, on_restart=console.print)


def _table_so_far(out: Path) -> RenderableType | None:
    if not ranks.is_first():
        return None
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
