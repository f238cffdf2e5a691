"""From the job folders of a run to what was measured of each spec, with each of its seeds."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path

from posenc.lab.jobs import check_member, read_job, read_result
from posenc.lab.tasks.task import Measured


def read_measured(out: Path) -> dict[str, list[Measured]]:
    """What is there of all finished jobs, by spec; a job of another run put into this folder is a ValueError."""
    measured: dict[str, list[Measured]] = defaultdict(list)
    for folder in sorted((out / "jobs").glob("*/")):
        if not (folder / "config.json").exists():
            continue
        job = read_job(folder)
        check_member(out, job)
        result = read_result(folder, job)
        for spec, measurement in (result or {"rows": {}})["rows"].items():
            measured[spec].append({**measurement, "training": result["training"] if result else {}})
    return measured


def training_means(runs: list[Measured]) -> dict[str, float]:
    """What the trainings took, means over seeds."""
    return {key: statistics.fmean(run["training"][key] for run in runs) for key in runs[0]["training"]}
