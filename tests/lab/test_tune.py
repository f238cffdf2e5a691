"""posenc tune: what is tried, in which order, what is concluded, and a run that is made and goes on."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

pytest.importorskip("optuna")

from posenc.lab.execute.executor import run_work
from posenc.lab.run.job import Work
from posenc.lab.run.optimizer import Tuned, read_tuned
from posenc.lab.run.planning import PreparedRun, RunRequest
from posenc.lab.run.records import read_records
from posenc.lab.tasks import task_named
from posenc.lab.tune import tuner
from posenc.lab.tune.tuner import Trial, conclude, propose, tune

OWN, COMMON = {"lr": 1.0, "own": 10.0}, {"lr": 1.0}


def history(default: Tuned, count: int, loss: float = 1.0) -> list[Trial]:
    """What is tried where all trials are alike."""
    found: list[Trial] = []
    for _ in range(count):
        found.append(Trial(propose("spec", found, default), loss))
    return found


def test_defaults_come_first_and_nothing_is_tried_twice() -> None:
    tried = [(round(t.tuned["lr"], 4), round(t.tuned["own"], 4)) for t in history(OWN, 12)]
    assert tried[:4] == [(1.0, 10.0), (1.0, 1.0), (1.0, 31.6228), (2.0, 10.0)]
    assert len(set(tried)) == 12
    assert history(OWN, 12) == history(OWN, 12)  # the same however often it was stopped
    everything = history(COMMON, 9)
    assert sorted(t.tuned["lr"] for t in everything) == pytest.approx([2 ** (e / 2) for e in range(-4, 5)])
    with pytest.raises(ValueError, match="spec: nothing is left to try after 9 trials"):
        propose("spec", everything, COMMON)


def test_the_sampler_goes_where_losses_are_low() -> None:
    found: list[Trial] = []
    for _ in range(24):
        tuned = propose("spec", found, OWN)
        lr, own = tuner.exponents_of(tuned)
        found.append(Trial(tuned, None if lr > 2 else 1.0 + (lr + 2) ** 2 + (own - 1) ** 2))
    early, late = (sum(t.loss or 20.0 for t in part) for part in (found[4:14], found[14:]))
    assert late < early
    assert conclude("spec", found, OWN).tuned == pytest.approx({"lr": 0.5, "own": 10**0.5})


@pytest.mark.parametrize(("best", "tuned"), [(0.995, {}), (0.985, {"own": 1.0})])
def test_a_default_is_given_up_for_more_than_a_hundredth_only(best: float, tuned: Tuned) -> None:
    said = conclude(
        "spec", [Trial(OWN, 1.0), Trial({"lr": 1.0, "own": 1.0}, best), Trial({"lr": 2.0, "own": 1.0}, None)], OWN
    )
    assert (said.tuned, said.default, said.best) == (tuned, 1.0, best)
    with pytest.raises(ValueError, match="spec: the training with the default rates has failed"):
        conclude("spec", [Trial(COMMON, None)], COMMON)


def test_trials_are_jobs_that_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(ready: PreparedRun, works: list[Work], workers: int | None, console: Console) -> None:
        for work in works:
            run_work(work)

    monkeypatch.setattr(tuner, "_run", here)  # a process for each job would take most of the time
    task, out, console = task_named("flipflop"), tmp_path / "run", Console(quiet=True)
    numbers = {
        "dim": 16,
        "layers": 1,
        "heads": 2,
        "steps": 4,
        "batch_size": 4,
        "windows": 4,
        "lengths": (1, 2),
        "device": "cpu",
    }
    profile = task.profile("quick")
    profile = dataclasses.replace(profile, encodings=("t5", "rope"), config=profile.config.replaced(numbers))
    asked = RunRequest(profile, task.source, out, "posenc tune")
    tune(asked, 1, 2, console)
    first = pd.read_csv(out / "tune" / "trials.csv")
    assert first[["spec", "trial", "lr"]].values.tolist() == [["t5", 0, 1.0], ["rope", 0, 1.0]]
    assert first["own"].tolist()[0] == pytest.approx(10**1.5, rel=1e-5)  # the catalogue's 30, to a step of the search
    done = out / "tune" / "jobs" / "t5-seed0-trial0" / "records.parquet"
    before = done.stat().st_mtime_ns
    shutil.rmtree(out / "tune" / "jobs" / "rope-seed0-trial0")  # as if it had been stopped
    found = tune(asked, 2, 2, console)
    second = pd.read_csv(out / "tune" / "trials.csv")
    pd.testing.assert_frame_equal(second[second["trial"] == 0].reset_index(drop=True), first)
    assert second["train_loss"].nunique() == 4
    assert done.stat().st_mtime_ns == before
    records, _ = read_records(out / "tune" / "records.parquet")
    assert {f"{s}-seed0-trial{n}" for s in ("t5", "rope") for n in (0, 1)} == set(records["job"])
    assert {"train_loss", "probe"} < set(records["metric"])
    assert not list((out / "tune" / "jobs").glob("*/checkpoint.pt"))
    assert read_tuned(out) == {spec: one.tuned for spec, one in found.items() if one.tuned}
    assert json.loads((out / "tuned.json").read_text())["numbers"]["steps"] == 4
    one_more = dataclasses.replace(profile, encodings=("alibi",))
    tune(dataclasses.replace(asked, profile=one_more), 1, 2, console)
    third = pd.read_csv(out / "tune" / "trials.csv")
    pd.testing.assert_frame_equal(third[third["spec"] != "alibi"], second)
    tuned = json.loads((out / "tuned.json").read_text())
    assert {spec: one["trials"] for spec, one in tuned["losses"].items()} == {"t5": 2, "rope": 2, "alibi": 1}
    assert read_tuned(out) == {spec: one.tuned for spec, one in found.items() if one.tuned}
    (tmp_path / "other").mkdir()
    shutil.copy(out / "tune" / "run.json", tmp_path / "other" / "run.json")
    longer = dataclasses.replace(profile, config=profile.config.replaced({"steps": 5}))
    shutil.copytree(out / "tune", tmp_path / "third" / "tune")
    (tmp_path / "third" / "tuned.json").write_text(json.dumps({**tuned, "numbers": {}}))
    with pytest.raises(ValueError, match=r"tuned.json is of other numbers or data: move it away"):
        tune(dataclasses.replace(asked, out=tmp_path / "third"), 1, 1, console)
    with pytest.raises(ValueError, match=r"other holds a run of another configuration .*steps 4 there, 5 here"):
        tune(dataclasses.replace(asked, out=tmp_path / "other", profile=longer), 1, 1, console)


def test_what_cannot_be_tuned_is_named(tmp_path: Path) -> None:
    profile = task_named("images").profile("quick")
    profile = dataclasses.replace(profile, encodings=("nope",), config=profile.config.replaced({"epochs": 1}))
    with pytest.raises(ValueError, match="--task images: its training repeats its data"):
        tune(RunRequest(profile, "digits", tmp_path, "posenc tune"), 1, None, Console(quiet=True))
