"""What a comparison does, as numbers: the profiles, and the checks every set of numbers must pass."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
from dataclasses import dataclass
from typing import Any

from posenc.lab.specs import WINDOW, standard_encodings


@dataclass(frozen=True)
class Settings:
    """The numbers that decide a result. Two results are comparable if and only if these are equal."""

    train_length: int = 64  # bytes
    lengths: tuple[int, ...] = (1, 2, 4, 8, 16)  # test lengths, in training lengths
    steps: int = 500
    batch_size: int = 32  # windows of train_length bytes
    windows: int = 64  # evaluation windows
    dim: int = 128
    layers: int = 4
    heads: int = 4
    lr: float = 2e-3
    weight_decay: float = 0.1  # on matrices
    clip: float = 1.0  # norm that a gradient is clipped to
    warmup: int = 50  # steps, at most a fifth of all
    decay: float = 0.4  # last share of the steps, in which the learning rate falls to 0
    precision: str = "auto"  # of the training; evaluation is in float32
    device: str = "auto"
    threads: int = 1  # of a training process
    processes: int = 1  # that share each batch
    checkpoint_every: int = 50  # steps; the one number here that decides nothing

    @property
    def hidden(self) -> int:
        """Width of the feed-forward layer: 8/3 of ``dim``, rounded up to a multiple of 32."""
        return 32 * math.ceil(8 * self.dim / 3 / 32)

    @property
    def scored(self) -> int:
        """Bytes at the end of a window on which every length is judged."""
        return self.train_length // 2

    @property
    def longest(self) -> int:
        """The longest test length, in bytes."""
        return self.train_length * self.lengths[-1]


@dataclass(frozen=True)
class Profile:
    """A comparison: settings, and which encodings it trains from which seeds."""

    name: str
    encodings: tuple[str, ...]
    seeds: int
    settings: Settings


QUICK = ("nope", "sinusoidal", "learned", "rope", WINDOW, "alibi", "t5", "shaw")


def profile(name: str) -> Profile:
    """A profile by name: minutes on a few cores (quick), longer and with more seeds (standard), for a GPU (full)."""
    if name == "quick":
        return Profile(name, QUICK, 1, Settings())
    if name == "standard":
        settings = Settings(train_length=128, steps=1200, warmup=100, checkpoint_every=100)
        return Profile(name, (*standard_encodings(), WINDOW, "rope+alibi"), 3, settings)
    if name == "full":
        settings = Settings(
            train_length=512, steps=6000, batch_size=64, windows=256, dim=512, layers=8, heads=8,
            lr=1e-3, warmup=500, checkpoint_every=250,
        )  # fmt: skip
        return Profile(name, (*standard_encodings(), WINDOW, "rope+alibi"), 3, settings)
    near = difflib.get_close_matches(name, ("quick", "standard", "full"), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"profile: no profile {name!r}{hint} (quick, standard or full)")


def override(chosen: Profile, encodings: list[str], numbers: dict[str, Any]) -> Profile:
    """Replace whatever was given on the command line; ``numbers`` holds fields of `Settings` and ``seeds``, or None."""
    given = {name: value for name, value in numbers.items() if value is not None}
    seeds = int(given.pop("seeds", chosen.seeds))
    settings = dataclasses.replace(chosen.settings, **given)
    if seeds < 1:
        raise ValueError(f"--seeds {seeds}: at least 1 is needed")
    check(settings)
    return dataclasses.replace(chosen, encodings=tuple(encodings) or chosen.encodings, seeds=seeds, settings=settings)


def parse_lengths(text: str) -> tuple[int, ...]:
    """``"1,2,4"`` as multiples of the training length."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--lengths {text!r}: whole numbers separated by commas are needed, like 1,2,4,8,16") from None


def check(settings: Settings) -> None:
    """Raise a ValueError that names the option and what it needs."""
    s, lengths = settings, settings.lengths
    at_least = {
        "train_length": 4, "steps": 1, "batch_size": 1, "windows": 2, "dim": 1, "layers": 1, "heads": 1,
        "threads": 1, "checkpoint_every": 1,
    }  # fmt: skip
    for name, least in at_least.items():
        if getattr(s, name) < least:
            raise ValueError(f"{option(name)} {getattr(s, name)}: at least {least} is needed")
    for name in ("lr", "clip"):
        if not 0 < getattr(s, name) < math.inf:
            raise ValueError(f"{option(name)} {getattr(s, name)}: a positive number is needed")
    if s.weight_decay < 0 or s.warmup < 0 or not 0 <= s.decay <= 1:
        raise ValueError("--weight-decay and --warmup must not be negative, and --decay lies between 0 and 1")
    if s.train_length % 2:
        raise ValueError(f"--train-length {s.train_length}: an even number is needed, since half of it is scored")
    if not lengths or lengths[0] != 1 or any(b <= a for a, b in itertools.pairwise(lengths)):
        shown = ",".join(map(str, lengths))
        raise ValueError(f"--lengths {shown}: multiples of the training length that start at 1 and grow are needed")
    if s.dim % s.heads:
        raise ValueError(f"--dim {s.dim}: it must be a multiple of --heads {s.heads}")
    if s.precision not in ("auto", "float32", "bfloat16"):
        raise ValueError(f"--precision {s.precision}: auto, float32 or bfloat16 is needed")
    if s.batch_size % s.processes:
        raise ValueError(f"--batch-size {s.batch_size}: it must be a multiple of the {s.processes} processes")


def option(field: str) -> str:
    """How a field of `Settings` is called on the command line."""
    return "--" + field.replace("_", "-")
