"""The recorded runs: their numbers for a page, their tables, and their records."""

from __future__ import annotations

import gc
from functools import cache

from guide.records import RESULTS
from posenc.catalogue.measured import RECORDED
from posenc.catalogue.studies import Study, StudyRow, studies
from posenc.lab.report.numbers import Table, build_table
from posenc.lab.run.folder import Run, read_run


def measured(name: str) -> list[tuple[Study, StudyRow]]:
    """Each recorded comparison that has an encoding among its rows, with its row under full attention."""
    return [(study, study.rows[name]) for study in studies() if name in study.rows]


def tables_of(name: str) -> list[str]:
    """Folders of comparisons that have an encoding among their rows."""
    return [folder for folder, names in RECORDED.items() if name in names]


@cache
def run_of(name: str) -> Run:
    """A recorded run with its records."""
    return read_run(RESULTS / name)


@cache
def records_frame(name: str) -> Table:
    """The rows of a recorded run: means, changes, verdicts and planned contrasts."""
    run = run_of(name)
    gc.freeze()  # statsmodels collects garbage for every table, which takes as long as all the rest
    try:
        return build_table(run)
    finally:
        gc.unfreeze()
