"""The command ``posenc report``: writes the report of one run again, or of several runs together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posenc.lab.console import plain_console
from posenc.lab.cost.costs import FACTS, Costs, read_costs
from posenc.lab.plugins import ImportAllowlist, allow_imports
from posenc.lab.report.numbers import build_table
from posenc.lab.report.render import terminal_summary, write_report
from posenc.lab.report.tables import terminal_table
from posenc.lab.run.baselines import add_baselines
from posenc.lab.run.folder import FILE, Run, pooled, read_run
from posenc.lab.run.planning import PANELS


def report_command(
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of posenc compare or posenc cost. Runs with the same settings and data share one table; "
            "other runs are compared on one page.",
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
    chart: Annotated[
        list[str] | None,
        typer.Option(help="Your own chart, my_module:my_chart; repeat --chart for several charts.", show_default=False),
    ] = None,
    classes_from: Annotated[
        Path | None, typer.Option(help="Folder with the modules of your own charts.", show_default=False)
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines",
            help="First compute the n-gram baseline of runs of language models that were recorded without it. The data "
            "of the run must be at hand: they are read again and compared with the recorded hashes.",
        ),
    ] = False,
) -> None:
    """Write the report of one run again, or of several runs together."""
    for folder in folders if baselines else ():
        add_baselines(folder)
    runs, costs = read(folders)
    target = out or (folders[0] if len(folders) == 1 else Path("posenc-report"))
    names = chart or []
    with allow_imports(ImportAllowlist(frozenset(names), classes_from or Path())):
        paths = write_report(runs, target, custom=names, costs=costs)
    console = plain_console()
    for run in runs:
        console.print(terminal_table(run, build_table(run)))
    for line in terminal_summary(runs):
        console.print(line)
    console.print(f"\nWritten to {target}: {', '.join(str(path.relative_to(target)) for path in paths)}")


def _panels(folder: Path) -> list[Path]:
    """A run's folder; or the folders of the panels that a folder of posenc compare holds."""
    if any((folder / name).is_file() for name in (FILE, FACTS)):
        return [folder]
    return [folder / name for name in PANELS if (folder / name / FILE).is_file()] or [folder]


def read(folders: list[Path]) -> tuple[list[Run], Costs | None]:
    """Read folders: runs, joined where they belong together, and the first costs.

    Raises:
        ValueError: naming a folder with nothing to report, or a file that posenc did not write.
    """
    runs, costs = list[Run](), None
    for folder in dict.fromkeys(part for given in folders for part in _panels(given)):
        has_costs = (folder / FACTS).is_file()
        if has_costs:
            costs = costs or read_costs(folder)
        if not has_costs or (folder / FILE).is_file():
            runs.append(read_run(folder))
            if runs[-1].records.empty:
                raise ValueError(f"{folder}: no job is finished yet, so there is nothing to report")
    if not runs:
        raise ValueError(f"{folders[0]}: holds costs only; add the folder of a run of posenc compare")
    return pooled(runs), costs
