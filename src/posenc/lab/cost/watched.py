"""Costs measured under a bar, and those of a run, which are measured once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from posenc.lab.config import Config
from posenc.lab.cost.costs import FACTS, Costs, read_costs, write_costs
from posenc.lab.cost.measure import measure_costs

LENGTHS = {"quick": (64, 256, 1024), "standard": (64, 256, 1024, 4096), "full": (512, 2048, 8192, 32768)}  # tokens
SECONDS = {"quick": 0.15, "standard": 1.0, "full": 3.0}  # for the timed rounds of one cell


def watched(
    specs: Sequence[str], config: Config, lengths: Sequence[int], seconds: float, console: Console, *, command: str
) -> Costs:
    """Measure under a bar with the remaining time; without a terminal, under a line for each tenth of the work."""
    tenths = {0}
    with Progress(
        *Progress.get_default_columns(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=1.0)

        def tell(share: float, words: str) -> None:
            bar.update(task, completed=share, description=words)
            if not console.is_terminal and int(10 * share) not in tenths:
                tenths.add(int(10 * share))
                console.print(f"{100 * share:.0f} %: {words}")

        return measure_costs(specs, config, lengths=lengths, seconds=seconds, on_progress=tell, command=command)


def costs_of_run(
    out: Path, specs: Sequence[str], config: Config, profile: str, console: Console, *, command: str
) -> Costs:
    """What the encodings of a run cost: as it was measured before, else measured now, when no job of the run works."""
    if (out / FACTS).is_file():
        found = read_costs(out)
        if set(specs) <= set(found.frame["spec"].astype(str)):
            return found
    console.print("Measuring what the encodings cost …", style="dim")
    costs = watched(specs, config, LENGTHS[profile], SECONDS[profile], console, command=command)
    write_costs(out, costs)
    return costs
