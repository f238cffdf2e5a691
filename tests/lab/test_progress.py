"""What a run shows while it works."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from posenc.lab.files import write_json
from posenc.lab.jobs import RESULT_FORMAT, Job
from posenc.lab.progress import Display
from posenc.lab.runners.pending import Pending

MakeJob = Callable[..., tuple[Job, Path]]


def _show(console: Console, job: Job, folder: Path) -> Display:
    return Display(console, folder.parent.parent, job.settings, [Pending(job.name, folder, [job.spec])], finished=0)


def _finish(job: Job, folder: Path) -> None:
    measured = {job.spec: {"bits": [[2.0, 2.1]] * 3, "positions": [2.0], "bin": 2}}
    result = {"format": RESULT_FORMAT, "identity": job.identity, "training": {}, "rows": measured}
    write_json(folder / "result.json", result)


def test_without_a_terminal_it_prints_plain_lines(make_job: MakeJob) -> None:
    job, folder = make_job("rope")
    out = io.StringIO()
    with _show(Console(file=out, width=200), job, folder) as display:
        display.poll([job.name])
        write_json(folder / "progress.json", {"phase": "train", "share": 0.5, "detail": "2.10 bits"})
        display.poll([job.name])
        display.poll([job.name])  # not again within seconds
        _finish(job, folder)
        display.poll([])
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("rope-seed0: ")
    assert "2.10 bits" in lines[0]
    assert lines[1] == "rope-seed0: finished (1 of 1)"


def test_on_a_terminal_it_shows_bars_with_remaining_time_and_the_table_so_far(make_job: MakeJob) -> None:
    job, folder = make_job("rope")
    out = io.StringIO()
    console = Console(file=out, width=100, height=30, force_terminal=True)
    with _show(console, job, folder) as display:
        write_json(folder / "progress.json", {"phase": "measure", "share": 0.5, "detail": "rope"})
        display.poll([job.name])
        display.live.refresh() if display.live else pytest.fail("no live display")
        assert "measuring rope" in out.getvalue()
        assert "0 of 1 done" in out.getvalue()
        assert "finished" not in out.getvalue()
        _finish(job, folder)
        display.poll([])
        display.live.refresh()
    assert "1 of 1 done" in out.getvalue()
    assert "2.050" in out.getvalue()  # bits in the table


def test_a_bar_does_not_fall_back_when_the_progress_file_is_gone(make_job: MakeJob) -> None:
    job, folder = make_job("rope")
    with _show(Console(file=io.StringIO(), width=100, force_terminal=True), job, folder) as display:
        write_json(folder / "progress.json", {"phase": "measure", "share": 0.9, "detail": "rope"})
        display.poll([job.name])
        (folder / "progress.json").unlink()
        display.poll([job.name])
        assert display.progress.tasks[0].completed > 0.5
