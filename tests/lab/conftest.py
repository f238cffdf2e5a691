"""Tiny runs: a generated task, in seconds, and jobs in this process where nothing but their numbers matters."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import filelock
import pytest
from accelerate.state import AcceleratorState

import posenc
from posenc.lab import commands
from posenc.lab.config import Config, Profile
from posenc.lab.console import plain_console
from posenc.lab.execute.executor import InProcess
from posenc.lab.run.folder import records_of
from posenc.lab.run.job import Job, Work, open_job
from posenc.lab.run.planning import RunRequest, prepare
from posenc.lab.tasks import task_named

NUMBERS: dict[str, Any] = {
    "train_length": 16, "lengths": (1, 2), "steps": 12, "batch_size": 4, "windows": 8, "dim": 16, "layers": 1,
    "heads": 2, "device": "cpu", "checkpoint_every": 1, "probes": 4,
}  # fmt: skip
TINY = [
    word
    for name, value in NUMBERS.items()
    for word in (f"--{name.replace('_', '-')}", ",".join(map(str, value)) if isinstance(value, tuple) else str(value))
]
CLOCK = ("seconds",)  # metrics that a clock has a part in


class Here(InProcess):
    """Runs jobs in this process, one after the other."""

    poll_seconds = 0.0

    def submit(self, work: Work) -> Future[None]:
        AcceleratorState._reset_state(True)  # the precision of a process is else that of its first training
        return super().submit(work)


def run_in_process(patch: pytest.MonkeyPatch) -> None:
    """Commands start no workers, and vl_convert draws no charts; both have tests."""
    patch.setattr("posenc.lab.execute.local.Local", Here)
    patch.setattr("vl_convert.vegalite_to_svg", lambda spec: '<svg xmlns="http://www.w3.org/2000/svg"></svg>')


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in this process; see `run_in_process`."""
    run_in_process(monkeypatch)


@pytest.fixture(autouse=True)
def _sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """New processes find this posenc."""
    monkeypatch.setenv("PYTHONPATH", str(Path(posenc.__file__).parents[1]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """Makes a folder once for all processes of a test run, and not to be changed: what several tests look at."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        folder, done = root / name, root / f"{name}.done"
        with filelock.FileLock(root / f"{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return make


def typed(out: Path, *more: str, encodings: Sequence[str] = ("rope", "alibi")) -> list[str]:
    """A command line of seconds; what stands later counts."""
    return [
        "compare",
        *encodings,
        "--task",
        "copy",
        "--out",
        str(out),
        *TINY,
        "--workers",
        "2",
        "--seeds",
        "1",
        *more,
    ]


def run(out: Path, *more: str, encodings: Sequence[str] = ("rope", "alibi")) -> int:
    """``posenc compare`` in this process; returns its exit code."""
    return commands.run(typed(out, *more, encodings=encodings))


def numbers(out: Path) -> list[tuple[Any, ...]]:
    """All records of a folder that no clock has a part in."""
    frame = records_of(out)
    frame = frame[~frame["metric"].isin(CLOCK)]
    return sorted(map(tuple, frame.astype(object).to_numpy().tolist()))


@pytest.fixture(scope="session")
def quiet(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A finished run of rope and alibi by two workers that nobody disturbed, not to be changed."""

    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(Path(posenc.__file__).parents[1]))
            assert run(folder / "run") == 0

    return once("quiet", make) / "run"


def tiny(task: str = "copy", **more: Any) -> Config:
    """The numbers of a tiny run."""
    return task_named(task).profile("quick").config.replaced({**NUMBERS, **more})


def made_job(run: Path, spec: str = "rope", seed: int = 0, **more: Any) -> tuple[Job, Path]:
    """A job and its folder, in a run's folder."""
    return job_of(tiny(**more), task_named("copy").source, run, spec, seed)


def job_of(config: Config, source: str, run: Path, spec: str = "rope", seed: int = 0) -> tuple[Job, Path]:
    """The job of a configuration and its folder, in a run's folder."""
    profile = Profile("quick", (spec,), 1, config)
    request = RunRequest(profile, source, run, "posenc compare")
    ready = prepare(request, plain_console(quiet=True), processes=profile.config.machine.processes)
    job = ready.job(ready.specs[0], seed, {})
    return job, open_job(ready.out, job)


@pytest.fixture
def make_job(tmp_path: Path) -> Callable[..., tuple[Job, Path]]:
    """Makes a job and its folder, in a run's folder called ``name``."""

    def make(spec: str = "rope", seed: int = 0, name: str = "run", **more: Any) -> tuple[Job, Path]:
        return made_job(tmp_path / name, spec, seed, **more)

    return make
