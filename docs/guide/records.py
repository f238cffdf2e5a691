"""The recorded runs of docs/results: their names, tables and pages.

What is recorded of a run is run.json and records.parquet; ``posenc report`` makes everything else from these two.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from posenc.catalogue.measured import RECORDED
from posenc.catalogue.studies import Study, StudyRow, studies
from posenc.lab.report.numbers import Table, build_table
from posenc.lab.report.page import table_markdown
from posenc.lab.run.folder import Run, read_run

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
RUN = "run.json"


def runs() -> list[str]:
    """Names of the recorded runs."""
    return sorted(path.parent.name for path in RESULTS.glob(f"*/{RUN}"))


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
    return build_table(run_of(name))


def report_page(name: str) -> str:
    """The page of a recorded run: the table that ``posenc report`` writes."""
    return table_markdown(run_of(name), records_frame(name))
