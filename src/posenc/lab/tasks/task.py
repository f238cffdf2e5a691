"""What a task owns. Everything else, from folders and jobs to resuming, runners and progress, serves all tasks alike.

A task says which numbers it has and what they must fulfil, where its data come from, which model learns them, what a
batch is and costs, what is measured of a trained model, and how a report says it. A new one is a module of this
folder, with an instance called ``TASK``, and its name in `posenc.lab.tasks.NAMES`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import torch
from rich.console import RenderableType
from torch import Tensor, nn

from posenc.lab.specs import trained

if TYPE_CHECKING:
    from posenc.lab.record import RunRecord
    from posenc.lab.report.section import Section

# What is measured of a row with one seed, plain data. With it go "seed", "machine" (see `describe_machine`), and under
# "training" what the training took.
Measured = dict[str, Any]


class Numbers(Protocol):
    """Settings: a frozen dataclass with the numbers that decide a result, among them those of every training."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    task: ClassVar[str]  # the name of the task that they belong to

    @property
    def steps(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def lr(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def clip(self) -> float: ...
    @property
    def warmup(self) -> int: ...
    @property
    def decay(self) -> float: ...
    @property
    def precision(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def processes(self) -> int: ...
    @property
    def compile(self) -> bool: ...
    @property
    def shard(self) -> bool: ...
    @property
    def checkpoint_every(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def matrices(self) -> int: ...

    def shown(self) -> dict[str, str]:
        """Every number, in words."""


class Facts(Protocol):
    """What a report states about the data; a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def name(self) -> str: ...

    def identity(self) -> dict[str, str]:
        """What tells these data from others: hashes by name."""

    def shown(self) -> dict[str, str]:
        """Name, sizes, hashes."""


class Data(Protocol):
    """What a model is trained on and measured with."""

    @property
    def facts(self) -> Facts: ...


class Row(Protocol):
    """One spec of the table, over its seeds."""

    @property
    def spec(self) -> str: ...
    @property
    def verdict(self) -> str: ...


class Model(nn.Module):
    """What a task trains. The parts that all encodings share get the same initial weights, bit for bit."""

    lr_multipliers: dict[nn.Parameter, float]  # of the encodings' own parameters

    def parameter_counts(self) -> tuple[int, int]:
        """Parameters in all, and those of the encodings."""
        total = sum(p.numel() for p in self.parameters())
        return total, sum(p.numel() for p in self.lr_multipliers)


S = TypeVar("S", bound=Numbers)
D = TypeVar("D", bound=Data)
R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Profile(Generic[S]):
    """A comparison: settings, and which encodings it trains from which seeds."""

    name: str
    encodings: tuple[str, ...]
    seeds: int
    settings: S


class Task(ABC, Generic[S, D, R]):
    """One kind of comparison, with settings S, data D and table rows R."""

    name: str
    source: str  # what --data is if nobody says
    facts: type[Any]  # the class of what is stated about the data
    loss_unit: float  # in nats; losses are reported in it
    loss_name: str
    rate_name: str  # what a training does in a second
    slow: tuple[str, ...]  # words in the names of jobs that take long
    fresh = True  # whether what is trained last was not trained before, so that its loss judges a training

    @abstractmethod
    def profile(self, name: str) -> Profile[S]:
        """A profile by name; a ValueError for an unknown one."""

    @abstractmethod
    def settings(self, record: dict[str, Any]) -> S:
        """Settings from plain data."""

    @abstractmethod
    def check(self, settings: S) -> None:
        """Raise a ValueError that names the option and what it needs."""

    @abstractmethod
    def specs(self, asked: Sequence[str], settings: S, *, control: bool) -> tuple[list[str], str]:
        """The rows of the table, each known and buildable, and a remark where rows were added to those asked for."""

    def trained(self, row: str) -> str:
        """The spec of the job on whose checkpoint a row of the table is measured."""
        return trained(row)

    def base(self, spec: str) -> str | None:
        """The spec whose trained weights the job of ``spec`` starts from, if it does not start from random ones."""
        return None

    def numbers(self, spec: str, settings: S) -> S:
        """The numbers of one job's own training, where they are not those of the run."""
        return settings

    @abstractmethod
    def read(self, source: str, settings: S) -> tuple[D, S]:
        """The data that ``--data`` names, and the settings with what follows from the data."""

    @abstractmethod
    def found(self, data: D) -> str:
        """One line about the data."""

    def remark(self, data: D, settings: S) -> str:
        """What is to be said of these numbers with these data, if anything; a ValueError if they do not go together."""
        return ""

    @abstractmethod
    def store(self, data: D, out: Path) -> None:
        """Write the data into the run's folder, where workers and other machines find them."""

    @abstractmethod
    def load(self, out: Path) -> D:
        """Read what `store` wrote; a ValueError if it is damaged."""

    @abstractmethod
    def model(self, spec: str, settings: S, data: D, seed: int) -> Model:
        """The model of a job before its training."""

    @abstractmethod
    def batch(self, data: D, settings: S, seed: int, step: int) -> tuple[Tensor, ...]:
        """The batch of a step, a pure function of the arguments; ranks share each tensor by rows."""

    @abstractmethod
    def amount(self, settings: S) -> int:
        """What a batch holds, in the unit of ``rate_name``."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """The mean loss of a batch, nats."""

    @abstractmethod
    def progress(self, loss: float, rate: float) -> str:
        """A few words about a running training."""

    @abstractmethod
    def train_share(self, settings: S) -> float:
        """Which share of a job's time is training, about."""

    @abstractmethod
    def measure(
        self,
        model: nn.Module,
        data: D,
        row: str,
        settings: S,
        device: torch.device,
        on_forward: Callable[[float], None] = lambda share: None,
    ) -> Measured:
        """What a trained model is worth as ``row``; ``on_forward`` is told which share of the work is done."""

    @abstractmethod
    def rows(self, measured: dict[str, list[Measured]]) -> list[R]:
        """The table's rows, in its order, from what was measured of each spec with each seed."""

    @abstractmethod
    def table(self, rows: list[R], settings: S) -> RenderableType:
        """The main table for a terminal; also shown live while jobs run."""

    @abstractmethod
    def closing(self, rows: list[R], record: RunRecord[Any, Any]) -> list[tuple[RenderableType, str]]:
        """What a terminal shows below the table at the end, each part with its style."""

    @abstractmethod
    def title(self, settings: S) -> str:
        """The headline of a report."""

    @abstractmethod
    def summary(self, rows: list[R], record: RunRecord[Any, Any]) -> str:
        """A paragraph for someone who reads nothing else."""

    @abstractmethod
    def sections(self, rows: list[R], record: RunRecord[Any, Any]) -> list[Section]:
        """The parts of the page below headline and summary. Ids begin with the task's name: a page may hold more."""

    @abstractmethod
    def write_report(self, out: Path, rows: list[R], record: RunRecord[Any, Any]) -> list[Path]:
        """Write table, results and pictures from whatever rows there are; returns their paths. The page comes after."""
