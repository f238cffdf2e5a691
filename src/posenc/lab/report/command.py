"""The command ``posenc report``: reports written again, of one run or of several put together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posenc.lab.console import plain_console
from posenc.lab.report.merge import merge, write_reports
from posenc.lab.tasks import task_of
from posenc.lab.words import join


def report_command(
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of posenc compare or posenc cost, or a results.jsonl alone. Several of one task make one "
            "table, of several tasks one page.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the report goes. Default: with one folder, that folder; with several, posenc-report.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write the report of finished runs again, or of several runs together."""
    page = merge(folders)
    for part in page.parts:
        if not part.rows:
            raise ValueError(f"--task {part.task}: no job is finished yet, so there is nothing to report")
    single = folders[0] if len(folders) == 1 else None
    target = out or (single if single and single.is_dir() else Path("posenc-report"))
    console = plain_console()
    paths = write_reports(page, target)
    for part in page.parts:
        console.print(task_of(part.record.settings).table(part.rows, part.record.settings))
        for remark in part.remarks:
            console.print(remark, style="dim")
    console.print(f"\nWritten to {target}: {join([str(path.relative_to(target)) for path in paths])}")
