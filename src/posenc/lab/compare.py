"""The main job from beginning to end: plan, jobs, report; of one task, or of several panels one after the other.

A report is written whenever a job has ended, without charts, and when the last one has ended or the command is stopped,
with them. So whatever ends a run leaves a report of what is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rich.console import Console, RenderableType

from posenc.lab.console import working
from posenc.lab.cost.costs import Costs
from posenc.lab.cost.measure import LENGTHS, SECONDS, costs_of_run
from posenc.lab.execute import ranks, torchrun
from posenc.lab.execute.executor import Executor, Resources, started
from posenc.lab.execute.local import Local
from posenc.lab.execute.mapping import map_jobs
from posenc.lab.report.numbers import build_table
from posenc.lab.report.render import terminal_summary, write_report
from posenc.lab.report.tables import terminal_table, unit_of
from posenc.lab.run.baselines import write_baselines
from posenc.lab.run.folder import FILE, Run, collect_records, read_run
from posenc.lab.run.job import Work
from posenc.lab.run.planning import PreparedRun, RunRequest, checked, jobs_of, prepare
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
    cost: bool = False  # whether to measure what the encodings cost in texts, when all jobs are done


def compare(requests: Sequence[RunRequest], out: Path, execution: ExecutionConfig, console: Console) -> None:
    """Run plans to one report; under torchrun, all ranks call it together.

    Args:
        requests: one for each panel of the report, in the order in which they run.
        out: the folder of the report: that of the run, or of several the folder that holds theirs.
        execution: where jobs run.
        console: where to print.

    Raises:
        ValueError: for anything about the plans that cannot work, before any job starts.
        FailedJobsError: after all other jobs have run and the report has been written.
    """
    torchrun.join(requests[0].profile.config.machine.device)
    if len(requests) > 1:
        _check_panels(requests, out)
    failures, costs, folders = list[str](), None, list[Path]()
    try:
        for number, request in enumerate(requests, 1):
            if len(requests) > 1:
                console.print(f"Panel {number} of {len(requests)}: {request.profile.config.task}")
            folders.append(request.out)
            prepared, works, finished = torchrun.from_first(partial(_plan, request, console))
            if works:
                check_reproduction(prepared, console)
            new_failures = run_jobs(prepared, works, finished, execution, console, partial(_so_far, folders, out))
            failures += new_failures
            if execution.cost and prepared.task.name == "text" and not new_failures:
                costs = _costs(prepared, request, console)
    except KeyboardInterrupt:
        if ranks.is_first():
            finish(folders, out, console)
        raise
    if ranks.is_first():
        finish(folders, out, console, costs)
    torchrun.wait()
    if failures:
        raise FailedJobsError("\n".join(failures))


def _check_panels(requests: Sequence[RunRequest], out: Path) -> None:
    """Refuse what some panel would refuse after another one has run, and a folder of something else."""
    for request in requests:
        checked(request, processes=ranks.count())
    begun = [request.out for request in requests if (request.out / FILE).is_file()]
    if out.is_dir() and any(out.iterdir()) and not begun:
        held = "holds a run of one task" if (out / FILE).is_file() else "is not empty and holds no run"
        raise ValueError(f"--out {out}: the folder {held}; choose another one, or name a --task")


def _plan(request: RunRequest, console: Console) -> tuple[PreparedRun, list[Work], int]:
    check_trackers(request.trackers, elsewhere=request.elsewhere)
    prepared = prepare(request, console, processes=ranks.count())
    with working(console, f"Measuring what needs no model ({prepared.task.name})"):
        write_baselines(prepared.out, prepared.task, prepared.data, prepared.config)
    works, finished = jobs_of(prepared, request.profile.seeds, console)
    return prepared, [work._replace(trackers=request.trackers) for work in works], finished


def _costs(prepared: PreparedRun, request: RunRequest, console: Console) -> Costs | None:
    # a cost is the cost of one layer, so a schedule has none
    specs = [planned.spec for planned in prepared.planned if not is_schedule(planned.spec)]
    command = prepared.run.command.splitlines()[-1]
    lengths, seconds = LENGTHS[request.profile.name], SECONDS[request.profile.name]
    return costs_of_run(prepared.out, specs, prepared.config, lengths, seconds, console, command=command)


def run_jobs(
    prepared: PreparedRun, works: list[Work], finished: int, execution: ExecutionConfig, console: Console,
    so_far: Callable[[], RenderableType | None],
) -> list[str]:  # fmt: skip
    """Run what remains to be done; returns a line for each job that failed.

    ``so_far`` is called whenever a job has ended, and returns the table that is shown while others run.
    """
    if not works:
        console.print(f"All jobs of {prepared.out} are finished already.")
        return []
    share = prepared.task.train_share(prepared.config)
    resources = Resources.of(prepared.config.machine, execution.workers, prepared.out)
    with Display(console, works, finished, share, so_far) as display:
        resources = replace(resources, remark=console.print, progress=display.poll)
        with started(execution.executor, resources) as executor:
            jobs = "1 job" if len(works) == 1 else f"{len(works)} jobs"
            console.print(f"{jobs}, {executor.name}; results in {prepared.out}")
            workers = execution.workers if executor.has_queue else resources.workers
            return map_jobs(executor, works, workers=workers, on_poll=display.poll, on_restart=console.print)


def _so_far(folders: Sequence[Path], out: Path) -> RenderableType | None:
    """Write the report of what is finished, without charts; the table of the run that goes on."""
    if not ranks.is_first():
        return None
    runs = _runs(folders)
    if not runs:
        return None
    write_report(runs, out, drawn=False)
    last = runs[-1]
    return terminal_table(last, build_table(last)) if last.path == folders[-1] else None


def finish(folders: Sequence[Path], out: Path, console: Console, costs: Costs | None = None) -> None:
    """Write the report of whatever is there, and show it."""
    for folder in folders:
        if (folder / FILE).is_file():
            collect_records(folder)
    runs = _runs(folders)
    if not runs:
        return
    paths = write_report(runs, out, costs=costs)
    for run in runs:
        console.print()
        console.print(f"{run.task}, {unit_of(run.decides)}")
        console.print(terminal_table(run, build_table(run)))
    for line in terminal_summary(runs):
        console.print(line)
    console.print(f"\nWritten to {out}: {', '.join(str(path.relative_to(out)) for path in paths)}")


def _runs(folders: Sequence[Path]) -> list[Run]:
    """The runs that have records."""
    runs = [read_run(folder) for folder in folders if (folder / FILE).is_file()]
    return [run for run in runs if not run.records.empty]
