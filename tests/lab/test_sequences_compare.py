"""A comparison on generated sequences as a user runs it: to its report, stopped and continued, refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.samples import mostly_slow

from posenc.lab import commands
from posenc.lab.jobs import read_job, read_result
from posenc.lab.tasks import SEQUENCES
from posenc.lab.train import StoppedError
from posenc.lab.worker import run_job

TINY = (
    "--lengths 1,2 --steps 6 --batch-size 4 --windows 4 --dim 16 --layers 1 --heads 2 --seeds 2 --device cpu "
    "--precision float32 --checkpoint-every 2"
)
HERE = ("--runner", "slurm", "--slurm-cluster", "debug")  # all jobs in this process, one after the other
TIMES = ("seconds", "sequences_per_second", "peak_memory")
SPECS = ("learned", "rope+window", "abacus+rope")


def _arguments(task: str, out: Path, *more: str) -> list[str]:
    specs = SPECS if task == "addition" else SPECS[:2]
    return ["compare", *specs, "--task", task, "--out", str(out), *TINY.split(), *more]


def _quality(out: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return [{key: row[key] for key in ("encoding", "seeds", "accuracy_of_seeds", "verdict")} for row in rows]


@pytest.fixture(scope="module")
def undisturbed(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A finished run, not to be changed."""

    def make(folder: Path) -> None:
        assert commands.run(_arguments("addition", folder / "undisturbed", *HERE)) == 0

    return once("addition", make) / "undisturbed"


def test_a_run_ends_with_its_report(undisturbed: Path) -> None:
    rows = {row["encoding"]: row for row in _quality(undisturbed)}
    assert set(rows) == {"learned", "rope", "rope+window", "abacus+rope"}
    assert all(row["seeds"] == 2 for row in rows.values())
    assert rows["learned"]["accuracy_of_seeds"]["2×"] is None  # type: ignore[index]
    assert len(rows["abacus+rope"]["accuracy_of_seeds"]["2×"]) == 2  # type: ignore[index]
    table = (undisturbed / "table.md").read_text()
    for fact in ("Sums of longer numbers", "addition, generated", f"--out {undisturbed}", "SHA-256", "shift"):
        assert fact in table
    for name in ("report.html", "accuracy_by_length.png"):
        assert (undisturbed / name).stat().st_size > 10_000
    job = read_job(undisturbed / "jobs" / "abacus+rope-seed1")
    assert job.settings.task == "addition"
    result = read_result(undisturbed / "jobs" / "abacus+rope-seed1", job)
    assert result is not None
    assert {"loss", "sequences_per_second"} < set(result["training"])


@pytest.mark.parametrize("task", mostly_slow([task for task in SEQUENCES if task != "addition"], "copy"))
def test_every_task_ends_with_its_report(task: str, tmp_path: Path) -> None:
    assert commands.run(_arguments(task, tmp_path / "run", *HERE, "--seeds", "1")) == 0
    assert len(_quality(tmp_path / "run")) == 3


@pytest.mark.slow
def test_workers_bring_jobs_to_the_same_numbers(undisturbed: Path, tmp_path: Path) -> None:
    assert commands.run(_arguments("addition", tmp_path / "run", "--workers", "2")) == 0
    assert _quality(tmp_path / "run") == _quality(undisturbed)


@pytest.mark.parametrize("stop", [0, 3, 6])  # after the first step, between, while measuring
def test_stopped_and_continued_equals_undisturbed(undisturbed: Path, tmp_path: Path, stop: int) -> None:
    out = shutil.copytree(undisturbed, tmp_path / "run")
    folder = out / "jobs" / "abacus+rope-seed0"
    job = read_job(folder)
    before = read_result(folder, job)
    for name in ("result.json", "checkpoint.pt", "metrics.jsonl"):
        (folder / name).unlink()
    with pytest.raises(StoppedError):
        run_job(folder, ["abacus+rope"], should_stop=_after(stop))
    assert read_result(folder, job) is None
    run_job(folder, ["abacus+rope"])
    after = read_result(folder, job)
    assert before is not None
    assert after is not None
    assert after["rows"] == before["rows"]
    assert {k: v for k, v in after["training"].items() if k not in TIMES} == {
        k: v for k, v in before["training"].items() if k not in TIMES
    }


def _after(times: int) -> Callable[[], bool]:
    left = iter(range(times))
    return lambda: next(left, None) is None


def test_the_same_command_again_trains_nothing(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(undisturbed, tmp_path / "run")
    (out / "results.jsonl").unlink()
    assert commands.run(_arguments("addition", out)) == 0
    assert "finished already" in capsys.readouterr().out
    assert _quality(out) == _quality(undisturbed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["abacus", "--task", "passkey"], ["abacus: its positions are not places in the text"]),
        (["axial", "--task", "copy"], ["axial", "--task images"]),
        (["--task", "pasky"], ["--task pasky", "did you mean passkey"]),
        (["--task", "recall", "--data", "book.txt"], ["--data book.txt", "makes its own sequences"]),
        (["--task", "recall", "--epochs", "3"], ["--epochs", "--task recall has no such number"]),
        (["--task", "addition", "--train-length", "20"], ["--train-length 20", "multiple of 3"]),
        (["--task", "counting", "--profile", "quik"], ["did you mean quick"]),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert commands.run(["compare", *arguments]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert all(word in err for word in words)
    assert not list(tmp_path.iterdir())


def test_another_task_is_refused(undisturbed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["compare", "rope", "--task", "copy", *TINY.split(), "--out", str(undisturbed)]) == 2
    assert "holds a run of --task addition, not copy" in capsys.readouterr().err
