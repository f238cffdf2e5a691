"""Tuning: one table of rates for all, the best mean of two seeds, resumed, read by compare, refused where needed."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from tests.lab.conftest import TINY, run

from posenc.lab import commands
from posenc.lab.run.folder import read_run


def tune(out: Path, *more: str, encodings: tuple[str, ...] = ("rope", "t5")) -> int:
    words = ["tune", *encodings, "--task", "copy", "--out", str(out), *TINY, "--workers", "1", "--rates", "1,4"]
    return commands.run([*words, *more])


def test_the_best_mean_of_two_seeds_is_chosen_and_compare_reads_it(tmp_path: Path, here: None) -> None:
    out = tmp_path / "run"
    assert tune(out) == 0
    trials, tuned = pd.read_csv(out / "trials.csv"), json.loads((out / "tuned.json").read_text())
    assert len(trials) == 2 * 2 + 2 * 3 * 2  # rope: two rates; t5 has parameters: three rates of their own with each
    assert set(trials["seed"]) == {0, 1}
    for spec, chosen in tuned["encodings"].items():
        means = trials[trials["spec"] == spec].fillna(0.0).groupby(["lr", "own"])["train_loss"].mean()
        assert means.idxmin() == pytest.approx((chosen["lr"], chosen.get("own", 0.0)), rel=1e-5)
    assert set(tuned["procedures"]) == {"rope", "t5"}
    assert not list(out.rglob("checkpoint.pt")), "a checkpoint for each training"
    assert run(out, encodings=["rope", "t5", "nope"]) == 0
    finished = read_run(out)
    assert set(finished.rates) == {"rope", "t5"}
    assert finished.tuning == tuned["procedures"]
    assert finished.tuning_of("nope") == ""


def test_the_same_command_trains_nothing_again_and_another_encoding_joins(tmp_path: Path, here: None) -> None:
    out = tmp_path / "run"
    assert tune(out, encodings=("rope",)) == 0
    written = {path: path.stat().st_mtime_ns for path in out.rglob("jobs/*/records.parquet")}
    before = (out / "tuned.json").read_text()
    assert tune(out, encodings=("rope",)) == 0
    assert {path: path.stat().st_mtime_ns for path in out.rglob("jobs/*/records.parquet")} == written
    assert json.loads((out / "tuned.json").read_text())["encodings"] == json.loads(before)["encodings"]
    assert tune(out, encodings=("nope",)) == 0
    assert set(json.loads((out / "tuned.json").read_text())["encodings"]) == {"rope", "nope"}
    assert set(pd.read_csv(out / "trials.csv")["spec"]) == {"rope", "nope"}
    assert tune(out, "--lr", "0.01", encodings=("nope",)) == 2  # of other numbers
    assert set(json.loads((out / "tuned.json").read_text())["encodings"]) == {"rope", "nope"}


@pytest.mark.parametrize("more", [["--task", "images"], ["--rates", "0"], ["--rates", "x"]])
def test_what_cannot_be_tuned_is_refused(tmp_path: Path, more: list[str], here: None) -> None:
    assert commands.run(["tune", "rope", "--out", str(tmp_path / "run"), "--device", "cpu", *more]) == 2
