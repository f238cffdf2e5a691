"""From the job folders of a run to what was measured of each spec, with each of its seeds; and back from results.jsonl.

A line of results.jsonl is a row: what its table shows, and under ``runs`` what was measured with each seed, so that
every statistic can be computed again from that file alone.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import Field, asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from posenc.lab.jobs import check_member, job_folders, read_job, read_result
from posenc.lab.record import RunRecord
from posenc.lab.tasks import to_record
from posenc.lab.tasks.task import Facts, Measured, Numbers

FORMAT = "posenc-lab-results/1"
DIGITS = 5  # after the point: far below what a seed changes


def read_measured(out: Path) -> dict[str, list[Measured]]:
    """What is there of all finished jobs, by spec, in the order of seeds; a job of another run is a ValueError.

    Rounded as in results.jsonl, so that a report made from that file says the same.
    """
    jobs = {folder: read_job(folder) for folder in job_folders(out)}
    measured: dict[str, list[Measured]] = defaultdict(list)
    for folder, job in sorted(jobs.items(), key=lambda found: found[1].seed):
        check_member(out, job)
        result = read_result(folder, job)
        if result is None:
            continue
        origin = {"seed": job.seed, "machine": result.get("machine", {}), "training": result["training"]}
        for spec, measurement in result["rows"].items():
            measured[spec].append({**rounded(measurement), **origin})
    return measured


def table_of_runs(
    runs: Sequence[Measured], key: str, length: int, seeds: Sequence[int] | None = None
) -> NDArray[np.float64] | None:
    """What was measured under ``key`` at the test length with this number, ``(seeds, windows)``.

    None where the encoding is undefined, or nothing was measured with any of these seeds (by default all).
    """
    found = [run[key][length] for run in runs if seeds is None or run["seed"] in seeds]
    return None if not found or found[0] is None else np.array(found, dtype=np.float64)


def training_means(runs: Sequence[Measured]) -> dict[str, float]:
    """What the trainings took, means over seeds."""
    return {key: statistics.fmean(run["training"][key] for run in runs) for key in runs[0]["training"]}


def by_machine(runs: Sequence[Measured]) -> dict[str, dict[str, float]]:
    """What the trainings took on each machine, in words: times and memory of two machines have no common mean."""
    groups: dict[str, list[Measured]] = defaultdict(list)
    for run in runs:
        groups[machine_in_words(run.get("machine", {}))].append(run)
    return {name: training_means(group) for name, group in groups.items()}


def machine_in_words(machine: dict[str, str]) -> str:
    """``AMD EPYC, 4 cores, 16 GiB``; empty where it was not written down."""
    words = [f"{value} cores" if key == "cores" else str(value) for key, value in machine.items() if key != "system"]
    return ", ".join(words[::-1] if "device" in machine else words)


def line_of(record: RunRecord[Numbers, Facts], runs: Iterable[Measured]) -> dict[str, Any]:
    """What every line of results.jsonl ends with: how the numbers came about, and those of each seed."""
    return {
        "settings": to_record(record.settings),
        "corpus": asdict(record.facts),
        "versions": record.versions,
        "machine": record.machine,
        "command": record.command,
        "rates": record.rates,
        "format": FORMAT,
        "runs": [{**rounded(run), "training": run["training"]} for run in runs],
    }


def rounded(value: Any) -> Any:
    """Plain data with all numbers cut to `DIGITS`."""
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list | tuple) else value


class TrainedRow(Protocol):
    """A row that says what its trainings took; a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def spec(self) -> str: ...
    @property
    def training(self) -> dict[str, float]: ...
    @property
    def runs(self) -> list[Measured]: ...


T = TypeVar("T", bound=TrainedRow)


def apart_by_machine(rows: Sequence[T]) -> tuple[list[T], dict[str, str]]:
    """Rows for a table of times, and the machines by their short names if there are several.

    Then there is a row for each machine that trained an encoding, with the means over the seeds that it trained.
    """
    found = [by_machine(row.runs) for row in rows]
    machines = {words: f"machine {n + 1}" for n, words in enumerate(dict.fromkeys(m for group in found for m in group))}
    if len(machines) < 2:
        return list(rows), {}
    split = [
        replace(row, spec=f"{row.spec}, {machines[machine]}", training=took)
        for row, group in zip(rows, found, strict=True)
        for machine, took in group.items()
    ]
    return split, {short: words or "not written down" for words, short in machines.items()}
