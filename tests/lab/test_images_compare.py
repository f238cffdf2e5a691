"""A comparison of images as a user runs it: to its report, stopped and continued, refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from tests.samples import mostly_slow

from posenc.lab import commands
from posenc.lab.images.pictures import load_pictures
from posenc.lab.jobs import read_job, read_result
from posenc.lab.train import StoppedError
from posenc.lab.worker import run_job

TINY = (
    "--task images --image-size 4 --epochs 6 --batch-size 8 --dim 16 --layers 1 --heads 2 --seeds 2 "
    "--device cpu --checkpoint-every 2 --workers 2"
)
HERE = ("--runner", "slurm", "--slurm-cluster", "debug")  # all jobs in this process, one after the other
TIMES = ("seconds", "images_per_second", "peak_memory")


def _arguments(data: Path, out: Path, *more: str) -> list[str]:
    return ["compare", "axial", "learned_grid", "--data", str(data), "--out", str(out), *TINY.split(), *more]


def _quality(out: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return [{key: row[key] for key in ("encoding", "seeds", "accuracy_of_seeds", "verdict")} for row in rows]


@pytest.fixture(scope="module")
def data(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Pictures, and beside them a run of them."""
    return once("images", _make) / "sides"


def _make(folder: Path) -> None:
    """Two classes that differ in where the bright side is."""
    root = folder / "sides"
    for name, box in (("left", (0, 0, 2, 4)), ("top", (0, 0, 4, 2))):
        (root / name).mkdir(parents=True)
        for i in range(16):
            picture = Image.new("L", (4, 4), 3 * i)
            picture.paste(255 - 4 * i, box)
            picture.save(root / name / f"{i}.png")
    assert commands.run(_arguments(root, folder / "undisturbed", *HERE)) == 0


@pytest.fixture(scope="module")
def undisturbed(data: Path) -> Path:
    """A finished run, not to be changed."""
    return data.parent / "undisturbed"


def test_a_run_ends_with_its_report(undisturbed: Path) -> None:
    rows = {row["encoding"]: row for row in _quality(undisturbed)}
    assert list(rows) == ["learned_grid", "axial"]
    assert all(row["seeds"] == 2 for row in rows.values())
    assert rows["learned_grid"]["verdict"] == "past its table"
    table = (undisturbed / "table.md").read_text()
    for fact in ("folder sides", "left, top", f"--out {undisturbed}", "SHA-256", "not ranked here"):
        assert fact in table
    for name in ("report.html", "accuracy_by_constant.png", "accuracy_by_grid.png"):
        assert (undisturbed / name).stat().st_size > 10_000
    job = read_job(undisturbed / "jobs" / "axial-seed1")
    pictures = load_pictures(undisturbed / "corpus").facts
    assert (job.settings.task, job.settings.steps) == ("images", 6 * pictures.train_images // 8)
    result = read_result(undisturbed / "jobs" / "axial-seed1", job)
    assert result is not None
    assert {"loss", "images_per_second"} < set(result["training"])


def test_the_same_command_again_trains_nothing(
    undisturbed: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(undisturbed, tmp_path / "run")
    (out / "results.jsonl").unlink()
    assert commands.run(_arguments(data, out)) == 0
    assert "finished already" in capsys.readouterr().out
    assert _quality(out) == _quality(undisturbed)


@pytest.mark.parametrize("spec", mostly_slow(["axial", "learned_grid"], "axial"))
@pytest.mark.parametrize("stop", mostly_slow([0, 5, 20], 5, 20))  # after the first step, between, while measuring
def test_stopped_and_continued_equals_undisturbed(undisturbed: Path, tmp_path: Path, spec: str, stop: int) -> None:
    out = shutil.copytree(undisturbed, tmp_path / "run")
    folder = out / "jobs" / f"{spec}-seed0"
    job = read_job(folder)
    before = read_result(folder, job)
    for name in ("result.json", "checkpoint.pt", "metrics.jsonl"):
        (folder / name).unlink()
    with pytest.raises(StoppedError):
        run_job(folder, [spec], should_stop=_after(stop))
    assert read_result(folder, job) is None
    run_job(folder, [spec])
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


@pytest.mark.slow
def test_workers_bring_jobs_to_the_same_numbers(undisturbed: Path, data: Path, tmp_path: Path) -> None:
    assert commands.run(_arguments(data, tmp_path / "run")) == 0
    assert _quality(tmp_path / "run") == _quality(undisturbed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "rope", "--task", "images"], ["rope: positions of RoPE have one coordinate", "--task text"]),
        (["compare", "axial"], ["axial: positions of AxialRoPE have 2 coordinates", "--task images"]),
        (["compare", "--task", "image"], ["--task image", "did you mean images"]),
        (["compare", "--task", "images", "--steps", "3"], ["--steps", "--task images has no such number"]),
        (["compare", "--task", "images", "--lengths", "1,2"], ["--lengths", "--task images has no such number"]),
        (["compare", "--epochs", "3"], ["--epochs", "--task text has no such number"]),
        (["compare", "axial", "--task", "images", "--image-size", "12"], ["--image-size 12", "8 pixels"]),
        (["compare", "axial", "--task", "images", "--data", "nowhere"], ["no folder 'nowhere'"]),
        (["compare", "--task", "images", "--profile", "quik"], ["did you mean quick"]),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert commands.run(arguments) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert all(word in err for word in words)
    assert not list(tmp_path.iterdir())


def test_other_pictures_and_another_task_are_refused(
    undisturbed: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = shutil.copytree(data, tmp_path / "sides")
    Image.new("L", (4, 4), 99).save(other / "top" / "more.png")
    assert commands.run(_arguments(other, undisturbed)) == 2
    assert "sha256" in capsys.readouterr().err
    texts = tmp_path / "book.txt"
    texts.write_text("call me ishmael, some years ago " * 1000)
    assert commands.run(["compare", "rope", "--data", str(texts), "--windows", "4", "--out", str(undisturbed)]) == 2
    assert "holds a run of --task images, not text" in capsys.readouterr().err
