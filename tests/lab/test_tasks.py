"""What tasks share: names, records, numbers, and a task of one's own that needs nothing of the machinery."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from posenc.lab import tasks
from posenc.lab.compare import compare
from posenc.lab.images.settings import ImageSettings
from posenc.lab.images.settings import profile as image_profile
from posenc.lab.jobs import Job, open_run
from posenc.lab.plan import Plan
from posenc.lab.record import RunRecord
from posenc.lab.report.section import Section
from posenc.lab.tasks import read_settings, task_named, task_of, to_record
from posenc.lab.tasks.numbers import override
from posenc.lab.tasks.task import Measured, Model, Profile, Task
from posenc.lab.text.profiles import Settings, profile


def test_tasks_are_known_by_name() -> None:
    assert [task_named(name).name for name in tasks.NAMES] == ["text", "images", "extension", *tasks.SEQUENCES]
    assert task_of(ImageSettings()) is task_named("images")
    with pytest.raises(ValueError, match="did you mean images"):
        task_named("image")


def test_the_fingerprint_of_a_text_job_is_what_it_was_before_there_were_tasks() -> None:
    corpus = {"train_sha256": "a" * 64, "validation_sha256": "b" * 64}
    job = Job("rope+alibi", 3, Settings(), corpus, {"posenc": "0"})
    assert job.identity == "7dc61da3c0066d3ece4781418d69f077022b8e5335c460b4c780ab0ed12d9650"
    assert list(to_record(job.settings)) == [field.name for field in dataclasses.fields(Settings)]


@pytest.mark.parametrize("settings", [Settings(lengths=(1, 2)), ImageSettings(constants=(1,), train_images=9)])
def test_settings_come_back_from_their_records(settings: Settings | ImageSettings) -> None:
    assert (
        read_settings({k: list(v) if isinstance(v, tuple) else v for k, v in to_record(settings).items()}, Path())
        == settings
    )


def test_a_folder_of_one_task_is_refused_to_another(tmp_path: Path) -> None:
    open_run(tmp_path, Settings(), {}, {})
    with pytest.raises(ValueError, match="holds a run of --task text, not images: choose another --out"):
        open_run(tmp_path, ImageSettings(), {}, {})


def test_numbers_of_another_task_are_refused() -> None:
    with pytest.raises(ValueError, match="--steps: --task images has no such number"):
        override(image_profile("quick"), [], {"steps": 3})
    with pytest.raises(ValueError, match="--epochs: --task text has no such number"):
        override(profile("quick"), [], {"epochs": 3, "lr": None})


@dataclass(frozen=True)
class EchoSettings:
    """Numbers of a task that some other package may bring."""

    task: ClassVar[str] = "echo"

    steps: int = 4
    batch_size: int = 2
    lr: float = 1e-2
    weight_decay: float = 0.0
    clip: float = 1.0
    warmup: int = 0
    decay: float = 0.0
    precision: str = "float32"
    device: str = "cpu"
    compile: bool = False
    threads: int = 1
    processes: int = 1
    shard: bool = False
    checkpoint_every: int = 2

    def shown(self) -> dict[str, str]:
        return {"steps": str(self.steps)}


@dataclass(frozen=True)
class EchoFacts:
    name: str = "noise"

    def identity(self) -> dict[str, str]:
        return {"noise": "1"}

    def shown(self) -> dict[str, str]:
        return {"noise": "1"}


@dataclass(frozen=True)
class Noise:
    facts: EchoFacts = EchoFacts()


@dataclass(frozen=True)
class EchoRow:
    spec: str
    error: float
    verdict: str = "noise"


class Line(Model):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.lr_multipliers = {}

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


class Echo(Task[EchoSettings, Noise, EchoRow]):
    """Learns to give back what it is given."""

    name, source, slow = "echo", "noise", ()
    facts = EchoFacts
    loss_unit, loss_name, rate_name = 1.0, "loss", "numbers_per_second"

    def profile(self, name: str) -> Profile[EchoSettings]:
        return Profile(name, ("nope",), 2, EchoSettings())

    def settings(self, record: dict[str, Any]) -> EchoSettings:
        return EchoSettings(**record)

    def check(self, settings: EchoSettings) -> None:
        pass

    def specs(self, asked: Sequence[str], settings: EchoSettings, *, control: bool) -> tuple[list[str], str]:
        return list(asked), ""

    def read(self, source: str, settings: EchoSettings) -> tuple[Noise, EchoSettings]:
        return Noise(), settings

    def found(self, data: Noise) -> str:
        return "Noise."

    def store(self, data: Noise, out: Path) -> None:
        (out / "noise").write_text("1")

    def load(self, out: Path) -> Noise:
        assert (out / "noise").read_text() == "1"
        return Noise()

    def model(self, spec: str, settings: EchoSettings, data: Noise, seed: int) -> Model:
        return Line()

    def batch(self, data: Noise, settings: EchoSettings, seed: int, step: int) -> tuple[Tensor, ...]:
        return (torch.randn(settings.batch_size, 3, generator=torch.Generator().manual_seed(seed + step)),)

    def amount(self, settings: EchoSettings) -> int:
        return settings.batch_size

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        return (model(batch[0]) - batch[0]).square().mean()

    def progress(self, loss: float, rate: float) -> str:
        return f"{loss:.2f}"

    def train_share(self, settings: EchoSettings) -> float:
        return 0.9

    def measure(
        self,
        model: nn.Module,
        data: Noise,
        row: str,
        settings: EchoSettings,
        device: torch.device,
        on_forward: Callable[[float], None] = lambda share: None,
    ) -> Measured:
        on_forward(1.0)
        return {"error": 1 - next(model.parameters()).item()}

    def rows(self, measured: dict[str, list[Measured]]) -> list[EchoRow]:
        return [EchoRow(spec, sum(run["error"] for run in runs)) for spec, runs in measured.items()]

    def table(self, rows: list[EchoRow], settings: EchoSettings) -> str:
        return "; ".join(row.spec for row in rows)

    def closing(self, rows: list[EchoRow], record: RunRecord[Any, Any]) -> list[tuple[Any, str]]:
        return [("That was noise.", "")]

    def title(self, settings: EchoSettings) -> str:
        return "Echoes"

    def summary(self, rows: list[EchoRow], record: RunRecord[Any, Any]) -> str:
        return f"{len(rows)} echoes."

    def sections(self, rows: list[EchoRow], record: RunRecord[Any, Any]) -> list[Section]:
        chart = {"id": "echo-errors", "traces": [{"x": [1], "y": [rows[0].error]}], "xaxis": {}, "yaxis": {}}
        return [Section("echo", "Errors: all of them", '<div id="echo-errors" class="chart"></div>', [chart])]

    def write_report(self, out: Path, rows: list[EchoRow], record: RunRecord[Any, Any]) -> list[Path]:
        (out / "table.md").write_text(f"{rows}")
        return [out / "table.md"]


def test_a_task_of_ones_own_runs_to_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("posenc.lab.tasks.echo")
    module.TASK = Echo()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(tasks, "NAMES", (*tasks.NAMES, "echo"))
    task, lines = task_named("echo"), []
    console = Console(width=100)
    monkeypatch.setattr(console, "print", lambda *parts, **options: lines.extend(map(str, parts)))
    # Jobs in this process: others would not know the task.
    options = dataclasses.replace(Plan(task.profile("quick"), "noise", tmp_path / "run").slurm, cluster="debug")
    plan = Plan(task.profile("quick"), "noise", tmp_path / "run", runner="slurm", slurm=options)
    compare(plan, console)
    assert "That was noise." in lines
    assert (tmp_path / "run" / "table.md").read_text().startswith("[EchoRow(spec='nope', error=1.9")
    page = (tmp_path / "run" / "report.html").read_text()
    for part in ("<h1>Echoes</h1>", "1 echoes.", "<h2>Errors: all of them</h2>", '"id":"echo-errors"'):
        assert part in page
    assert len(list(tmp_path.glob("run/jobs/*/checkpoint.pt"))) == 2
    compare(plan, console)
    assert any("finished already" in line for line in lines)
