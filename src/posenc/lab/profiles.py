"""What a comparison of texts does, as numbers: the profiles, and the checks every set of numbers must pass."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

from posenc.lab.specs import WINDOW, Shape, standard_encodings
from posenc.lab.tasks.numbers import check_heads, check_training, unknown_profile
from posenc.lab.tasks.task import Profile
from posenc.lab.training import Training


@dataclass(frozen=True)
class Settings(Training):
    """The numbers that decide a result. Two results are comparable if and only if these are equal."""

    task: ClassVar[str] = "text"

    train_length: int = 64  # bytes
    lengths: tuple[int, ...] = (1, 2, 4, 8, 16)  # test lengths, in training lengths
    steps: int = 500
    windows: int = 64  # evaluation windows
    checkpoint_every: int = 50

    @property
    def scored(self) -> int:
        """Bytes at the end of a window on which every length is judged."""
        return self.train_length // 2

    @property
    def longest(self) -> int:
        """The longest test length, in bytes."""
        return self.train_length * self.lengths[-1]

    @property
    def shape(self) -> Shape:
        """What encodings may need to know of the model."""
        return Shape(self.dim, self.heads, self.layers, self.train_length)

    def shown(self) -> dict[str, str]:
        """Every number that decides a result, in words."""
        shown = super().shown()
        shown["lengths"] = ", ".join(f"{k}×" for k in self.lengths)
        shown["training bytes per encoding"] = f"{self.steps * self.batch_size * self.train_length:,}"
        return shown


QUICK = ("nope", "sinusoidal", "learned", "rope", WINDOW, "alibi", "t5", "shaw")


def profile(name: str) -> Profile[Settings]:
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
    raise unknown_profile(name)


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
    check_training(s, at_least)
    if s.train_length % 2:
        raise ValueError(f"--train-length {s.train_length}: an even number is needed, since half of it is scored")
    if not lengths or lengths[0] != 1 or any(b <= a for a, b in itertools.pairwise(lengths)):
        shown = ",".join(map(str, lengths))
        raise ValueError(f"--lengths {shown}: multiples of the training length that start at 1 and grow are needed")
    check_heads(s.dim, s.heads)
