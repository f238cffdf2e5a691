"""From a request to jobs that are ready to run. Whatever can be wrong is found here, before the first job starts."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from posenc.lab.config import Config, Profile
from posenc.lab.files import Factors
from posenc.lab.metrics import BASELINES, Words
from posenc.lab.plugins import import_allowlist, is_module_name
from posenc.lab.run.folder import BASELINE_RECORDS, FILE, FORMAT, Run, read_run, write_run
from posenc.lab.run.job import (
    PROTOCOL,
    TRIALS,
    TUNED,
    Job,
    Work,
    describe_factors,
    factors_of,
    open_job,
    read_results,
    read_tuned,
    refuse_difference,
)
from posenc.lab.run.joint import check_sharding
from posenc.lab.run.machine import (
    DECIDING_LIBRARIES,
    describe_machine,
    describe_versions,
    device_of,
    library_versions,
)
from posenc.lab.run.records import read_records, records_frame, write_records
from posenc.lab.run.train import read_checkpoint
from posenc.lab.specs import encoding_names, plugin_hashes, plugin_names
from posenc.lab.tasks import task_named
from posenc.lab.tasks.task import Data, Task

PANELS = ("recall", "copy", "text")  # what is compared where nobody names a task: those that answer soonest first
TUNING_OUTPUTS = ("tune", TRIALS, TUNED)  # what posenc tune leaves in a run's folder, before the run or after it


@dataclass(frozen=True)
class RunRequest:
    """A comparison to run: its profile, data, output folder, and the command line that asked for it."""

    profile: Profile
    data: str
    out: Path
    command: str
    elsewhere: bool = False  # whether jobs run on other machines
    trackers: tuple[str, ...] = ()  # that jobs report to: `posenc.lab.run.tracking.TRACKERS`


@dataclass(frozen=True)
class PreparedRun:
    """A validated run whose folder and data exist: jobs may start."""

    task: Task
    config: Config
    source: str  # --data as typed
    data: Data
    specs: list[str]  # of the trainings
    versions: dict[str, str]
    code: dict[str, str]  # code hashes of plugins
    out: Path
    run: Run

    def job(self, spec: str, seed: int, tuned: Factors, trial: str = "") -> Job:
        """The job of one training with one seed."""
        shared = {self.task.name, self.source}
        code = {name: digest for name, digest in self.code.items() if name in {*encoding_names(spec), *shared}}
        data, libraries = self.data.identity(), library_versions()
        return Job(spec, seed, self.config, data, libraries, code=code, tuned=tuned, trial=trial)


def default_folder(task: str, profile: str) -> Path:
    """The default folder of a run; without a task, of the panels."""
    if not task:
        return Path("posenc-compare") / "default"
    name = task.rpartition(":")[2].lower()
    return Path("posenc-compare") / (profile if task == "text" else f"{name}-{profile}")


def prepare(request: RunRequest, console: Console, *, processes: int = 1) -> PreparedRun:
    """Validate a request, read its data, and create the run folder or check that it holds the same run."""
    task, config = checked(request, processes=processes)
    code = plugin_hashes([*request.profile.encodings, *filter(is_module_name, (config.task, request.data))])
    for name in code:
        console.print(f"{name} is imported from {import_allowlist().folder.resolve()} or Python's path.")
    with console.status(f"Reading the data ({request.data}) …"):
        data = task.data(request.data, config)
    config = task.settled(config, data)
    if config.machine.shard:
        check_sharding(config.machine)
    versions = describe_versions()
    make_folder(request.out)
    run = _open_run(request, task, config, data, versions)
    data.save(request.out / "data")
    console.print("; ".join(f"{name}: {fact}" for name, fact in list(data.facts().items())[:3]) + ".")
    specs = task.plan(request.profile.encodings, config)
    return PreparedRun(task, config, request.data, data, specs, versions, code, request.out, run)


def checked(request: RunRequest, *, processes: int = 1) -> tuple[Task, Config]:
    """The task and the configuration of a request; a ValueError for whatever is wrong that no data are needed for."""
    task, config = task_named(request.profile.config.task), request.profile.config
    config = config.replaced({"processes": processes, "device": _device(config, request)})
    config.check()
    task.check(config)
    task.plan(request.profile.encodings, config)
    return task, config


def jobs_of(prepared: PreparedRun, seeds: int, console: Console) -> tuple[list[Work], int]:
    """Unfinished jobs, the first seed of every encoding first; and the number of finished ones."""
    tuned = factors_of(prepared.out)
    for spec in set(prepared.specs) & set(tuned):
        console.print(f"Tuned ({prepared.out / TUNED}): {spec}, {describe_factors(tuned[spec])}.", style="dim")
    works, finished = list[Work](), 0
    for seed in range(seeds):
        for spec in prepared.specs:
            work = work_of(prepared, prepared.job(spec, seed, tuned.get(spec, {})))
            finished += work is None
            works += [work] if work else []
    return works, finished


def work_of(prepared: PreparedRun, job: Job) -> Work | None:
    """The remaining work of a job, None if finished. Reading its files now finds damaged ones before any job starts."""
    folder = open_job(prepared.out, job)
    if read_results(folder, job) is not None:
        return None
    read_checkpoint(folder / "checkpoint.pt", job.identity)
    allowlist = import_allowlist().of([*plugin_names([job.spec]), *job.code])
    return Work(job.name, folder, allowlist)


def write_baselines(prepared: PreparedRun) -> None:
    """Write OUT/baselines.parquet, what counting reaches on the targets of the run, unless it is there already."""
    path, data = prepared.out / BASELINE_RECORDS, prepared.data
    deciding = json.dumps([data.identity(), prepared.config.deciding()], sort_keys=True)
    identity = hashlib.sha256(deciding.encode()).hexdigest()
    if path.is_file() and read_records(path)[1].get("identity") == identity:
        return
    values = prepared.task.baselines(data, prepared.config)
    frame = records_frame(values, job=BASELINES, spec="n-gram", seed=0)
    if len(frame):
        write_records(path, frame, {"identity": identity})


def make_folder(out: Path) -> None:
    """Create a folder for results; a ValueError that says why it is not writable."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {out}: {(error.strerror or 'cannot be made').lower()}") from error
    if not os.access(out, os.W_OK | os.X_OK):
        raise ValueError(f"--out {out}: the folder is not writable")


def _open_run(request: RunRequest, task: Task, config: Config, data: Data, versions: dict[str, str]) -> Run:
    """Write run.json, or check that the existing one describes the same run."""
    path = request.out / FILE
    run = Run(
        words=Words(task.name, task.title, task.question, task.shows), metrics=task.metrics_of(config),
        curves=task.curves_of(config), numbers=config.deciding(), shown=config.shown(), data=data.identity(),
        facts=data.facts(), versions=versions, machine=describe_machine(config.machine.device),
        command=_repeatable(request.command, config), protocol=PROTOCOL, rounding=config.rounding(), path=request.out,
        rates={spec: describe_factors(own) for spec, own in factors_of(request.out).items() if own},
        tuning=dict(read_tuned(request.out).get("procedures", {})),
    )  # fmt: skip
    if path.exists():
        before = read_run(request.out)
        if before.task != task.name:
            raise ValueError(
                f"{request.out} holds a run of --task {before.task}, not {task.name}: choose another --out"
            )
        libraries = {name: text for name, text in before.versions.items() if name in DECIDING_LIBRARIES}
        stored = {"protocol": before.protocol, "numbers": before.numbers, "data": before.data}
        current = {"protocol": PROTOCOL, "numbers": run.numbers, "data": run.data}
        stored |= {"versions": libraries, "rounding": before.rounding}
        current |= {"versions": library_versions(), "rounding": run.rounding}
        refuse_difference(path, stored, current)
        commands = dict.fromkeys([*before.command.splitlines(), run.command])
        both = {name: _joined(before.versions.get(name), text) for name, text in versions.items()}
        run = dataclasses.replace(run, command="\n".join(commands), versions=both)
    elif any(entry.name not in TUNING_OUTPUTS and entry.name[0] != "." for entry in request.out.iterdir()):
        raise ValueError(
            f"--out {request.out}: the folder is not empty and holds no run of {FORMAT}; choose another one"
        )
    write_run(run)
    return run


def _joined(before: str | None, now: str) -> str:
    """Every version that a run was computed with, in the order of use."""
    return ", ".join(dict.fromkeys([*(before or now).split(", "), now]))


def _device(config: Config, request: RunRequest) -> str:
    """The requested device; ``auto`` is the device of the folder's earlier run, else a GPU if there is one."""
    device, path = config.machine.device, request.out / FILE
    if device == "auto" and path.exists():
        device = str(read_run(request.out).rounding.get("device", "cpu"))
    return device_of(device, elsewhere=request.elsewhere)


def _repeatable(command: str, config: Config) -> str:
    """A command line that repeats the run: as typed, with its device and launcher."""
    words = shlex.split(command)
    if not any(word == "--device" or word.startswith("--device=") for word in words):
        words += ["--device", config.machine.device]
    if config.machine.processes > 1:
        words = ["torchrun", "--nproc-per-node", str(config.machine.processes), "-m", *words]
    return shlex.join(words)
