"""The command ``posenc report``: writes the report of one run again, or of several runs together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from posenc.lab.compare import report
from posenc.lab.console import plain_console
from posenc.lab.run.folder import FILE, Run, pooled, read_run
from posenc.lab.run.planning import PANELS


def report_command(
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of posenc compare. Runs with the same settings and data share one table; other runs are "
            "compared on one page.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write the report to. Default: the run's folder; for several runs, posenc-report.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write the report of one run again, or of several runs together."""
    runs = read(folders)
    report(runs, out or (folders[0] if len(folders) == 1 else Path("posenc-report")), plain_console())


def read(folders: Sequence[Path]) -> list[Run]:
    """The runs of some folders, joined where they belong together; a folder of panels stands for theirs.

    Raises:
        ValueError: naming a folder with nothing to report, or a file that posenc did not write.
    """
    runs = list[Run]()
    for given in dict.fromkeys(folders):
        panels = [given / name for name in PANELS if (given / name / FILE).is_file()]
        for folder in [given] if (given / FILE).is_file() or not panels else panels:
            runs.append(read_run(folder))
            if runs[-1].records.empty:
                raise ValueError(f"{folder}: no job is finished yet, so there is nothing to report")
    return pooled(runs)
