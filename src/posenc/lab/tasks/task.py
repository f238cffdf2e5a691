"""What a task owns: its data, a batch of a step, a loss, and what is measured of a trained model.

Everything else, from folders and jobs to resuming, executors, statistics and reports, serves all tasks alike. A task
knows torch and never a report; what a report must know of its numbers it declares, in `metrics`.
A task of your own is a class anywhere: ``posenc compare --task my_module:MyTask`` (docs/extending.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from posenc.lab.config import Config, Options, Profile
from posenc.lab.decoder import LabModel
from posenc.lab.metrics import FULL, WINDOW, Curve, Metric, Values
from posenc.lab.specs import Shape, check_specs

PROFILES = ("quick", "standard", "full")


READ = 8  # texts that attention is read in


class Data(Protocol):
    """What a model is trained on and measured with."""

    def identity(self) -> dict[str, str]:
        """What tells these data from others: hashes by name."""

    def facts(self) -> dict[str, str]:
        """What a report states: name, sizes, hashes, bars to compare with."""

    def save(self, folder: Path) -> None:
        """Write the data where workers and other machines find them; `Task.load` reads them."""


class Task(ABC):
    """One kind of comparison."""

    name: ClassVar[str]
    title: ClassVar[str]  # of a report, a few words
    question: ClassVar[str]  # what the model must predict, a sentence or two
    shows: ClassVar[str]  # what success and failure mean, a sentence or two
    metrics: ClassVar[tuple[Metric, ...]]  # the first one decides
    curves: ClassVar[tuple[Curve, ...]] = ()
    options: ClassVar[type[Options]] = Options
    views: ClassVar[tuple[str, ...]] = (FULL, WINDOW)
    source: ClassVar[str] = "generated"  # what --data is if nobody says
    axes: ClassVar[int] = 1  # coordinates of its positions
    ids: ClassVar[bool] = False  # whether it has positions of another kind for encodings that need them
    per_second: ClassVar[str] = "tokens"  # what a training's speed counts
    loss_unit: ClassVar[float] = 1.0  # in nats; losses are reported in it
    fresh: ClassVar[bool] = True  # whether what is trained last was not trained before, so that its loss judges a rate

    @abstractmethod
    def profile(self, name: str) -> Profile:
        """A profile by name, one of `PROFILES`."""

    @abstractmethod
    def data(self, source: str, config: Config) -> Data:
        """The data that ``--data`` names; a ValueError where they do not serve."""

    @abstractmethod
    def load(self, folder: Path, config: Config) -> Data:
        """Read what `Data.save` wrote; a ValueError if it is damaged."""

    @abstractmethod
    def model(self, spec: str, config: Config, data: Data, seed: int) -> LabModel:
        """The model of a training before its first step."""

    @abstractmethod
    def batch(self, data: Data, config: Config, seed: int, step: int) -> tuple[Tensor, ...]:
        """The batch of a step, a pure function of the arguments; ranks share each tensor by rows."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """The mean loss of a batch, nats, over its rows: what ranks and micro-batches compute of it weighs alike."""

    @abstractmethod
    def evaluate(
        self, model: LabModel, data: Data, spec: str, config: Config, device: torch.device
    ) -> Iterator[Values]:
        """What a trained model with the encodings of ``spec`` is worth, piece by piece: a caller may stop between."""

    @abstractmethod
    def probe(self, model: LabModel, data: Data, config: Config, device: torch.device) -> float:
        """The deciding metric at the trained length, on a few items: how far a training has come."""

    def baselines(self, data: Data, config: Config) -> Iterator[Values]:
        """What a model must beat to have learned, on the targets that models are scored on; by default nothing."""
        yield from ()

    def read_for_attention(self, data: Data, config: Config) -> tuple[Tensor, Tensor | None] | None:
        """Tokens ``(count, train_length)`` that show how far back a decoder attends, and ids; None for other models."""
        return None

    def metrics_of(self, config: Config) -> tuple[Metric, ...]:
        """`metrics`, where they depend on the numbers."""
        return self.metrics

    def settled(self, config: Config, data: Data) -> Config:
        """The numbers with what follows from the data."""
        return config

    def check(self, config: Config) -> None:  # noqa: B027  (most tasks ask for no more)
        """Raise a ValueError that names the option and what it needs, beyond what `Config.check` sees."""

    def curves_of(self, config: Config) -> tuple[Curve, ...]:
        """`curves`, where they depend on the numbers."""
        return self.curves

    def speed_unit(self, config: Config) -> str:
        """What a training's speed counts: `per_second`, where that depends on the numbers."""
        return self.per_second

    def loss_unit_of(self, data: Data) -> float:
        """`loss_unit`, where it depends on the data."""
        return self.loss_unit

    def shape(self, config: Config) -> Shape:
        """What encodings may need to know of the model."""
        m = config.model
        return Shape(m.dim, m.heads, m.layers, config.training.train_length)

    def plan(self, typed: Sequence[str], config: Config) -> list[str]:
        """The specs of the trainings, each once, known and buildable; a ValueError says which is not."""
        return check_specs(typed, self.shape(config), axes=self.axes, ids=self.ids)

    def amount(self, config: Config) -> int:
        """What a batch holds, in the unit of ``per_second``."""
        return config.training.batch_size * config.training.train_length

    @property
    def decides(self) -> Metric:
        """The metric that encodings are compared by."""
        return self.metrics[0]


def profiles(chosen: Mapping[str, Profile], name: str) -> Profile:
    """One of a task's profiles; a ValueError for an unknown name."""
    if name not in chosen:
        raise ValueError(f"--profile {name}: {', '.join(chosen)} is needed")
    return chosen[name]
