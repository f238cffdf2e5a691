"""The baselines of a run as records: what counting reaches on the targets that models are scored on.

They are computed once, before the jobs, written to OUT/baselines.parquet and collected with the records of the jobs, so
that a report needs no corpus. `add_baselines` computes them for a finished run whose records have none.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from posenc.lab.config import Config
from posenc.lab.metrics import BASELINES
from posenc.lab.run.folder import BASELINE_RECORDS, RECORDS, Run, read_run, records_of
from posenc.lab.run.records import read_records, records_frame, write_records
from posenc.lab.tasks import task_named
from posenc.lab.tasks.task import Data, Task

SPEC = "n-gram"  # of the records of baselines


def write_baselines(out: Path, task: Task, data: Data, config: Config) -> bool:
    """Write OUT/baselines.parquet unless it is there already; returns whether the task has baselines."""
    path, identity = out / BASELINE_RECORDS, _identity(data, config)
    if path.is_file() and read_records(path)[1].get("identity") == identity:
        return True
    frame = records_frame(task.baselines(data, config), job=BASELINES, spec=SPEC, seed=0)
    if len(frame):
        write_records(path, frame, {"identity": identity})
    return bool(len(frame))


def add_baselines(path: Path) -> Run:
    """Compute the baselines of a finished run from its data, and add them to its records; returns the run.

    The data come from OUT/data, or where that folder was not kept from what the run's command names.

    Raises:
        ValueError: where the data here differ from the run's, or its task has no baselines.
    """
    run = read_run(path)
    task = task_named(run.task)
    config = task.profile("quick").config.replaced({k: v for k, v in run.numbers.items() if k != "task"})
    has_data = (path / "data").is_dir()
    data = task.load(path / "data", config) if has_data else task.data(_source(run, task), config)
    if data.identity() != run.data:
        differing = ", ".join(name for name, digest in data.identity().items() if run.data.get(name) != digest)
        raise ValueError(
            f"{path}: the data here differ from the run's ({differing}), so no baselines can be computed; "
            f"the run read {next(iter(run.facts.values()), 'other data')}"
        )
    if not write_baselines(path, task, data, config):
        raise ValueError(f"{path}: --task {run.task} has no baselines")
    if not (path / "jobs").is_dir():  # a folder of records alone: they belong into its one file
        records = records_of(path)
        frame = read_records(path / BASELINE_RECORDS)[0]
        with_baselines = [records[records["job"] != BASELINES], frame]
        write_records(path / RECORDS, pd.concat(with_baselines, ignore_index=True), {"run": path.name})
        (path / BASELINE_RECORDS).unlink()
    return read_run(path)


def _identity(data: Data, config: Config) -> str:
    """A hash of what decides the baselines."""
    deciding = json.dumps([data.identity(), config.deciding()], sort_keys=True)
    return hashlib.sha256(deciding.encode()).hexdigest()


def _source(run: Run, task: Task) -> str:
    """What ``--data`` was in the run's command."""
    words: Sequence[str] = shlex.split(run.command.splitlines()[0])
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--data":
            return following
        if word.startswith("--data="):
            return word.partition("=")[2]
    return task.source
