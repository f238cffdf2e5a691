"""The recorded runs of docs/results: their names, tables and pages; and how a run gets there.

What is recorded of a run is run.json and records.parquet; ``posenc report`` makes everything else from these two. Other
files of a folder there cannot be made again: tuning trials, measurements by hand.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from posenc.catalogue.measured import RECORDED
from posenc.catalogue.studies import Study, StudyRow, studies
from posenc.lab.report.numbers import Table, build_table
from posenc.lab.report.page import table_markdown
from posenc.lab.run.folder import Run, read_run

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
RUN, RECORDS = "run.json", "records.parquet"
IRREPLACEABLE = ("trials.csv", "tuned.json", "progressive.json")


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


def take(run: Path) -> None:
    """Record a finished run under the name of its folder, in place of an earlier one of that name."""
    folder = RESULTS / run.name
    folder.mkdir(exist_ok=True)
    compact(run / RECORDS, folder / RECORDS)
    for name in (RUN, *IRREPLACEABLE):
        if (run / name).is_file() and run.resolve() != folder.resolve():
            shutil.copyfile(run / name, folder / name)


def compact(source: Path, target: Path) -> None:
    """Write the same records in the same order, as small as Parquet has them.

    Items and documents mostly count upwards, so differences of neighbours compress best. Measured values hardly repeat,
    so a dictionary of them costs more than it saves. One page a column lets zstd see all of it.
    """
    table = pq.read_table(source)
    counters = ("item", "document")
    pq.write_table(
        table, target, compression="zstd", compression_level=22, row_group_size=max(len(table), 1),
        data_page_size=1 << 26, write_statistics=False,
        use_dictionary=[name for name in table.column_names if name not in (*counters, "value")],
        column_encoding=dict.fromkeys(counters, "DELTA_BINARY_PACKED"),
    )  # fmt: skip
    if not pq.read_table(target).to_pandas().equals(table.to_pandas()):  # which takes NaN for equal to NaN
        raise pa.ArrowInvalid(f"{target}: not the records of {source}")
