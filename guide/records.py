"""``python -m guide.records RUN…``: take finished runs of ``posenc compare`` into docs/results.

What is recorded of a run is run.json and records.parquet; ``posenc report`` makes everything else from these two. A
folder in docs/results has them, the page that readers look up without installing anything (table.md), and the charts
that a page shows. Its other files cannot be made again: tuning trials, measurements by hand.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from posenc_cli import run as posenc

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
RUN, RECORDS = "run.json", "records.parquet"
PAGES = ("table.md",)
IRREPLACEABLE = ("trials.csv", "tuned.json", "progressive.json")


def runs() -> list[str]:
    """Names of the recorded runs."""
    return sorted(path.parent.name for path in RESULTS.glob(f"*/{RUN}"))


def take(run: Path) -> None:
    """Record a finished run under the name of its folder, in place of an earlier one of that name."""
    folder = RESULTS / run.name
    folder.mkdir(exist_ok=True)
    compact(run / RECORDS, folder / RECORDS)
    for name in (RUN, *IRREPLACEABLE):
        if (run / name).is_file() and run.resolve() != folder.resolve():
            shutil.copyfile(run / name, folder / name)
    with tempfile.TemporaryDirectory() as report:
        write_report(folder, Path(report))
        for name in PAGES:
            shutil.copyfile(Path(report) / name, folder / name)
        shutil.rmtree(folder / "charts", ignore_errors=True)
        for chart in charts_shown(run.name):
            (folder / "charts").mkdir(exist_ok=True)
            shutil.copyfile(Path(report) / "charts" / chart, folder / "charts" / chart)


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


def write_report(run: Path, out: Path) -> None:
    """The files that ``posenc report`` writes for a run."""
    if posenc(["report", str(run), "--out", str(out)]):
        raise RuntimeError(f"{run}: posenc report failed")


def charts_shown(run: str) -> list[str]:
    """File names of the charts of a run that a page shows or links."""
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    linked = rf"results/{re.escape(run)}/charts/([\w-]+\.svg)"
    return sorted({name for page in pages for name in re.findall(linked, page.read_text(encoding="utf-8"))})


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("name the folders of the runs to record: python -m guide.records RUN…")
    for argument in sys.argv[1:]:
        take(Path(argument))
    sys.stdout.write("then: python -m guide.embedded && python -m guide.numbers\n")
