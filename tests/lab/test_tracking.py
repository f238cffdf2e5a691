"""Trackers: what they are told, a run that goes on, numbers that stay, and what is missing said in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lab.conftest import CLOCK, run

from posenc.lab.execute import executor
from posenc.lab.execute.local import Local
from posenc.lab.run.job import Job, Work, read_results
from posenc.lab.run.run_job import data_of, run_job
from posenc.lab.run.tracking import JobTracker
from posenc.lab.run.train import StepReport, StoppedError, lr_at, make_accelerator, train

MakeJob = Callable[..., tuple[Job, Path]]
Scalars = dict[str, dict[int, float]]  # by name and step


class StopAfter:
    """Asks to stop after some steps."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def records(job: Job, folder: Path) -> Any:
    frame = read_results(folder, job)
    assert frame is not None
    return frame[~frame["metric"].isin(CLOCK)]


def scalars_of_tensorboard(folder: Path) -> Scalars:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    assert events.Tags()["tensors"] == ["settings/text_summary"]
    scalars = {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}
    assert all(len(dict(pairs)) == len(pairs) for pairs in scalars.values()), "a step twice"
    return {name: dict(pairs) for name, pairs in scalars.items()}


def test_a_tracker_is_told_the_numbers_of_the_records_and_changes_none(make_job: MakeJob) -> None:
    pytest.importorskip(name := "tensorboard")
    untracked_job, untracked = make_job("t5", name="plain")
    run_job(untracked)
    job, folder = make_job("t5")
    out = folder.parent.parent
    with pytest.raises(StoppedError):
        run_job(folder, trackers=[name], should_stop=StopAfter(4))
    run_job(folder, trackers=[name])
    frame = records(job, folder)
    assert (
        frame.astype(object).to_numpy().tolist() == records(untracked_job, untracked).astype(object).to_numpy().tolist()
    )
    scalars = scalars_of_tensorboard(out / "tensorboard" / job.name)
    steps = range(1, 13)
    recorded = frame[frame["metric"] == "loss"].set_index("item")["value"]
    assert scalars["train/loss"] == pytest.approx(recorded.to_dict(), rel=1e-5)
    rates = {step: lr_at(step - 1, job.config.training) for step in steps}
    assert scalars["train/learning_rate"] == pytest.approx(rates, rel=1e-6)
    assert set(scalars["train/sequences_per_second"]) == set(steps)
    assert min(scalars["train/sequences_per_second"].values()) > 0
    probes = frame[frame["metric"] == "probe"].set_index("item")["value"]
    assert scalars["eval/accuracy"] == pytest.approx(probes.to_dict(), rel=1e-5)
    means = frame[frame["metric"] == "accuracy"].groupby(["view", "length"], observed=True)["value"].mean()
    assert {name for name in scalars if name.count("/") > 1} == {f"eval/accuracy/{v}/{n}" for v, n in means.index}
    for (view, length), mean in means.items():
        assert scalars[f"eval/accuracy/{view}/{length}"] == pytest.approx({12: mean}, rel=1e-5)


def test_a_job_that_goes_on_is_one_run_of_wandb(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    job, folder = make_job("rope")
    with pytest.raises(StoppedError):
        run_job(folder, trackers=["wandb"], should_stop=StopAfter(4))
    run_job(folder, trackers=["wandb"])
    parts = list(folder.parent.parent.glob("wandb/offline-run-*"))
    assert len(parts) == 2
    assert {path.name.rpartition("-")[2] for path in parts} == {job.identity[:16]}


def test_steps_that_are_made_again_are_there_once(make_job: MakeJob) -> None:
    pytest.importorskip("tensorboard")
    job, folder = make_job("rope", checkpoint_every=5)
    data, out = data_of(folder, job), folder.parent.parent

    class PowerCutError(Exception):
        pass

    def begin() -> None:
        tracker = JobTracker(["tensorboard"], job, out)

        def cut(report: StepReport) -> None:
            tracker.step(report, "accuracy", "tokens")
            if report.step == 8:
                raise PowerCutError

        try:
            train(job, data, folder, make_accelerator(job.config), on_step=cut)
        finally:
            tracker.finish()

    with pytest.raises(PowerCutError):
        begin()
    run_job(folder, trackers=["tensorboard"])
    assert set(scalars_of_tensorboard(out / "tensorboard" / job.name)["train/loss"]) == set(range(1, 13))


def test_every_executor_hands_trackers_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: None, make_job: MakeJob
) -> None:
    trackers_of_jobs = []
    monkeypatch.setattr("posenc.lab.compare.check_trackers", lambda names, elsewhere: None)
    monkeypatch.setattr(executor, "run_job", lambda folder, trackers, **more: trackers_of_jobs.append(list(trackers)))
    run(tmp_path / "told", "--track", "tensorboard", "--track", "wandb", "--track", "wandb", encodings=["rope"])
    assert trackers_of_jobs == [["tensorboard", "wandb"]]
    work = Work("rope-seed0", make_job()[1], trackers=("wandb", "tensorboard"))
    command = Local().command(work)
    assert command[command.index("--track") + 1] == "wandb,tensorboard"
