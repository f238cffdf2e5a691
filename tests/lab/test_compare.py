"""The main job as a user runs it: to its report, again, refused, under torchrun; and how it ends without room."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from markupsafe import escape
from tests.lab.conftest import NUMBERS, numbers, run, typed

from posenc.lab import commands
from posenc.lab.console import StoppedByUserError, stoppable
from posenc.lab.report.page import terminal_summary
from posenc.lab.run.folder import read_run
from posenc.lab.run.progress import Display
from posenc.lab.tasks.puzzles import Recall
from posenc.lab.tasks.sequences import SIZES


def test_a_run_ends_with_its_report(quiet: Path) -> None:
    finished = read_run(quiet)
    assert set(finished.records["spec"].astype(str)) == {"rope", "alibi"}
    assert {"report.html", "table.md", "records.parquet", "run.json"} <= {path.name for path in quiet.iterdir()}
    table = (quiet / "table.md").read_text()
    assert "rope" in table
    assert not list(quiet.glob("jobs/*/progress.json"))
    assert f"--out {quiet}" in finished.command
    assert "--device cpu" in finished.command


def test_the_recorded_command_reproduces_the_record(quiet: Path, tmp_path: Path, here: None) -> None:
    words = read_run(quiet).command.split()
    assert words[0] == "posenc"
    words[words.index("--out") + 1] = str(tmp_path / "again")
    (tmp_path / "again" / ".run.json-x").mkdir(parents=True)  # left by a command that was killed when it began
    assert commands.run(words[1:]) == 0
    assert numbers(tmp_path / "again") == numbers(quiet)


def test_the_same_command_again_trains_nothing_and_writes_the_report_again(
    quiet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], here: None
) -> None:
    out = shutil.copytree(quiet, tmp_path / "run")
    written = {path: path.stat().st_mtime_ns for path in out.glob("jobs/*/checkpoint.pt")}
    (out / "report.html").unlink()
    (out / "records.parquet").unlink()
    assert run(out) == 0
    assert "finished already" in " ".join(capsys.readouterr().out.split())
    assert (out / "report.html").exists()
    assert {path: path.stat().st_mtime_ns for path in out.glob("jobs/*/checkpoint.pt")} == written
    assert run(out, encodings=["nope"]) == 0  # another encoding joins them, and the command that made it is kept
    assert set(read_run(out).records["spec"]) == {"rope", "alibi", "nope"}
    assert len(read_run(out).command.splitlines()) == 3


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--lr", "0.5"], "lr 0.002 there, 0.5 here"), (["--lengths", "1,3"], "lengths"),
        (["--task", "flipflop"], "holds a run of --task copy, not flipflop"),
        (["--threads", "2"], "threads 1 there, 2 here"),
    ],
)  # fmt: skip
def test_another_configuration_is_refused(
    quiet: Path, more: list[str], words: str, capsys: pytest.CaptureFixture[str], here: None
) -> None:
    before = (quiet / "run.json").read_bytes()
    assert run(quiet, *more) == 2
    err = capsys.readouterr().err
    assert words in err
    assert len(err.splitlines()) == 1
    assert (quiet / "run.json").read_bytes() == before


@pytest.mark.parametrize("name", ["checkpoint.pt", "records.parquet", "job.json"])
def test_a_truncated_file_stops_the_run_before_it_starts(
    quiet: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], here: None
) -> None:
    out = shutil.copytree(quiet, tmp_path / "run")
    path = out / "jobs" / "rope-seed0" / name
    content = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(content)
    if name == "checkpoint.pt":
        (path.parent / "records.parquet").unlink()
    assert run(out) == 2
    err = capsys.readouterr().err
    assert str(path) in err
    assert len(err.splitlines()) == 1
    assert path.read_bytes() == content


def test_a_failing_job_is_named_and_the_others_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], here: None
) -> None:
    assert run(tmp_path / "run", "--lr", "1e4", "--clip", "1e4", "--steps", "60", "--weight-decay", "1e4") == 1
    err = capsys.readouterr().err
    assert "rope-seed0: loss or gradient is not finite" in err
    assert "Traceback" not in err


def test_who_asked_for_no_hangup_gets_none() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with stoppable("posenc compare"):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        for number in (signal.SIGHUP, signal.SIGTERM):  # a shell may have started the tests deaf to Ctrl-C
            with pytest.raises(StoppedByUserError) as stopped, stoppable("posenc compare"):
                signal.raise_signal(number)
            assert stopped.value.exit_code == 128 + number
    finally:
        signal.signal(signal.SIGHUP, before)


# ---- The default run: several panels, one report ----


@pytest.fixture
def panels(monkeypatch: pytest.MonkeyPatch, here: None) -> None:
    """Two panels of seconds."""
    monkeypatch.setattr("posenc.lab.compare.PANELS", ("recall", "copy"))
    monkeypatch.setitem(SIZES, "quick", NUMBERS)  # type: ignore[misc]
    monkeypatch.setattr(Recall, "sizes", {**Recall.sizes, "quick": {"train_length": 32}})


def default_run(out: Path, *more: str) -> int:
    return commands.run(["compare", "rope", "alibi", "--out", str(out), "--device", "cpu", *more])


def test_the_default_run_has_a_folder_for_each_panel_and_one_report(
    tmp_path: Path, panels: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert default_run(out) == 0
    runs = [read_run(out / name) for name in ("recall", "copy")]
    assert [run.task for run in runs] == ["recall", "copy"]
    assert {path.name for path in out.iterdir()} == {"recall", "copy", "report.html"}
    for panel in runs:
        assert set(json.loads((panel.path / "verdicts.json").read_text())["encodings"]) == {"rope", "alibi"}
        assert (panel.path / "table.md").is_file()
        assert "posenc compare rope alibi" in panel.command
    page, printed = (out / "report.html").read_text(), capsys.readouterr().out
    for line in terminal_summary(runs)[:2]:
        assert line in printed
        assert escape(line) in page
    assert commands.run(["report", str(out)]) == 0
    assert (out / "report.html").read_text() == page
    assert default_run(out) == 0
    assert " ".join(capsys.readouterr().out.split()).count("finished already") == 2
    assert run_of_one_task(tmp_path / "one") == numbers(out / "copy"), "a panel is a run like any other"


def run_of_one_task(out: Path) -> list[tuple[object, ...]]:
    assert run(out) == 0
    return numbers(out)


@pytest.mark.parametrize("after", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_default_run_that_is_stopped_leaves_a_report_and_goes_on(
    tmp_path: Path, panels: None, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Stopped after so many of four jobs: the report has what is finished, and the numbers end as if undisturbed."""
    out, done, finish_job = tmp_path / "run", list[str](), Display._finish

    def stop(self: Display, name: str) -> None:
        finish_job(self, name)
        done.append(name)
        if len(done) == after:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Display, "_finish", stop)
        assert default_run(out, "--workers", "1") == 143
    page = (out / "report.html").read_text()
    assert ('id="numbers-2"' in page) is (after > 2)
    assert 'id="numbers-1"' in page
    assert default_run(out) == 0
    assert default_run(tmp_path / "quiet") == 0
    for name in ("recall", "copy"):
        assert numbers(out / name) == numbers(tmp_path / "quiet" / name)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--pairs", "4"], "--task text has no such number"),
        (["--set", "lag=3"], "lag"),
        (["nosuch"], "nosuch"),
        (["--lr", "-1"], "--lr"),
    ],
)
def test_what_is_wrong_with_a_panel_is_said_before_any_job(
    more: list[str], words: str, tmp_path: Path, panels: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert default_run(tmp_path / "run", *more) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_folder_of_one_task_or_of_something_else_is_not_filled_with_panels(
    quiet: Path, tmp_path: Path, panels: None, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("")
    for folder in (shutil.copytree(quiet, tmp_path / "run"), other):
        before = sorted(path.name for path in folder.iterdir())
        assert default_run(folder) == 2
        assert str(folder) in capsys.readouterr().err
        assert sorted(path.name for path in folder.iterdir()) == before


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """No file grows beyond so many bytes, in this process and in those that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
def test_a_full_disk_names_the_file_and_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    with small_files(100):
        assert run(out, encodings=["nope"]) == 2
    assert re.search(f"error: {out}.*cannot be written", capsys.readouterr().err)
    with small_files(20_000):  # data have room, checkpoints have not
        assert run(out, encodings=["nope"]) == 1
    err, checkpoint = capsys.readouterr().err, out / "jobs" / "nope-seed0" / "checkpoint.pt"
    assert f"error: nope-seed0: {checkpoint}: cannot be written: File too large" in err
    assert "Traceback" not in err
    assert not list(out.rglob("jobs/*/.*"))
    assert run(out, encodings=["nope"]) == 0


@pytest.mark.slow
def test_under_torchrun_two_processes_train_each_job_together(quiet: Path, tmp_path: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "posenc"]
    program = [sys.executable, *launcher]
    out = tmp_path / "run"
    done = subprocess.run([*program, *typed(out)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Written to") == 1
    assert json.loads((out / "run.json").read_text())["rounding"]["processes"] == 2
    assert "torchrun --nproc-per-node 2 -m posenc compare" in read_run(out).command
    # Two ranks share each batch, so the training equals one process's, up to rounding.
    for before, after in zip(numbers(quiet), numbers(out), strict=True):
        assert before[:-1] == after[:-1]
        close = 0.13 if before[-2] in ("accuracy", "probe") else 1e-3  # an answer of eight may tip over
        assert before[-1] == pytest.approx(after[-1], abs=close)
    refused = subprocess.run([*program, *typed(quiet)], capture_output=True, text=True, timeout=120)
    assert refused.returncode != 0
    assert refused.stderr.count("error: ") == 1
    assert "processes 1 there, 2 here" in refused.stderr
