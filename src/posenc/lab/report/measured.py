"""The records of a run as tables: values by row and length, what was measured once a training, and its probes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from posenc.lab.records import FULL, WINDOW
from posenc.lab.report.verdict import Probes
from posenc.lab.runs import Run

Key = tuple[str, str]  # spec, view
PROBE = "probe"  # the deciding metric at the trained length, ``item`` the step


@dataclass(frozen=True)
class Measured:
    """What rows are made of."""

    values: dict[Key, dict[int, pd.DataFrame]]  # by row and length in tokens: (seeds, documents), none missing
    first: dict[str, pd.DataFrame]  # the same at the trained length, of the full view, for every spec
    jobs: dict[str, list[str]]  # of a spec
    trained: dict[str, dict[str, dict[str, float]]]  # job, spec, metric: measured once
    probes: dict[str, Probes]  # of a job
    remarks: tuple[str, ...]  # on what was left out

    def training(self, spec: str) -> dict[str, float]:
        """Means over the trainings of a spec; rows that share one have what was measured of it in common."""
        found = []
        for job in self.jobs[spec]:
            parts = self.trained.get(job, {})
            common = {metric: value for part in parts.values() for metric, value in part.items()}
            found.append({**common, **parts.get(spec, {})})
        return {str(metric): float(mean) for metric, mean in pd.DataFrame(found).mean().items()}

    def probes_of(self, spec: str) -> list[Probes]:
        """The probes of each training of a spec."""
        return [self.probes[job] for job in self.jobs[spec] if job in self.probes]


def measured(run: Run) -> Measured:
    """Sort the records of a run; specs without numbers at the trained length have no rows, and are named."""
    lines, trained, remarks = run.records, run.trained, list[str]()
    values = values_of(_finite(lines[(lines["metric"] == run.decides.name) & (lines["length"] > 0)], remarks))
    first = {spec: tables[trained] for (spec, view), tables in values.items() if view == FULL and trained in tables}
    for (spec, view), tables in values.items():
        if view == WINDOW and spec in first:  # a window of the trained length hides nothing there
            tables.setdefault(trained, first[spec])
    absent = sorted({spec for spec, _ in values} - set(first))
    remarks += [f"{spec} has no number at the trained length, and so no row." for spec in absent]
    once = lines[(lines["length"] == 0) & np.isfinite(lines["value"])]
    jobs = dict[str, list[str]]()
    for spec, job in lines[["spec", "job"]].drop_duplicates().itertuples(index=False):
        jobs.setdefault(str(spec), []).append(str(job))
    return Measured(
        {key: tables for key, tables in values.items() if key[0] in first}, first, jobs,
        _trained(once[once["metric"] != PROBE]), _probes(once[once["metric"] == PROBE]), tuple(remarks),
    )  # fmt: skip


def values_of(lines: pd.DataFrame) -> dict[Key, dict[int, pd.DataFrame]]:
    """Averages within documents; a document that some seed of a row lacks is left out."""
    by = ["spec", "view", "length", "seed", "document"]
    wide = lines.groupby(by, observed=True)["value"].mean().unstack("document")
    found = dict[Key, dict[int, pd.DataFrame]]()
    for (spec, view, length), part in wide.groupby(level=[0, 1, 2], observed=True):
        table = part.droplevel([0, 1, 2]).dropna(axis=1)
        if table.size:
            found.setdefault((str(spec), str(view)), {})[int(length)] = table
    return found


def _finite(lines: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Without the seeds of a row that have a number at a length which is not finite; each is named."""
    broken = ~np.isfinite(lines["value"])
    if not broken.any():
        return lines
    places = pd.MultiIndex.from_frame(lines[["spec", "view", "length", "seed"]].astype({"spec": str, "view": str}))
    for spec, view, length, seed in (found := places[broken].unique()):
        remarks.append(f"{spec} ({view}), seed {seed}: not finite at {length:,}, and left out there.")
    return lines[~places.isin(found)]


def _trained(lines: pd.DataFrame) -> dict[str, dict[str, dict[str, float]]]:
    """Metrics with one value a training, or a row of it."""
    by = ["job", "spec", "metric"]
    found = dict[str, dict[str, dict[str, float]]]()
    for job, spec, metric, value in lines.drop_duplicates(by, keep=False)[[*by, "value"]].itertuples(index=False):
        found.setdefault(str(job), {}).setdefault(str(spec), {})[str(metric)] = float(value)
    return found


def _probes(lines: pd.DataFrame) -> dict[str, Probes]:
    jobs = lines.sort_values("item", kind="stable").groupby("job", observed=True)
    return {str(job): list(zip(part["item"].tolist(), part["value"].tolist(), strict=True)) for job, part in jobs}
