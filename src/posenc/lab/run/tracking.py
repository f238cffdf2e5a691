"""Experiment trackers: the course of each job as a run of Weights & Biases or of TensorBoard, through accelerate.

W&B has the name of the run's folder as project and an id from the job's identity; TensorBoard's files are in
OUT/tensorboard. A tracker receives numbers and changes none. A continued job goes on with the same run: W&B knows it by
its id; TensorBoard drops the steps after the checkpoint, which are computed again.

    train/loss  train/learning_rate  train/grad_norm  train/<tokens or bytes>_per_second        each step
    eval/<metric>                                         at the training length, while a model is trained
    eval/<metric>/<view>/<length>                         of the trained model, means
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accelerate.tracking import GeneralTracker, TensorBoardTracker, WandBTracker

from posenc.lab.metrics import Metric, Values
from posenc.lab.run.job import Job
from posenc.lab.run.train import StepReport

TRACKERS = ("wandb", "tensorboard")  # each is also the package that it needs


def check_trackers(names: Sequence[str], *, elsewhere: bool = False) -> None:
    """Raise a ValueError unless these trackers are known and installed; ``elsewhere``: on other machines, perhaps."""
    for name in names:
        if name not in TRACKERS:
            raise ValueError(f"--track {name}: {' or '.join(TRACKERS)} is needed")
        if not elsewhere and find_spec(name) is None:
            raise ValueError(f"--track {name} needs {name}: pip install 'posenc[track]', in a clone '.[track]'")


class JobTracker:
    """The trackers of one job, begun when the first numbers come.

    Args:
        names: of `TRACKERS`; none on ranks other than the first.
        job: whose numbers the trackers receive.
        out: folder of the run.
    """

    def __init__(self, names: Sequence[str], job: Job, out: Path) -> None:
        check_trackers(names)
        self.names, self.job, self.out, self.begun = list(names), job, out, list[GeneralTracker]()

    def step(self, report: StepReport, metric: str, per_second: str) -> None:
        """Log a step of the training."""
        values = {
            "train/loss": report.loss, "train/learning_rate": report.learning_rate,
            "train/grad_norm": report.grad_norm, f"train/{per_second}_per_second": report.per_second,
        }  # fmt: skip
        if report.probe is not None:
            values[f"eval/{metric}"] = report.probe
        self._log(values, report.step, again_from=report.step)

    def evaluation(self, measured: Iterable[Values], metrics: Sequence[Metric]) -> Iterator[Values]:
        """Hand on what is measured; when all of it has come, log the means of the metrics."""
        by_name: dict[str, list[float]] = {}
        for values in measured:
            yield values
            if values.metric in {metric.name for metric in metrics}:
                by_name.setdefault(f"eval/{values.metric}/{values.view}/{values.length}", []).extend(values.values)
        self._log({name: sum(items) / len(items) for name, items in by_name.items()}, self.job.config.training.steps)

    def finish(self) -> None:
        """Let every tracker write what it still has."""
        for tracker in self.begun:
            tracker.finish()

    def _log(self, values: dict[str, float], step: int, again_from: int | None = None) -> None:
        if not self.begun:
            self.begun = [self._begin(name, again_from) for name in self.names]
        for tracker in self.begun:
            tracker.log(values, step=step)

    def _begin(self, name: str, again_from: int | None) -> GeneralTracker:
        """One tracker, begun; TensorBoard drops what it has from step ``again_from`` on."""
        job = self.job
        tracker: GeneralTracker
        settings: dict[str, Any] = {"encoding": job.spec, "seed": str(job.seed), **job.config.shown()}
        if name == "tensorboard":
            tracker = TensorBoardTracker(job.name, self.out / "tensorboard", purge_step=again_from)
        else:
            tracker = WandBTracker(
                self.out.resolve().name, name=job.name, group=job.spec, id=job.identity[:16], resume="allow",
                dir=str(self.out), config=settings,
            )  # fmt: skip
        tracker.start()
        if name == "tensorboard" and again_from in (None, 1):
            tracker.log({"settings": "  \n".join(f"{key}: {text}" for key, text in settings.items())})
        return tracker
