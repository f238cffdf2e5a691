"""A run as a report reads it: its records, settings and provenance. No task's code is needed.

OUT/run.json          task and its metrics, configuration, data, versions, machine, command
OUT/records.parquet   the records of all finished jobs and of the baselines, collected from OUT/jobs/*/records.parquet
                      and OUT/baselines.parquet
These two files alone are a run that can be reported.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import pandas as pd
from pydantic import Field
from typing_extensions import TypedDict

from posenc.lab.files import Facts, Spec, read_record, validated, write_json
from posenc.lab.metrics import BASELINES, Curve, Metric, Words
from posenc.lab.run.records import empty, read_records, write_records

FORMAT: Final = "posenc-lab-run/2"
FILE, JOB_FILE, RECORDS = "run.json", "job.json", "records.parquet"
BASELINE_RECORDS = f"{BASELINES}.parquet"
Tokens = Annotated[int, Field(gt=0, le=2**24)]


class DecidingNumbers(TypedDict):
    """The numbers of a run's configuration that reports compute with."""

    train_length: Tokens
    lengths: Annotated[tuple[Annotated[int | float, Field(gt=0, le=2**24)], ...], Field(min_length=1)]


@dataclass(frozen=True)
class RunRecord:
    """What run.json holds: the facts that a report states."""

    words: Words
    metrics: Annotated[tuple[Metric, ...], Field(min_length=1, max_length=100)]  # the first one decides
    curves: Annotated[tuple[Curve, ...], Field(max_length=100)]
    numbers: Annotated[dict[str, Any], Field(max_length=1000)]  # what decides a result, by name: `Config.deciding`
    shown: Facts  # every number in words
    data: Facts  # hashes of the data by name
    facts: Facts  # of the data, in words
    versions: Facts
    machine: Facts
    command: str
    rates: Facts = field(default_factory=dict)  # tuned learning rates in words, by spec
    tuning: Facts = field(default_factory=dict)  # how rates were tuned, in words, by spec
    protocol: int = 0  # `posenc.lab.run.job.PROTOCOL` of the version that computed it
    rounding: dict[str, str | int | bool] = field(default_factory=dict)  # the machine's part of the configuration
    format: Literal["posenc-lab-run/2"] = FORMAT


@dataclass(frozen=True)
class Run(RunRecord):
    """The records of a run, and the facts that a report states with them."""

    path: Path = Path()
    trainings: int = 0  # that were planned; 0 in a folder of records alone
    unfinished: int = 0  # of these
    records: pd.DataFrame = field(default_factory=empty, repr=False)
    baselines: pd.DataFrame = field(default_factory=empty, repr=False)  # records of n-grams, and of the majority class

    @property
    def task(self) -> str:
        """Its task's name."""
        return self.words.task

    @property
    def decides(self) -> Metric:
        """The metric that encodings are compared by."""
        return self.metrics[0]

    @property
    def pretrained(self) -> bool:
        """Whether its model is pretrained and nothing was trained, so that there is no variation over seeds."""
        return bool(self.numbers.get("steps") == 0)

    def tuning_of(self, spec: str) -> str:
        """How the rates of a row were tuned, empty for default rates; a procedure without a record is like no other."""
        if spec in self.tuning:
            return self.tuning[spec]
        return f"tuned without a record of how: {spec}" if spec in self.rates else ""

    @cached_property
    def times(self) -> tuple[float, ...]:
        """Test lengths in trained lengths: of an unfinished run those that something was measured at, and 1×."""
        planned, measured = self.numbers["lengths"], {self.trained, *self.records["length"].unique()}
        times = tuple(k for k in planned if round(k * self.trained) in measured)
        return times if len(self.records) else tuple(planned)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The same in tokens."""
        return tuple(round(k * self.trained) for k in self.times)

    @property
    def trained(self) -> int:
        """The trained length in tokens."""
        length: int = self.numbers["train_length"]
        return length


def write_run(run: Run) -> None:
    """Write run.json."""
    record = RunRecord(**{f.name: getattr(run, f.name) for f in fields(RunRecord)})
    write_json(run.path / FILE, json.loads(json.dumps(asdict(record))))


def read_run(path: Path) -> Run:
    """The run of a folder; a ValueError that names the file if it is missing or was not written by posenc."""
    file = path / FILE
    if not file.is_file():
        raise ValueError(f"{path}: nothing to report; the folder of a run, with its {FILE}, is needed")
    record = read_record(file, RunRecord)
    numbers = {name: tuple(value) if isinstance(value, list) else value for name, value in record.numbers.items()}
    validated(file, DecidingNumbers, numbers)
    records = records_of(path)
    of_baselines = records["job"] == BASELINES
    jobs = [file.parent for file in (path / "jobs").glob(f"*/{JOB_FILE}")]
    return Run(
        **{**vars(record), "numbers": numbers}, path=path, records=records[~of_baselines],
        baselines=records[of_baselines], trainings=len(jobs),
        unfinished=sum(not (job / RECORDS).is_file() for job in jobs),
    )  # fmt: skip


def records_of(path: Path) -> pd.DataFrame:
    """The records of all finished jobs of a folder, in the order of specs and seeds, and of its baselines."""
    files = sorted((path / "jobs").glob("*/" + RECORDS))
    every = [*files, path / BASELINE_RECORDS] if files else [path / RECORDS]
    frames = [read_records(file)[0] for file in every if file.is_file()]
    if not frames:
        return empty()
    frame = pd.concat(frames, ignore_index=True)
    validated(path, list[Spec], frame["spec"].unique().tolist())
    return frame


def collect_records(path: Path) -> None:
    """Write OUT/records.parquet from the records of all finished jobs."""
    write_records(path / RECORDS, records_of(path), {"run": path.name})


def refuse_missing_metrics(run: Run) -> None:
    """Refuse a run whose records lack a metric that its file names."""
    missing = [metric.name for metric in run.metrics if metric.name not in set(run.records["metric"])]
    if len(run.records) and missing:
        raise ValueError(f"{run.path / FILE}: no record has the metric {missing[0]!r:.60}")
