"""Executors: order, deaths and failures; killed processes; submitit; what a new executor or task costs."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType

import pytest
from tests.lab.conftest import numbers, run

from posenc.lab.execute.executor import DEATHS, DiedError, Executor, Resources, make_executor, map_jobs, started
from posenc.lab.execute.local import BAD_INPUT, STOPPED, UNWRITABLE, Local
from posenc.lab.run.job import Work


class Scripted(Executor):
    """Each time a job is submitted, it does what is next in its script: "pass", "save", "die", "fail"."""

    poll_seconds = 0.01

    def __init__(self, **scripts: str) -> None:
        self.scripts = {name: words.split() for name, words in scripts.items()}
        self.order: list[str] = []

    def submit(self, work: Work) -> Future[None]:
        self.order.append(work.name)
        future: Future[None] = Future()
        word = self.scripts[work.name].pop(0)
        if "save" in word:
            (work.folder / "checkpoint.pt").write_text(str(time.time_ns()))
            os.utime(work.folder / "checkpoint.pt", ns=(1, len(self.order)))
        if "die" in word:
            future.set_exception(DiedError("killed by signal 9"))
        elif "fail" in word:
            future.set_exception(ValueError("no\nsomething is wrong"))
        else:
            future.set_result(None)
        return future


def works(folder: Path, *names: str) -> list[Work]:
    jobs = []
    for name in names:
        (folder / name).mkdir()
        (folder / name / "log.txt").touch()
        jobs.append(Work(name, folder / name))
    return jobs


def test_jobs_run_in_order_and_failures_stop_nobody(tmp_path: Path) -> None:
    scripted = Scripted(a="fail", b="pass", c="pass", d="pass")
    failures = map_jobs(scripted, works(tmp_path, "a", "b", "c", "d"), workers=1)
    assert scripted.order == ["a", "b", "c", "d"]
    assert failures == [f"a: something is wrong; see {tmp_path / 'a' / 'log.txt'}"]


def test_a_job_that_saves_checkpoints_is_restarted_as_often_as_it_dies(tmp_path: Path) -> None:
    script, restarts = " ".join(["save-die"] * 2 * DEATHS) + " die save-die die die pass", list[str]()
    scripted = Scripted(a=script)
    assert map_jobs(scripted, works(tmp_path, "a"), on_restart=restarts.append) == []
    assert len(restarts) == len(script.split()) - 1
    assert all(line.startswith("a: killed by signal 9") for line in restarts)


def test_a_job_that_dies_repeatedly_without_a_new_checkpoint_has_failed(tmp_path: Path) -> None:
    scripted = Scripted(a="save-die " + "die " * DEATHS + "pass")
    failures = map_jobs(scripted, works(tmp_path, "a"))
    assert failures == [
        f"a: killed by signal 9, {DEATHS} times without a new checkpoint; see {tmp_path / 'a' / 'log.txt'}"
    ]
    assert scripted.scripts["a"] == ["pass"]


@pytest.mark.parametrize(
    ("code", "log", "error"),
    [
        ("import os; os.kill(os.getpid(), 9)", "", "killed by signal 9, perhaps for lack of memory"),
        (f"raise SystemExit({STOPPED})", "", "killed by signal 15"),
        (f"raise SystemExit({BAD_INPUT})", "error: something is wrong\n", "something is wrong"),
        (f"raise SystemExit({UNWRITABLE})", "", "cannot write in .*: is the disk full?"),
        (f"raise SystemExit({UNWRITABLE})", "error: x: cannot be written: full\n", "x: cannot be written: full"),
    ],
)  # fmt: skip
def test_the_error_says_how_a_process_ended(tmp_path: Path, code: str, log: str, error: str) -> None:
    class Ends(Local):
        def command(self, work: Work) -> list[str]:
            return [sys.executable, "-S", "-c", code]

    (work,) = works(tmp_path, "a")
    (work.folder / "log.txt").write_text(log)
    with started(Ends(), Resources(workers=1)) as executor:
        failure = executor.submit(work).exception(timeout=60)  # type: ignore[call-arg]
    assert re.search(error, str(failure))
    assert isinstance(failure, DiedError) == ("killed" in error)


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGHUP, signal.SIGTERM))],
)
def test_a_command_that_is_stopped_ends_its_workers(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, processes, start = tmp_path / "run", list[subprocess.Popen[bytes]](), Local._start_process

    def remember(self: Local, work: Work, slot: int) -> subprocess.Popen[bytes]:
        processes.append(start(self, work, slot))
        return processes[-1]

    monkeypatch.setattr(Local, "_start_process", remember)

    def close() -> None:
        while not list(out.glob("jobs/*/checkpoint.pt")):
            time.sleep(0.02)
        for _ in range(1 if number == signal.SIGINT else 2):  # a shell and the system may both say so
            os.kill(os.getpid(), number)

    thread = threading.Thread(target=close, daemon=True)
    # as in a terminal, also where a shell started the tests in the background, deaf to it
    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        thread.start()
        assert run(out, "--steps", "100000", encodings=["nope"]) == 128 + number
    finally:
        signal.signal(number, before)
    thread.join()
    assert [process.poll() for process in processes] == [143], "a worker is left, or did not save"
    assert run(out, "--steps", "100000", "--lr", "1", encodings=["nope"]) == 2  # the same command alone goes on


class Killer(threading.Thread):
    """Kills workers of a run at random moments of a seed: each a process that holds the lock of a job's folder."""

    def __init__(self, out: Path, times: int, seed: int = 0) -> None:
        super().__init__(daemon=True)
        self.out, self.times, self.chance = out, times, random.Random(seed)
        self.killed: list[int] = []  # processes
        self.over = threading.Event()
        self.deaths: dict[Path, list[int]] = {}  # of each job, which checkpoint there was at each of its deaths

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.join()

    def run(self) -> None:
        while len(self.killed) < self.times and not self.over.is_set():
            time.sleep(self.chance.uniform(0, 0.25))
            victims = [(pid, job) for pid, job in self._at_work() if pid not in self.killed and not self._spared(job)]
            if victims:
                self._kill(*self.chance.choice(victims))

    def _at_work(self) -> list[tuple[int, Path]]:
        """Processes and the folders of their jobs."""
        locks = {str(path): path.parent for path in self.out.glob("jobs/*/lock")}
        at_work = []
        for process in Path("/proc").glob("[0-9]*"):
            if int(process.name) == os.getpid():
                continue
            try:
                open_files = {os.readlink(file) for file in (process / "fd").iterdir()}  # noqa: PTH115
            except OSError:
                continue  # it has ended, or closed that file
            at_work += [(int(process.name), locks[name]) for name in open_files & locks.keys()]
        return sorted(at_work)

    def _spared(self, job: Path) -> bool:
        """Whether one more death without a new checkpoint would, by the rule, be the job's failure."""
        deaths = self.deaths.get(job, [])
        return len(deaths) >= DEATHS - 1 and set(deaths[1 - DEATHS :]) == {_saved(job)}

    def _kill(self, pid: int, job: Path) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # it was faster
        self.killed.append(pid)
        while any(pid == other for other, _ in self._at_work()):
            time.sleep(0.01)
        self.deaths.setdefault(job, []).append(_saved(job))


def _saved(job: Path) -> int:
    path = job / "checkpoint.pt"
    return path.stat().st_mtime_ns if path.exists() else 0


HARD = "nope t5 alibi rope"


@pytest.fixture(scope="module")
def undisturbed(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A run of 600 steps that nobody disturbed."""

    def make(folder: Path) -> None:
        assert run(folder / "run", "--steps", "600", encodings=HARD.split()) == 0

    return once("undisturbed", make) / "run"


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", pytest.param("ray", marks=pytest.mark.ray)])
def test_workers_killed_at_random_moments_change_no_number(undisturbed: Path, tmp_path: Path, executor: str) -> None:
    if executor == "ray":
        pytest.importorskip("ray")
    out = tmp_path / "run"
    more = ("--executor", executor, *(("--ray-address", "local") if executor == "ray" else ()))
    with Killer(out, 20) as killer:
        assert run(out, "--steps", "600", *more, encodings=HARD.split()) == 0
    assert len(killer.killed) == 20, "the run ended before"
    assert numbers(out) == numbers(undisturbed)


PARENT = """import os, subprocess, sys
worker = subprocess.Popen([*sys.argv[1:], "--parent", str(os.getpid())])
print(worker.pid, flush=True)
worker.wait()"""


@pytest.mark.slow
def test_workers_end_when_their_parent_was_killed(make_job: Callable[..., tuple[object, Path]]) -> None:
    _, folder = make_job("nope", steps=100_000)
    worker = [sys.executable, "-m", "posenc.lab.execute.local", str(folder)]
    process = subprocess.Popen([sys.executable, "-S", "-c", PARENT, *worker], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    _wait_for((folder / "checkpoint.pt").exists)
    process.kill()
    process.wait()
    _wait_for(lambda: not Path(f"/proc/{child}/exe").exists() or _is_zombie(child))


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["debug", "local"])
def test_submitit_brings_jobs_to_the_same_numbers(quiet: Path, tmp_path: Path, cluster: str) -> None:
    assert run(tmp_path / "run", "--executor", "slurm", "--slurm-cluster", cluster) == 0
    assert numbers(tmp_path / "run") == numbers(quiet)


def test_an_option_of_another_executor_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "run", "--slurm-partition", "x") == 2
    assert "--slurm-partition" in capsys.readouterr().err


def _wait_for(condition: Callable[[], object], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize(
    ("given", "there", "mode"),
    [({}, True, "token"), ({}, False, None), ({"RAY_AUTH_TOKEN": "x"}, False, "token"),
     ({"RAY_AUTH_MODE": "disabled"}, True, "disabled")],
    ids=str,
)  # fmt: skip
def test_a_token_that_is_there_is_given_to_the_cluster(
    given: dict[str, str], there: bool, mode: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that what is set here is taken back
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    if there:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("token")
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    make_executor("ray", {"ray_address": "HOST:1"})
    assert os.environ.get("RAY_AUTH_MODE") == mode
