"""The configuration of a comparison: one dataclass per part, each field with help text and bounds.

The command line's options are generated from these fields. Whatever decides a number is here or in the data, the
encodings and the package itself; a job's identity is a hash of all of it. Fields that decide nothing say so
(``decides=False``).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict
from typing_extensions import TypedDict

from posenc.lab.files import Spec, validated

PRECISIONS = ("float32", "bfloat16")
LONGEST = 2**24  # tokens of a test


def number(
    default: Any,
    text: str,
    *,
    least: float | None = None,
    most: float = 2**16,
    above: float | None = None,
    choices: tuple[str, ...] = (),
    decides: bool = True,
    typed: bool = True,
) -> Any:
    """A field of a configuration.

    Args:
        default: of the quick profile; its type is that of the field.
        text: what it is, for the command line's help.
        least, most: bounds, themselves allowed.
        above: a bound that is not allowed itself.
        choices: of a field of words.
        decides: whether a result depends on it.
        typed: whether it is an option of the command line; False: it follows from something else.
    """
    bounds = {"least": least, "most": most, "above": above, "choices": choices}
    facts = {"text": text, "decides": decides, "typed": typed}
    return field(default=default, metadata={**facts, **bounds})


def check_field(f: dataclasses.Field[Any], value: Any) -> None:
    """Raise a ValueError that names the option and what it needs."""
    bounds, name = f.metadata, option(f.name)
    if bounds["choices"] and value not in bounds["choices"]:
        raise ValueError(f"{name} {value}: {' or '.join(bounds['choices'])} is needed")
    if value == ():
        raise ValueError(f"{name}: at least one number is needed")
    for item in value if isinstance(value, tuple) else (value,):
        if isinstance(item, bool) or not isinstance(item, int | float):
            continue
        if bounds["least"] is not None and not item >= bounds["least"]:
            raise ValueError(f"{name} {item}: at least {bounds['least']} is needed")
        if bounds["above"] is not None and not item > bounds["above"]:
            raise ValueError(f"{name} {item}: a number above {bounds['above']} is needed")
        if not item <= bounds["most"]:
            raise ValueError(f"{name} {item}: at most {bounds['most']:,} is taken")


def option(name: str) -> str:
    """How a field is called on the command line."""
    return "--" + name.replace("_", "-")


def text_of(value: Any) -> str:
    """A value in words."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


class Part:
    """A part of a configuration; a file of a run may add no number to it."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}


@dataclass(frozen=True)
class Model(Part):
    """What is trained."""

    dim: int = number(128, "Width of the model.", least=1, most=2**14)
    layers: int = number(4, "Layers of the model.", least=1, most=2**10)
    heads: int = number(4, "Attention heads.", least=1, most=2**10)

    @property
    def hidden(self) -> int:
        """Width of the feed-forward layer: 8/3 of ``dim``, rounded up to a multiple of 32."""
        return 32 * math.ceil(8 * self.dim / 3 / 32)

    @property
    def matrices(self) -> int:
        """Numbers in the matrices of the layers, which are most of a model."""
        return self.layers * (4 * self.dim**2 + 3 * self.dim * self.hidden)


@dataclass(frozen=True)
class Training(Part):
    """How it is trained."""

    train_length: int = number(64, "Bytes or tokens a model is trained on at a time.", least=2, most=2**20)
    steps: int = number(500, "Training steps.", least=1, most=10**9)
    batch_size: int = number(32, "Texts, sequences or images in a step.", least=1, most=2**20)
    lr: float = number(2e-3, "Learning rate.", above=0)
    weight_decay: float = number(0.1, "Weight decay of matrices.", least=0)
    clip: float = number(1.0, "Norm that gradients are clipped to.", above=0)
    warmup: int = number(50, "Steps of warm-up, at most a fifth of all.", least=0, most=10**9)
    decay: float = number(0.4, "Last share of the steps, in which the learning rate falls to 0.", least=0, most=1)
    precision: str = number("float32", "float32 or bfloat16.", choices=PRECISIONS)
    compile: bool = number(False, "Compile the model for its training, by torch.compile.")
    checkpoint_every: int = number(100, "Steps between checkpoints.", least=1, most=10**9, decides=False)


@dataclass(frozen=True)
class Evaluation(Part):
    """On what it is judged."""

    lengths: tuple[int, ...] = number(
        (1, 2, 4, 8, 16), "Test lengths in training lengths, like 1,2,4,8,16.", least=1, most=LONGEST
    )
    windows: int = number(256, "Evaluation windows, or sequences of each length.", least=2, most=2**20)
    probes: int = number(20, "How often a model is judged at 1× while it is trained.", least=1, most=1000)


@dataclass(frozen=True)
class Machine(Part):
    """Where: it changes the rounding of a result, nothing else."""

    device: str = number("auto", "auto, cpu, cuda or mps.")
    threads: int = number(1, "Processor threads of each job.", least=1, most=2**12)
    processes: int = number(1, "Ranks of torchrun that share each batch.", least=1, typed=False)
    shard: bool = number(False, "Share each model out among the ranks of torchrun (FSDP).")
    gradient_accumulation_steps: int = number(
        1, "Micro-batches that each batch is computed in, one after the other, on each rank.", least=1, most=2**20
    )


@dataclass(frozen=True)
class Options(Part):
    """A task's own numbers; a task with any derives a frozen dataclass from this."""


@dataclass(frozen=True)
class Config:
    """All numbers of a comparison. Two results are comparable if and only if these are equal, but for the machine."""

    task: str
    model: Model = field(default_factory=Model)
    training: Training = field(default_factory=Training)
    evaluation: Evaluation = field(default_factory=Evaluation)
    options: Options = field(default_factory=Options)
    machine: Machine = field(default_factory=Machine)

    @property
    def longest(self) -> int:
        """The longest test, in tokens."""
        return max(self.tested)

    @property
    def tested(self) -> tuple[int, ...]:
        """Test lengths in tokens."""
        return tuple(k * self.training.train_length for k in self.evaluation.lengths)

    def replaced(self, numbers: Mapping[str, Any]) -> Config:
        """With other numbers, by name, whichever part has them; a ValueError for a name that no part has."""
        rest, parts = dict(numbers), {}
        for name in PARTS:
            part = getattr(self, name)
            changes = {f.name: rest.pop(f.name) for f in dataclasses.fields(part) if f.name in rest}
            parts[name] = dataclasses.replace(part, **changes)
        if rest:
            raise ValueError(f"{option(next(iter(rest)))}: --task {self.task} has no such number")
        return dataclasses.replace(self, **parts)

    def check(self) -> None:
        """Raise a ValueError that names the option and what it needs."""
        for part, f in self.fields():
            check_field(f, getattr(part, f.name))
        t, e = self.training, self.evaluation
        grow = all(a < b for a, b in itertools.pairwise(e.lengths))
        if not grow or e.lengths[0] != 1 or not all(type(k) is int for k in e.lengths):
            typed = text_of(e.lengths)
            raise ValueError(f"--lengths {typed}: multiples of the training length that start at 1 and grow")
        if self.longest > LONGEST:
            raise ValueError(f"--lengths {text_of(e.lengths)}: tests of at most {LONGEST:,} tokens are taken")
        if self.model.dim % self.model.heads:
            raise ValueError(f"--dim {self.model.dim}: it must be a multiple of --heads {self.model.heads}")
        processes, micro = self.machine.processes, self.machine.gradient_accumulation_steps
        if t.batch_size % (processes * micro):
            times = f" times --gradient-accumulation-steps {micro}" if micro > 1 else ""
            raise ValueError(f"--batch-size {t.batch_size}: it must be a multiple of the {processes} processes{times}")

    def fields(self) -> Iterator[tuple[Any, dataclasses.Field[Any]]]:
        """Each part with each of its fields."""
        for name in PARTS:
            part = getattr(self, name)
            for f in dataclasses.fields(part):
                yield part, f

    def record(self) -> dict[str, Any]:
        """Plain data."""
        return {"task": self.task, **{name: dataclasses.asdict(getattr(self, name)) for name in PARTS}}

    def deciding(self) -> dict[str, Any]:
        """What decides a number, by name: without what only says where and how often something is saved."""
        numbers = {
            f.name: getattr(part, f.name)
            for part, f in self.fields()
            if part is not self.machine and f.metadata["decides"]
        }
        return {"task": self.task, **numbers}

    def rounding(self) -> dict[str, Any]:
        """What changes the rounding of a number and nothing else, by name: the machine's part."""
        return dataclasses.asdict(self.machine)

    def shown(self) -> dict[str, str]:
        """Every number in words."""
        return {f.name.replace("_", " "): text_of(getattr(part, f.name)) for part, f in self.fields()}


PARTS = ("model", "training", "evaluation", "options", "machine")


@dataclass(frozen=True)
class Profile:
    """A comparison by name: its numbers, and which encodings it trains from how many seeds."""

    name: str
    encodings: tuple[str, ...]
    seeds: int
    config: Config


class ConfigRecord(TypedDict):
    """A configuration as plain data."""

    task: Spec
    model: dict[str, Any]
    training: dict[str, Any]
    evaluation: dict[str, Any]
    options: dict[str, Any]
    machine: dict[str, Any]


def config_of(record: object, options_of: Callable[[str], type[Options]], path: Path) -> Config:
    """A configuration from plain data of a file, each number validated; a ValueError names the file.

    Args:
        record: as `Config.record` makes it.
        options_of: the class of a task's own numbers, by the task's name.
        path: of the file.
    """
    record = validated(path, ConfigRecord, record)
    kinds = {"model": Model, "training": Training, "evaluation": Evaluation, "machine": Machine}
    kinds["options"] = options_of(record["task"])
    parts: dict[str, Any] = {}
    for name, kind in kinds.items():
        parts[name] = validated(path, kind, record[name])  # type: ignore[literal-required]
    config = Config(record["task"], **parts)
    try:
        config.check()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return config
