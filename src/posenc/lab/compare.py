"""``posenc compare`` from beginning to end, plan, jobs and report; and ``posenc report``, which writes one again.

A report is written whenever a job has ended, without charts, and when the last one has ended or the command is stopped,
with them. So whatever ends a run leaves a report of what is finished.
"""

from __future__ import annotations

import argparse
import dataclasses
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from posenc.lab.cli_options import add_training, chosen, from_one, given
from posenc.lab.config import Machine, Profile
from posenc.lab.console import FailedJobsError, plain_console, stoppable
from posenc.lab.execute.executor import NAMES, Executor, InProcess, Resources, make_executor, map_jobs, started
from posenc.lab.files import MOST_SEEDS
from posenc.lab.plugins import ImportAllowlist, allow_imports, is_module_name
from posenc.lab.report.numbers import build_table
from posenc.lab.report.page import terminal_summary, write_report
from posenc.lab.report.tables import terminal_table, unit_of
from posenc.lab.run import joint
from posenc.lab.run.folder import FILE, Run, collect_records, read_run, refuse_missing_metrics
from posenc.lab.run.job import Work
from posenc.lab.run.planning import (
    PANELS,
    PreparedRun,
    RunRequest,
    checked,
    default_folder,
    jobs_of,
    prepare,
    write_baselines,
)
from posenc.lab.run.progress import Display
from posenc.lab.run.tracking import check_trackers
from posenc.lab.specs import plugin_names
from posenc.lab.tasks import TASKS, task_named
from posenc.lab.tasks.task import Task
from posenc_cli.parsing import Parser

_MACHINE = {field.name for field in dataclasses.fields(Machine)}  # numbers that belong to no task


def compare_options(parser: Parser) -> None:
    """The options of ``posenc compare``."""
    add = parser.add_argument
    add(
        "--task",
        help=f"to learn: {', '.join(TASKS)}, or my_module:MyTask (default: {', '.join(PANELS)}, one after the other; "
        "with --profile, --data or a number of the profile text alone)",
    )
    add("--profile", help="quick, standard or full (for a GPU); of text also llama-125m, for eight (default: quick)")
    add(
        "--data",
        help="of text: python (the default), a file, a folder, hf:NAME or hf:NAME:CONFIG, or my_module:my_corpus; of "
        "images: a folder with a folder of pictures for each class (default: scikit-learn's digits)",
    )
    text = "of the run (default: posenc-compare/default; of one task posenc-compare/<task>-<profile>)"
    add("--out", type=Path, metavar="FOLDER", help=text)
    text = "training runs of each encoding (default: 1 without --task; of text 1, a generated task 2, images 3)"
    add("--seeds", type=from_one, help=text)
    text = f"where jobs run: {', '.join(NAMES)} (default: %(default)s); under torchrun all ranks train each job"
    add("--executor", default="local", help=text)
    add("--ray-address", help="auto, HOST:PORT, or local for a cluster on this machine alone")
    add("--slurm-cluster", help="slurm; local runs the jobs as processes of this machine, debug in this one")
    add("--slurm-partition", help="of the cluster")
    add("--slurm-timeout", type=from_one, metavar="MINUTES", help="that a job may run before it is queued again")
    text = "also log every job to wandb or tensorboard; may be given twice, and needs the extra [track]"
    add("--track", action="append", default=[], help=text)
    add("--no-cost", action="store_true", help=argparse.SUPPRESS)  # of recorded commands; none is measured
    add_training(parser, [task_named(name).options for name in TASKS])


def compare_command(o: Namespace, command: str) -> None:
    """Train one small model per encoding at a short length, and measure all of them at longer lengths.

    By default in three panels: recall and copy, tasks that small models learn in minutes, then a language model of
    text. With --task images: train on a small grid of tokens, and measure shifted and larger images. With a generated
    task, such as --task passkey: train on short sequences, and test long ones. Stop it any way you like: the same
    command continues where it stopped, and ends with the same numbers.
    """
    if o.seeds is not None and o.seeds > MOST_SEEDS:
        raise ValueError(f"--seeds {o.seeds}: at most {MOST_SEEDS:,} are taken")
    names = [*o.encodings, *filter(is_module_name, (o.task or "", o.data or ""))]
    of_executors = ("ray_address", "slurm_cluster", "slurm_partition", "slurm_timeout")
    values = {name: value for name in of_executors if (value := getattr(o, name)) is not None}
    with allow_imports(ImportAllowlist(frozenset(plugin_names(names)), o.classes_from)), stoppable(command):
        executor = _executor(o.executor, values)
        of_one_task = o.task or o.profile or o.data or o.set or given(o).keys() - _MACHINE
        trackers, requests = tuple(dict.fromkeys(o.track)), list[RunRequest]()
        for name in (o.task or "text",) if of_one_task else PANELS:
            task = task_named(name)
            profile = profile_of(task, o.profile or "quick", o.encodings, o.seeds if of_one_task else o.seeds or 1)
            profile = dataclasses.replace(profile, config=chosen(o, profile.config))
            folder = default_folder(name if of_one_task else "", profile.name) if o.out is None else o.out
            source, place = task.source if o.data is None else o.data, folder if of_one_task else folder / name
            requests.append(RunRequest(profile, source, place, command, executor.elsewhere, trackers))
        compare(requests, folder, executor, o.workers, plain_console(quiet=not joint.is_first()))


def _executor(name: str, options: dict[str, Any]) -> Executor:
    """The executor; under torchrun the ranks themselves."""
    if joint.ranks() == 1:
        return make_executor(name, options)
    if name != "local":
        raise ValueError(f"--executor {name} and torchrun exclude each other: choose one")
    return InProcess()


def profile_of(task: Task, name: str, encodings: Sequence[str], seeds: int | None) -> Profile:
    """A task's profile with the encodings and seeds of the command line."""
    profile = task.profile(name)
    return dataclasses.replace(
        profile, encodings=tuple(encodings) or profile.encodings, seeds=profile.seeds if seeds is None else seeds
    )


def compare(
    requests: Sequence[RunRequest], out: Path, executor: Executor, workers: int | None, console: Console
) -> None:
    """Run plans to one report; under torchrun, all ranks call it together.

    Args:
        requests: one for each panel of the report, in the order in which they run.
        out: the folder of the report: that of the run, or of several the folder that holds theirs.
        executor: where jobs run.
        workers: jobs at a time; None: as many as there is room for.
        console: where to print.

    Raises:
        ValueError: for anything about the plans that cannot work, before any job starts.
        FailedJobsError: after all other jobs have run and the report has been written.
    """
    joint.join(requests[0].profile.config.machine.device)
    if len(requests) > 1:
        _check_panels(requests, out)
    failures, folders = list[str](), list[Path]()
    try:
        for number, request in enumerate(requests, 1):
            if len(requests) > 1:
                console.print(f"Panel {number} of {len(requests)}: {request.profile.config.task}")
            folders.append(request.out)
            prepared, works, finished = joint.from_first(partial(_plan, request, console))
            so_far = partial(_report_so_far, folders, out)
            failures += run_jobs(prepared, works, finished, executor, workers, console, so_far)
    except KeyboardInterrupt:
        if joint.is_first():
            finish(folders, out, console)
        raise
    if joint.is_first():
        finish(folders, out, console)
    joint.wait()
    if failures:
        raise FailedJobsError("\n".join(failures))


def _check_panels(requests: Sequence[RunRequest], out: Path) -> None:
    """Refuse what some panel would refuse after another one has run, and a folder of something else."""
    for request in requests:
        checked(request, processes=joint.ranks())
    begun = [request.out for request in requests if (request.out / FILE).is_file()]
    if out.is_dir() and any(entry.name[0] != "." for entry in out.iterdir()) and not begun:
        held = "holds a run of one task" if (out / FILE).is_file() else "is not empty and holds no run"
        raise ValueError(f"--out {out}: the folder {held}; choose another one, or name a --task")


def _plan(request: RunRequest, console: Console) -> tuple[PreparedRun, list[Work], int]:
    check_trackers(request.trackers, elsewhere=request.elsewhere)
    prepared = prepare(request, console, processes=joint.ranks())
    with console.status(f"Measuring what needs no model ({prepared.task.name}) …"):
        write_baselines(prepared)
    works, finished = jobs_of(prepared, request.profile.seeds, console)
    return prepared, [work._replace(trackers=request.trackers) for work in works], finished


def run_jobs(
    prepared: PreparedRun, works: list[Work], finished: int, executor: Executor, workers: int | None, console: Console,
    on_end: Callable[[], object],
) -> list[str]:  # fmt: skip
    """Run what remains to be done; returns a line for each job that failed. ``on_end``: whenever a job has ended."""
    if not works:
        console.print(f"All jobs of {prepared.out} are finished already.")
        return []
    resources = Resources.of(prepared.config.machine, workers, prepared.out)
    resources = dataclasses.replace(resources, remark=console.print)
    with Display(console, works, finished, on_end) as display, started(executor, resources):
        console.print(f"{len(works)} job{'s' * (len(works) > 1)}, {executor.name}; results in {prepared.out}")
        at_a_time = workers if executor.has_queue else resources.workers
        return map_jobs(executor, works, workers=at_a_time, on_poll=display.poll, on_restart=console.print)


def _report_so_far(folders: Sequence[Path], out: Path) -> None:
    """Write the report of what is finished, without charts."""
    if joint.is_first() and (runs := _runs(folders)):
        write_report(runs, out, drawn=False)


def finish(folders: Sequence[Path], out: Path, console: Console) -> None:
    """Write the report of whatever is there, and show it."""
    for folder in folders:
        if (folder / FILE).is_file():
            collect_records(folder)
    if runs := _runs(folders):
        report(runs, out, console)


def report(runs: Sequence[Run], out: Path, console: Console) -> None:
    """Write the report of some runs to ``out``, and show their tables and sentences."""
    paths = write_report(runs, out)
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


def report_options(parser: Parser) -> None:
    """The options of ``posenc report``."""
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="of posenc compare; several are compared on one page"
    )
    text = "to write the report to (default: the run's folder; for several runs, posenc-report)"
    parser.add_argument("--out", type=Path, metavar="FOLDER", help=text)


def report_command(o: Namespace, command: str) -> None:
    """Write the report of one run again, or of several runs together.

    What belongs into one table is run into one folder.
    """
    runs = read_runs(o.folders)
    report(runs, o.out or (o.folders[0] if len(o.folders) == 1 else Path("posenc-report")), plain_console())


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs of some folders; a folder of panels stands for theirs.

    Raises:
        ValueError: naming a folder with nothing to report, or a file that posenc did not write.
    """
    runs = list[Run]()
    for typed in dict.fromkeys(folders):
        panels = [typed / name for name in PANELS if (typed / name / FILE).is_file()]
        for folder in [typed] if (typed / FILE).is_file() or not panels else panels:
            runs.append(read_run(folder))
            if runs[-1].records.empty:
                raise ValueError(f"{folder}: no job is finished yet, so there is nothing to report")
            refuse_missing_metrics(runs[-1])
    return runs
