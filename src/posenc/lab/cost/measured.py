"""A measuring as a person watches it, and the one that ends a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from posenc.lab.cost.conditions import LENGTHS, SECONDS
from posenc.lab.cost.measure import measure_costs
from posenc.lab.cost.results import Costs
from posenc.lab.cost.store import read_cost, write_cost
from posenc.lab.specs import trained
from posenc.lab.text.profiles import Settings


def measured(
    specs: list[str], settings: Settings, lengths: tuple[int, ...], seconds: float, console: Console, *, command: str
) -> Costs:
    """Measure under a bar with the remaining time; without a terminal, under a line for each tenth of the work."""
    columns = (
        BarColumn(bar_width=24), TextColumn("{task.percentage:3.0f} %"), TimeRemainingColumn(), TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar, tenths = progress.add_task("", total=1.0), {0}

        def on_progress(share: float, words: str) -> None:
            progress.update(bar, completed=share, description=words)
            if not console.is_terminal and int(10 * share) not in tenths:
                tenths.add(int(10 * share))
                console.print(f"{100 * share:.0f} %: {words}")

        return measure_costs(
            specs, settings, lengths=lengths, seconds=seconds, on_progress=on_progress, command=command
        )


def costs_of_run(
    out: Path, specs: Sequence[str], settings: Settings, profile: str, console: Console, *, command: str
) -> Costs:
    """What the encodings of a run cost: as it was measured before, else measured now, when no job of the run works."""
    wanted = list(dict.fromkeys(trained(spec) for spec in specs))
    if (out / "cost.jsonl").exists():
        found = read_cost(out)
        if set(wanted) <= set(found.encodings):
            return found
    console.print("Measuring what the encodings cost …", style="dim")
    costs = measured(wanted, settings, LENGTHS[profile], SECONDS[profile], console, command=command)
    write_cost(out, costs)
    return costs
