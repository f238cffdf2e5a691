"""posenc tune as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from posenc.lab import commands
from posenc.lab.rates import FILE

STEPS = ("--steps", "6", "--workers", "2", "--device", "cpu", "--precision", "float32")


def typed(out: Path, texts: Path, trials: int, *more: str) -> list[str]:
    return ["tune", "t5", "--data", str(texts), "--out", str(out), "--trials", str(trials), *STEPS, *more]


@pytest.fixture
def long_texts(tmp_path: Path) -> Path:
    folder = tmp_path / "long"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number}.txt").write_text(f"the text with number {number} says this and that. " * 200)
    return folder


@pytest.mark.usefixtures("here_alone")
def test_trials_are_made_once_and_go_on(long_texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert commands.run(typed(out, long_texts, 1)) == 0
    first = json.loads((out / FILE).read_text())["trials"]["t5"]
    assert [set(trial) for trial in first] == [{"lr", "own", "loss"}]
    capsys.readouterr()
    assert commands.run(typed(out, long_texts, 2)) == 0
    said = capsys.readouterr().out
    assert "trial 1:" in said
    assert "trial 0:" not in said  # not made again
    second = json.loads((out / FILE).read_text())
    assert second["trials"]["t5"][0] == first[0]
    assert second["trials"]["t5"][1]["loss"] != first[0]["loss"]
    assert set(second["encodings"]) <= {"t5"}
    assert not list((out / "tune" / "jobs").glob("*/checkpoint.pt"))


def test_bad_input_is_one_line(texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(typed(tmp_path / "run", texts, 0)) == 2
    assert "--trials 0: at least 1 is needed" in capsys.readouterr().err
    assert commands.run(["tune", "--task", "images", "--out", str(tmp_path / "run")]) == 2
    assert "--task images: its training repeats its data" in capsys.readouterr().err
