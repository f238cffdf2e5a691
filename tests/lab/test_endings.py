"""How a command ends that is not let: a closed terminal, a full disk. Nothing is lost, and no worker is left."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.lab.conftest import run_here
from tests.samples import mostly_slow

import posenc
from posenc.lab import commands, files
from posenc.lab.files import UnwritableError, naming, write_atomically
from posenc.lab.jobs import Job
from posenc.lab.runners import local
from posenc.lab.runners.pending import Pending
from posenc.lab.stopping import StoppedByUserError, stoppable
from posenc.lab.worker import UNWRITABLE

TINY = (
    "--train-length 8 --lengths 1,2 --batch-size 4 --windows 4 --dim 16 --layers 1 --heads 2 --no-cost --workers 1 "
    "--precision float32 --device cpu --checkpoint-every 1 --no-control"
)


def typed(texts: Path, out: Path, steps: int) -> list[str]:
    return ["compare", "nope", "--data", str(texts), "--out", str(out), "--steps", str(steps), *TINY.split()]


@pytest.fixture(autouse=True)
def _sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(posenc.__file__).parents[1]))


@contextmanager
def heard(number: signal.Signals) -> Iterator[None]:
    """A signal does what it does in a terminal, also where a shell started the tests in the background, deaf to it."""
    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", mostly_slow([signal.SIGINT, signal.SIGHUP, signal.SIGTERM], signal.SIGHUP))
def test_a_command_that_is_stopped_ends_its_workers(
    number: signal.Signals, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out, started = tmp_path / "run", []
    start = local._start
    monkeypatch.setattr(local, "_start", lambda *given: started.append(start(*given)) or started[-1])

    def close() -> None:
        while not list(out.glob("jobs/*/checkpoint.pt")):
            time.sleep(0.02)
        os.kill(os.getpid(), number)
        if number != signal.SIGINT:
            os.kill(os.getpid(), number)  # a shell and the system may both say so

    before = signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=close, daemon=True)
    thread.start()
    with heard(number):
        assert commands.run(typed(texts, out, 100_000)) == 130
    thread.join()
    assert "stopped: nothing is lost; to go on: posenc compare nope" in capsys.readouterr().err
    assert [process.poll() for process in started] == [143], "a worker is left, or did not save"
    assert (signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGTERM)) == before


def test_who_asked_for_no_hangup_gets_none() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with stoppable("posenc compare"):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with pytest.raises(StoppedByUserError), stoppable("posenc compare"):
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """No file grows beyond so many bytes, in this process and in those that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_names_the_file_and_loses_nothing(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with small_files(1000):
        assert commands.run(typed(texts, out, 3)) == 2
    assert f"error: cannot write {out / 'corpus' / 'train.bin'}: File too large" in capsys.readouterr().err
    with small_files(50_000):  # texts have room, checkpoints have not
        assert commands.run(typed(texts, out, 3)) == 1
    err = capsys.readouterr().err
    assert f"error: nope-seed0: cannot write {out / 'jobs' / 'nope-seed0' / 'checkpoint.pt'}: File too large" in err
    assert "Traceback" not in err
    assert not list(out.rglob("*.tmp"))
    monkeypatch.setattr("posenc.lab.compare.run_local", run_here)
    assert commands.run(typed(texts, out, 3)) == 0
    assert (out / "table.md").exists()


@pytest.mark.parametrize("name", ["results.jsonl", "table.md", "report.html", "bits_by_length.png"])
def test_a_report_names_the_file_that_has_no_room(
    name: str, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = Path(__file__).parents[2] / "docs" / "results" / "quick" / "results.jsonl"
    written, sync = [], os.fsync

    def full(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
        written.append(path)
        if f".{name}." in path:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(files.os, "fsync", full)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("as it was")
    assert commands.run(["report", str(recorded), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"error: cannot write {tmp_path / 'out' / name}: No space left on device\n"
    assert (tmp_path / "out" / name).read_text() == "as it was"


def test_the_name_that_is_told_is_the_innermost(tmp_path: Path) -> None:
    told = pytest.raises(UnwritableError, match="cannot write inner: No space")
    with told as caught, naming(Path("outer")), naming(Path("inner")):
        raise OSError(28, "No space left on device")
    assert caught.value.errno == 28
    with pytest.raises(UnwritableError, match=r"cannot write .*/nowhere/x"):
        write_atomically(tmp_path / "nowhere" / "x", b"")


def test_where_not_even_the_log_can_be_written_the_folder_is_named(
    make_job: Callable[..., tuple[Job, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = make_job("nope")
    code = f"raise SystemExit({UNWRITABLE})"
    monkeypatch.setattr(local, "_start", lambda *given: subprocess.Popen([sys.executable, "-S", "-c", code]))
    failures = local.run_local(
        [Pending("nope-seed0", folder, ["nope"])], workers=1, threads=1, gpus=0, on_poll=lambda names: None
    )
    assert failures == [f"nope-seed0: cannot write in {folder}: is the disk full?; see {folder / 'log.txt'}"]
