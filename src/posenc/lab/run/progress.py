"""What a run shows while it works: bars with remaining time, or plain lines without a terminal.

Everything shown is read from the job folders, so it is the same whichever executor does the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from posenc.lab.files import read_record
from posenc.lab.run.folder import RECORDS
from posenc.lab.run.job import Work
from posenc.lab.run.run_job import PROGRESS, ProgressRecord

LINE_SECONDS = 15  # between two plain lines of one job


class Display:
    """A context in which `poll` may be called as often as one likes.

    Args:
        console: where to print.
        works: what remains to be done.
        finished: how many jobs were done before.
        train_share: which share of a job's time is training, about.
        table: the results so far, made anew whenever a job has ended, with a terminal or without.
    """

    def __init__(
        self, console: Console, works: Sequence[Work], finished: int, train_share: float,
        table: Callable[[], RenderableType | None],
    ) -> None:  # fmt: skip
        self.console, self.train_share, self.make_table = console, train_share, table
        self.pending = {work.name: work for work in works}
        self.before = {work.name: _written(work) for work in works}
        self.total, self.finished = len(works) + finished, finished
        self.table = table() if finished else None
        self.shares: dict[str, float] = {}
        self.last_line: dict[str, float] = {}
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.percentage:3.0f} %"),
            TimeRemainingColumn(), TextColumn("left,"), TimeElapsedColumn(), TextColumn("so far"),
            TextColumn("{task.fields[detail]}"), console=console,
        )  # fmt: skip
        self.bars: dict[str, TaskID] = {}
        self.live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None

    def __enter__(self) -> Display:
        if self.live:
            self.overall = self.progress.add_task("all jobs", total=float(self.total), detail="")
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def poll(self, running: list[str]) -> None:
        """Show the state of the jobs; ``running`` are the names of those that were started and have not ended."""
        for name in [name for name, work in self.pending.items() if name not in running and self._is_done(work)]:
            self._finish(name)
        for name in running:
            if name in self.pending:
                self._update(name)
        if self.live:
            done = self.finished + sum(self.shares.values())
            self.progress.update(self.overall, completed=done, detail=f"{self.finished} of {self.total} done")
            self.live.update(Group(*([self.table] if self.table else []), self.progress, fit=False))

    def _is_done(self, work: Work) -> bool:
        return _written(work) != self.before[work.name]

    def _update(self, name: str) -> None:
        """Move the bar of a running job."""
        state = _read_progress(self.pending[name])
        if state is None:
            return
        phase, share, detail = state
        training = phase == "train"
        rest = 1 - self.train_share
        self.shares[name] = share * self.train_share if training else self.train_share + share * rest
        text = detail if training else f"measuring {detail}"
        if self.live:
            if name not in self.bars:
                self.bars[name] = self.progress.add_task(name, total=1.0, detail=text)
            self.progress.update(self.bars[name], completed=self.shares[name], detail=text)
        elif time.monotonic() - self.last_line.get(name, 0.0) > LINE_SECONDS:
            self.last_line[name] = time.monotonic()
            self.console.print(f"{name}: {100 * self.shares[name]:.0f} %, {text}")

    def _finish(self, name: str) -> None:
        del self.pending[name]
        self.shares.pop(name, None)
        self.finished += 1
        self.table = self.make_table()
        if self.live:
            if name in self.bars:
                self.progress.remove_task(self.bars.pop(name))
        else:
            self.console.print(f"{name}: finished ({self.finished} of {self.total})")


def _written(work: Work) -> int:
    """When a job's records were written, ns; 0 where there are none."""
    path = work.folder / RECORDS
    return path.stat().st_mtime_ns if path.exists() else 0


def _read_progress(work: Work) -> tuple[str, float, str] | None:
    try:
        state = read_record(work.folder / PROGRESS, ProgressRecord)
    except ValueError:
        return None  # not begun, or just finished
    return state["phase"], state["share"], state["detail"]
