"""The command ``posenc report``: the report of one run again, or of several runs together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posenc.lab.console import plain_console
from posenc.lab.cost.costs import FACTS, Costs, read_costs
from posenc.lab.own import Permission, permitted
from posenc.lab.report.rows import rows_of
from posenc.lab.report.table import terminal_table
from posenc.lab.report.writing import summary, write
from posenc.lab.runs import FILE, Run, pooled, read_run


def report_command(
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of posenc compare or posenc cost. Runs with the same numbers and data make one table, "
            "others stand beside each other on one page.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the report goes. Default: the folder, or of several, posenc-report.", show_default=False
        ),
    ] = None,
    chart: Annotated[
        list[str] | None,
        typer.Option(help="A chart of your own, my_module:my_chart; several are several --chart.", show_default=False),
    ] = None,
    classes_from: Annotated[
        Path | None, typer.Option(help="Folder that charts of your own lie in.", show_default=False)
    ] = None,
) -> None:
    """Write the report of finished runs again, or of several runs together."""
    runs, costs = read(folders)
    target = out or (folders[0] if len(folders) == 1 else Path("posenc-report"))
    names = chart or []
    with permitted(Permission(frozenset(names), classes_from or Path())):
        paths = write(runs, target, own=names, costs=costs)
    console = plain_console()
    for run in runs:
        console.print(terminal_table(run, rows_of(run)))
        for remark in run.remarks:
            console.print(remark, style="dim")
    for line in summary(runs):
        console.print(line)
    console.print(f"\nWritten to {target}: {', '.join(str(path.relative_to(target)) for path in paths)}")


def read(folders: list[Path]) -> tuple[list[Run], Costs | None]:
    """What lies in some folders: runs, those that belong together as one, and the first costs.

    Raises:
        ValueError: naming a folder with nothing to report, or files that are none of ours.
    """
    runs, costs = list[Run](), None
    for folder in dict.fromkeys(folders):
        has_costs = (folder / FACTS).is_file()
        if has_costs:
            costs = costs or read_costs(folder)
        if not has_costs or (folder / FILE).is_file():
            runs.append(read_run(folder))
            if runs[-1].records.empty:
                raise ValueError(f"{folder}: no job is finished yet, so there is nothing to report")
    if not runs:
        raise ValueError(f"{folders[0]}: costs alone; the folder of a run of posenc compare is needed beside them")
    return pooled(runs), costs
