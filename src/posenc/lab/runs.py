"""A run as a report reads it: records, and what is known of how they came about. No task's code is needed.

OUT/run.json          task and its metrics, configuration, data, versions, machine, command
OUT/records.parquet   the records of all finished jobs; `posenc.lab.job` writes it from OUT/jobs/*/records.parquet
These two files alone are a run that can be reported.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from posenc.lab.files import read_json, write_json
from posenc.lab.foreign import check_protocol, check_spec, check_words, dataclass_of, is_number, refuse_links, shown
from posenc.lab.metrics import Curve, Metric, Words
from posenc.lab.records import empty, read_records, write_records

FORMAT = "posenc-lab-run/2"
FILE, RECORDS = "run.json", "records.parquet"
T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """What was measured, and what a report states beside it."""

    path: Path
    words: Words
    metrics: tuple[Metric, ...]  # the first one decides
    curves: tuple[Curve, ...]
    numbers: dict[str, Any]  # what decides a result, by name: `Config.deciding`
    shown: dict[str, str]  # every number in words
    data: dict[str, str]  # hashes of the data by name
    facts: dict[str, str]  # of the data, in words
    versions: dict[str, str]
    machine: dict[str, str]
    command: str
    rates: dict[str, str] = field(default_factory=dict)  # tuned learning rates in words, by spec
    protocol: int = 0  # `posenc.lab.job.PROTOCOL` of the version that computed it
    remarks: tuple[str, ...] = ()  # on where the rows come from
    records: pd.DataFrame = field(default_factory=empty, repr=False)

    @property
    def task(self) -> str:
        """Its task's name."""
        return self.words.task

    @property
    def decides(self) -> Metric:
        """The metric that encodings are compared by."""
        return self.metrics[0]

    @property
    def given(self) -> bool:
        """Whether its model was given, and nothing trained: then seeds are no sample of anything."""
        return bool(self.numbers.get("steps") == 0)

    @cached_property
    def times(self) -> tuple[float, ...]:
        """Test lengths in trained lengths: of an unfinished run those that something was measured at, and 1×."""
        asked, found = self.numbers["lengths"], {self.trained, *self.records["length"].unique()}
        there = tuple(k for k in asked if round(k * self.trained) in found)
        return there if len(self.records) else tuple(asked)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The same in tokens."""
        return tuple(round(k * self.trained) for k in self.times)

    @property
    def trained(self) -> int:
        """The trained length in tokens."""
        found: int = self.numbers["train_length"]
        return found


def write_run(run: Run, *, machine: Mapping[str, Any]) -> None:
    """Write run.json; ``machine`` is what changes the rounding of a result."""
    record = {
        "format": FORMAT, "words": asdict(run.words), "metrics": [_plain(m) for m in run.metrics],
        "curves": [asdict(c) for c in run.curves], "numbers": json.loads(json.dumps(run.numbers)),
        "rounding": dict(machine), "shown": run.shown, "data": run.data, "facts": run.facts, "versions": run.versions,
        "machine": run.machine, "command": run.command, "rates": run.rates,
        "protocol": run.protocol,
    }  # fmt: skip
    write_json(run.path / FILE, record)


def read_run(path: Path) -> Run:
    """The run of a folder; a ValueError that names the file where there is none, or one that is not ours."""
    file = path / FILE
    if not file.is_file():
        raise ValueError(f"{path}: nothing to report; the folder of a run, with its {FILE}, is needed")
    names = ("format", "words", "metrics", "curves", "numbers", "shown", "data", "facts", "versions", "machine")
    record = read_json(file, (*names, "command", "rates"))
    if record["format"] != FORMAT:
        raise ValueError(f"{path}: written in the format {shown(record['format'])}; this version reads {FORMAT}")
    words: dict[str, Any] = {name: check_words(record[name], name, file) for name in (*names[5:], "rates")}
    for spec in words["rates"]:
        check_spec(spec, file)
    run = Run(
        path, dataclass_of(Words, record["words"], file), _several(Metric, record["metrics"], file),
        _several(Curve, record["curves"], file), _numbers(record["numbers"], file), command=str(record["command"]),
        protocol=check_protocol(record.get("protocol", 0), file), **words,
    )  # fmt: skip
    if not run.metrics:
        raise ValueError(f"{file}: metrics must not be empty")
    return dataclasses.replace(run, records=records_of(path))


def records_of(path: Path) -> pd.DataFrame:
    """The records of all finished jobs of a folder, in the order of specs and seeds."""
    files = sorted((path / "jobs").glob("*/" + RECORDS))
    refuse_links([path / "jobs", *(file.parent for file in files)])
    found = [read_records(file)[0] for file in files or [path / RECORDS] if file.is_file()]
    if not found:
        return empty()
    frame = pd.concat(found, ignore_index=True)
    for name in frame["spec"].unique():
        check_spec(str(name), path)
    return frame


def collect(path: Path) -> None:
    """Write OUT/records.parquet from the records of all finished jobs."""
    write_records(path / RECORDS, records_of(path), {"run": path.name})


def pooled(runs: Sequence[Run]) -> list[Run]:
    """Runs of equal numbers, data and protocol as one run each; others stay apart, in the order of their first."""
    groups: list[list[Run]] = []
    for run in runs:
        _refuse_missing_metrics(run)
        for group in groups:
            if _same(group[0], run):
                group.append(run)
                break
        else:
            groups.append([run])
    return [_joined(group) for group in groups]


def _same(a: Run, b: Run) -> bool:
    return (a.task, a.numbers, a.data, a.protocol) == (b.task, b.numbers, b.data, b.protocol)


def _joined(group: Sequence[Run]) -> Run:
    """One run with what several have measured; a job that lies in several is taken from the first."""
    first, remarks, frames = group[0], list(group[0].remarks), list[pd.DataFrame]()
    if len(group) == 1:
        return first
    seen: set[tuple[str, int]] = set()
    for run in group:
        jobs = run.records[["spec", "seed"]].astype({"spec": str}).drop_duplicates().itertuples(index=False)
        found = {(str(spec), int(seed)) for spec, seed in jobs}
        both = sorted(found & seen)
        if both:
            listed = ", ".join(f"{spec} (seed {seed})" for spec, seed in both)
            remarks.append(f"{listed}: in {run.path} and in another folder before it; that of the other is shown.")
        mine = pd.MultiIndex.from_arrays([run.records["spec"].astype(str), run.records["seed"]]).isin(both)
        frames.append(run.records[~mine])
        seen |= found
    for package in sorted({name for run in group for name in run.versions}):
        versions = {run.versions.get(package, "none") for run in group}
        if len(versions) > 1:
            remarks.append(f"Made with different versions of {package}: {', '.join(sorted(versions))}.")
    machines = list(dict.fromkeys(", ".join(run.machine.values()) for run in group))
    machine = first.machine if len(machines) == 1 else {f"machine {n + 1}": m for n, m in enumerate(machines)}
    command = "\n".join(dict.fromkeys(run.command for run in group))
    records = pd.concat(frames, ignore_index=True)
    return dataclasses.replace(first, records=records, remarks=tuple(remarks), machine=machine, command=command)


def _several(kind: type[T], record: object, file: Path) -> tuple[T, ...]:
    if not isinstance(record, list) or len(record) > 100:
        raise ValueError(f"{file}: a list of what {kind.__name__} declares is needed, got {shown(record)}")
    if kind is not Metric:
        return tuple(dataclass_of(kind, one, file) for one in record)
    return tuple(_metric(one, file) for one in record)  # type: ignore[misc]


def _metric(record: object, file: Path) -> Metric:
    """A metric from plain data, in which infinities are absent."""
    fields = {f.name: f for f in dataclasses.fields(Metric)}
    if not isinstance(record, dict) or not set(record) <= set(fields):
        raise ValueError(f"{file}: a metric is needed, got {shown(record)}")
    for name, value in record.items():
        words, flag = name in ("name", "unit", "better"), name == "percent"
        fits = isinstance(value, str) if words else isinstance(value, bool if flag else (int, float, type(None)))
        if not fits or (words and (len(value) > 200 or not value.isprintable())):
            raise ValueError(f"{file}: {name} {shown(value)} of a metric is not what it should be")
    if record.get("better") not in ("lower", "higher") or not {"name", "unit", "margin"} <= set(record):
        raise ValueError(f"{file}: a metric is needed, got {shown(record)}")
    return Metric(**record)


def _plain(metric: Metric) -> dict[str, Any]:
    return {name: value for name, value in asdict(metric).items() if value not in (None, float("inf"))}


def _numbers(record: object, file: Path) -> dict[str, Any]:
    """What decides a result; lengths are what a report computes with."""
    if not isinstance(record, dict) or len(record) > 1000:
        raise ValueError(f"{file}: numbers by name are needed, got {shown(record)}")
    lengths, length = record.get("lengths"), record.get("train_length")
    whole = isinstance(lengths, list) and lengths and all(is_number(k) and 0 < k <= 2**24 for k in lengths)
    if not whole or type(length) is not int or not 0 < length <= 2**24:
        raise ValueError(f"{file}: lengths and train_length must be numbers, got {shown(lengths)}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}


def _refuse_missing_metrics(run: Run) -> None:
    """Refuse a run whose records lack a metric that its file names."""
    missing = [metric.name for metric in run.metrics if metric.name not in set(run.records["metric"])]
    if len(run.records) and missing:
        raise ValueError(f"{run.path / FILE}: no record has the metric {shown(missing[0])}")
