"""Workers that are killed at random moments: the run goes on by itself, and ends with the numbers of a quiet one."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import posenc
from posenc.lab import commands
from posenc.lab.jobs import Job
from posenc.lab.runners import local
from posenc.lab.runners.pending import Pending
from posenc.lab.runners.retries import DEATHS
from posenc.lab.worker import BAD_INPUT, STOPPED

# Each step saves, and takes milliseconds: a worker may be killed anywhere in a step or in a write.
TINY = (
    "--train-length 8 --lengths 1,2,4 --batch-size 4 --windows 4 --dim 16 --layers 1 --heads 2 --no-cost "
    "--precision float32 --device cpu --checkpoint-every 1 --workers 2 --no-control"
)
HERE = ("--runner", "slurm", "--slurm-cluster", "debug")  # all jobs in this process, one after the other
NO_NUMBERS = ("command", "machine")
OF_THE_CLOCK = ("seconds", "per_second", "memory")  # how names of what a clock or the system says end


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory, write_texts: Callable[[Path], Path]) -> Path:
    return write_texts(tmp_path_factory.mktemp("data") / "texts")


@pytest.fixture(autouse=True)
def _sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(posenc.__file__).parents[1]))


def run(texts: Path, out: Path, encodings: str, steps: int, *more: str) -> int:
    """``posenc compare`` in this process; returns its exit code."""
    options = ["--data", str(texts), "--out", str(out), "--steps", str(steps), *TINY.split(), *more]
    return commands.run(["compare", *encodings.split(), *options])


def numbers(out: Path) -> list[object]:
    """All of results.jsonl that no clock has a part in."""
    return [_kept(json.loads(line)) for line in (out / "results.jsonl").read_text().splitlines()]


def _kept(value: object) -> object:
    if isinstance(value, dict):
        names = [name for name in value if name not in NO_NUMBERS and not name.endswith(OF_THE_CLOCK)]
        return {name: _kept(value[name]) for name in names}
    return [_kept(part) for part in value] if isinstance(value, list) else value


def first_table(out: Path) -> list[str]:
    """The table of what was measured, in table.md."""
    lines = (out / "table.md").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| encoding"))
    return lines[start : lines.index("", start)]


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
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            if int(process.name) == os.getpid():
                continue
            try:
                open_files = {os.readlink(file) for file in (process / "fd").iterdir()}  # noqa: PTH115
            except OSError:
                continue  # it has ended, or closed that file
            found += [(int(process.name), locks[name]) for name in open_files & locks.keys()]
        return sorted(found)

    def _spared(self, job: Path) -> bool:
        """Whether one more death without a new checkpoint would, by the runner's rule, be the job's failure."""
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


@pytest.fixture(scope="module")
def quiet(texts: Path) -> Callable[[str, int], Path]:
    """Makes a run in this process that nobody disturbs."""

    def make(encodings: str, steps: int) -> Path:
        out = texts.parent / f"quiet-{encodings.replace(' ', '-')}-{steps}"
        assert run(texts, out, encodings, steps, *HERE) == 0
        return out

    return make


@pytest.mark.parametrize(
    ("encodings", "steps", "times"),
    [
        pytest.param("nope", 150, 2, marks=pytest.mark.slow),
        pytest.param("nope t5 alibi rope", 600, 20, marks=pytest.mark.slow),
    ],
)
def test_workers_killed_at_random_moments_change_no_number(
    quiet: Callable[[str, int], Path], texts: Path, tmp_path: Path, encodings: str, steps: int, times: int,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    undisturbed, out = quiet(encodings, steps), tmp_path / "run"
    with Killer(out, times) as killer:
        assert run(texts, out, encodings, steps) == 0
    assert len(killer.killed) == times, "the run ended before"
    assert numbers(out) == numbers(undisturbed)
    assert first_table(out) == first_table(undisturbed)
    told = re.findall(r"-seed0: killed by signal 9.*; it is taken\s+up\s+again", capfd.readouterr().out)
    assert len(told) == times


@pytest.mark.slow
@pytest.mark.ray
def test_workers_of_ray_killed_at_random_moments_change_no_number(
    quiet: Callable[[str, int], Path], texts: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    encodings, steps, times = "nope t5 alibi rope", 600, 20
    undisturbed, out = quiet(encodings, steps), tmp_path / "run"
    with Killer(out, times) as killer:
        assert run(texts, out, encodings, steps, "--runner", "ray", "--ray-address", "local") == 0
    assert len(killer.killed) == times, "the run ended before"
    assert numbers(out) == numbers(undisturbed)
    assert first_table(out) == first_table(undisturbed)


class Scripted:
    """Stands for a worker's process: each start of a job does what is next in its script."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, *lives: str) -> None:
        self.folder, self.lives, self.told = folder, list(lives), list[str]()
        monkeypatch.setattr(local, "_start", self._start)
        monkeypatch.setattr(local, "POLL_SECONDS", 0.01)

    def run(self) -> list[str]:
        """The failures of a run of this job alone."""
        work = Pending("nope-seed0", self.folder, ["nope"])
        return local.run_local(
            [work], workers=1, threads=1, gpus=0, on_poll=lambda names: None, on_restart=self.told.append
        )

    def _start(self, work: Pending, threads: int, gpu: int | None) -> subprocess.Popen[bytes]:
        life = self.lives.pop(0)
        save = "import pathlib, time; pathlib.Path('checkpoint.pt').write_text(str(time.time()));"
        code = life.replace("save;", save).replace("die", "import os; os.kill(os.getpid(), 9)")
        return subprocess.Popen([sys.executable, "-S", "-c", code], cwd=work.folder)


@pytest.fixture
def script(make_job: Callable[..., tuple[Job, Path]], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Scripted]:
    return lambda *lives: Scripted(monkeypatch, make_job("nope")[1], *lives)


def test_a_job_that_gets_on_is_taken_up_again_as_often_as_it_dies(script: Callable[..., Scripted]) -> None:
    lives = ["save; die"] * 2 * DEATHS
    scripted = script(*lives, "die", "save; die", "die", "die", "pass")
    assert scripted.run() == []
    assert not scripted.lives
    assert scripted.told == [
        "nope-seed0: killed by signal 9, perhaps for lack of memory; it is taken up again"
    ] * (len(lives) + 4)  # fmt: skip


def test_a_job_that_dies_again_and_again_where_it_was_has_failed(script: Callable[..., Scripted]) -> None:
    scripted = script("save; die", *["die"] * DEATHS, "pass")
    assert scripted.run() == [
        f"nope-seed0: killed by signal 9, perhaps for lack of memory, {DEATHS} times without a new checkpoint; "
        f"see {scripted.folder / 'log.txt'}"
    ]
    assert scripted.lives == ["pass"]


def test_a_worker_that_somebody_terminated_is_taken_up_again(script: Callable[..., Scripted]) -> None:
    scripted = script(f"raise SystemExit({STOPPED})", "pass")
    assert scripted.run() == []
    assert scripted.told == ["nope-seed0: killed by signal 15; it is taken up again"]


def test_a_job_with_bad_input_is_not_tried_again(script: Callable[..., Scripted]) -> None:
    scripted = script(f"raise SystemExit({BAD_INPUT})", "pass")
    (scripted.folder / "log.txt").write_text("error: something is wrong\n")
    assert scripted.run() == [f"nope-seed0: something is wrong; see {scripted.folder / 'log.txt'}"]
    assert scripted.lives == ["pass"]
    assert scripted.told == []


@pytest.mark.slow
def test_two_runs_of_one_command_give_the_same_numbers(
    quiet: Callable[[str, int], Path], texts: Path, tmp_path: Path
) -> None:
    first, again = quiet("alibi", 10), tmp_path / "again"
    assert run(texts, again, "alibi", 10, *HERE) == 0
    assert numbers(again) == numbers(first)
    assert run(texts, tmp_path / "longer", "alibi", 11, *HERE) == 0
    assert numbers(tmp_path / "longer") != numbers(first)


@pytest.mark.slow
def test_a_run_that_ignores_interrupts_is_ended_by_a_termination(texts: Path, tmp_path: Path) -> None:
    # So a shell begins what is to run on in its background.
    out, log = tmp_path / "run", tmp_path / "log"
    options = ["--data", str(texts), "--out", str(out), "--steps", "100000", *TINY.split()]
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "posenc", "compare", "nope", *options], stdout=file, stderr=file,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )  # fmt: skip
    while not list(out.glob("jobs/*/checkpoint.pt")):
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130
    assert "stopped: nothing is lost; to go on: posenc compare nope" in log.read_text()
    with Killer(out, 0) as workers:
        assert workers._at_work() == []
