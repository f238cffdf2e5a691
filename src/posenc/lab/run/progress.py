"""What a run shows while it works: bars with remaining time, or plain lines without a terminal.

Everything shown is read from the job folders, so it is the same whichever executor does the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from posenc.lab.files import read_record
from posenc.lab.run.folder import RECORDS
from posenc.lab.run.job import Work
from posenc.lab.run.run_job import PROGRESS, ProgressRecord

LINE_SECONDS = 15  # between two plain lines of one job


class Display(Progress):
    """A context in which `poll` may be called as often as one likes.

    Args:
        console: where to print.
        works: what remains to be done.
        finished: how many jobs were done before.
        on_end: called whenever a job has ended.
    """

    def __init__(self, console: Console, works: Sequence[Work], finished: int, on_end: Callable[[], object]) -> None:
        super().__init__(
            TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.percentage:3.0f} %"),
            TimeRemainingColumn(), TextColumn("left,"), TimeElapsedColumn(), TextColumn("so far"),
            TextColumn("{task.fields[detail]}"), console=console, disable=not console.is_terminal, transient=True,
        )  # fmt: skip
        self.on_end, self.ended, self.total = on_end, finished, len(works) + finished
        self.pending = {work.name: work for work in works}
        self.before = {work.name: _written(work) for work in works}
        self.shares: dict[str, float] = {}
        self.last_line: dict[str, float] = {}
        self.bars: dict[str, TaskID] = {}
        self.overall = self.add_task("all jobs", total=float(self.total), detail="")

    def poll(self, running: list[str]) -> None:
        """Show the state of the jobs; ``running`` are the names of those that were started and have not ended."""
        for name, work in list(self.pending.items()):
            if name in running:
                self._move(name, work)
            elif _written(work) != self.before[name]:
                self._finish(name)
        done = self.ended + sum(self.shares.values())
        self.update(self.overall, completed=done, detail=f"{self.ended} of {self.total} done")

    def _move(self, name: str, work: Work) -> None:
        """Move the bar of a running job."""
        try:
            state = read_record(work.folder / PROGRESS, ProgressRecord)
        except ValueError:
            return  # not begun, or just finished
        self.shares[name] = state["share"]
        if name not in self.bars:
            self.bars[name] = self.add_task(name, total=1.0, detail="")
        self.update(self.bars[name], completed=state["share"], detail=state["detail"])
        if self.disable and time.monotonic() - self.last_line.get(name, 0.0) > LINE_SECONDS:
            self.last_line[name] = time.monotonic()
            self.console.print(f"{name}: {100 * state['share']:.0f} %, {state['detail']}")

    def _finish(self, name: str) -> None:
        del self.pending[name]
        self.shares.pop(name, None)
        self.ended += 1
        self.on_end()
        if name in self.bars:
            self.remove_task(self.bars.pop(name))
        if self.disable:
            self.console.print(f"{name}: finished ({self.ended} of {self.total})")


def _written(work: Work) -> int:
    """When a job's records were written, ns; 0 where there are none."""
    path = work.folder / RECORDS
    return path.stat().st_mtime_ns if path.exists() else 0
