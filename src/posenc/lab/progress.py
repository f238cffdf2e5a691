"""What a run shows while it works: bars with remaining time and the table so far, or plain lines without a terminal.

Everything shown is read from the job folders, so it is the same whichever runner does the work.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from posenc.lab.files import read_bytes
from posenc.lab.jobs import read_job, read_result
from posenc.lab.results import read_measured
from posenc.lab.runners.pending import Pending
from posenc.lab.tasks import task_of
from posenc.lab.tasks.task import Numbers, Row

LINE_SECONDS = 15  # between two plain lines of one job


class Display:
    """A context in which `poll` may be called as often as one likes."""

    def __init__(self, console: Console, out: Path, settings: Numbers, pending: list[Pending], finished: int) -> None:
        self.console, self.out, self.settings = console, out, settings
        self.task = task_of(settings)
        self.pending = {job.name: job for job in pending}
        self.total, self.finished_before = len(pending) + finished, finished
        self.train_share = self.task.train_share(settings)
        self.done: set[str] = set()
        self.rows: list[Row] = self._read_rows() if finished else []
        self.shares: dict[str, float] = {}
        self.last_line: dict[str, float] = {}
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.percentage:3.0f} %"),
            TimeRemainingColumn(), TimeElapsedColumn(), TextColumn("{task.fields[detail]}"), console=console,
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
        """Show the state of the jobs; ``running`` are the names of those that have been started and not ended."""
        shares = {name: self._update(name) for name in running if name not in self.done}
        for name, job in self.pending.items():
            if name not in self.done and name not in running and _is_finished(job):
                self._finish(name)
        if self.live:
            done = self.finished_before + len(self.done) + sum(shares.values())
            self.progress.update(
                self.overall, completed=done, detail=f"{self.finished_before + len(self.done)} of {self.total} done"
            )
            table = [self.task.table(self.rows, self.settings)] if self.rows else []
            self.live.update(Group(*table, self.progress, fit=False))

    def _update(self, name: str) -> float:
        """Move the bar of a running job; returns its share done."""
        state = _read_progress(self.pending[name].folder)
        if state is None:
            return self.shares.get(name, 0.0)
        phase, phase_share, detail = state
        share = (
            phase_share * self.train_share
            if phase == "train"
            else self.train_share + phase_share * (1 - self.train_share)
        )
        self.shares[name] = share
        text = detail if phase == "train" else f"measuring {detail}"
        if self.live:
            if name not in self.bars:
                self.bars[name] = self.progress.add_task(name, total=1.0, detail=text)
            self.progress.update(self.bars[name], completed=share, detail=text)
        elif time.monotonic() - self.last_line.get(name, 0.0) > LINE_SECONDS:
            self.last_line[name] = time.monotonic()
            self.console.print(f"{name}: {100 * share:.0f} %, {text}")
        return share

    def _finish(self, name: str) -> None:
        self.done.add(name)
        self.rows = self._read_rows()
        if self.live and name in self.bars:
            self.progress.remove_task(self.bars.pop(name))
        if not self.live:
            self.console.print(f"{name}: finished ({self.finished_before + len(self.done)} of {self.total})")

    def _read_rows(self) -> list[Row]:
        return self.task.rows(read_measured(self.out))


def _read_progress(folder: Path) -> tuple[str, float, str] | None:
    try:
        state = json.loads(read_bytes(folder / "progress.json"))
        return state["phase"], float(state["share"]), state["detail"]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not begun, or just finished


def _is_finished(job: Pending) -> bool:
    result = read_result(job.folder, read_job(job.folder))
    return result is not None and all(row in result["rows"] for row in job.rows)
