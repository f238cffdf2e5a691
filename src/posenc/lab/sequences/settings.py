"""What a comparison on generated sequences does, as numbers; each task adds its difficulty."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

from posenc.catalogue import Entry
from posenc.lab.specs import Shape
from posenc.lab.tasks.numbers import check_heads, check_training
from posenc.lab.training import Training


@dataclass(frozen=True)
class SequenceShape(Shape):
    """What encodings may need to know of a model of sequences."""

    ids: int = 0  # ids of digits that have a row, where there are any

    def words(self, entry: Entry) -> dict[str, object]:
        """The same words for all, but rows for ids, as large at first as the embedding of tokens."""
        words = super().words(entry)
        return {**words, "max_length": self.ids, "init_std": 0.5} if entry.own_positions and self.ids else words


@dataclass(frozen=True)
class SequenceSettings(Training):
    """The numbers that decide a result. Two results are comparable if and only if these are equal."""

    task: ClassVar[str]

    train_length: int = 64  # tokens, the longest that is trained
    lengths: tuple[int, ...] = (1, 2, 4, 8, 16)  # test lengths, in training lengths
    windows: int = 128  # sequences asked at each test length
    steps: int = 400
    layers: int = 2

    @property
    def tested(self) -> tuple[int, ...]:
        """Test lengths in tokens."""
        return tuple(k * self.train_length for k in self.lengths)

    @property
    def shape(self) -> SequenceShape:
        """What encodings may need to know of the model."""
        return SequenceShape(self.dim, self.heads, self.layers, self.train_length)

    def shown(self) -> dict[str, str]:
        """Every number that decides a result, in words."""
        shown = super().shown()
        shown["lengths"] = ", ".join(f"{k}×" for k in self.lengths)
        shown["training sequences per encoding"] = f"{self.steps * self.batch_size:,}"
        return shown


def check_sequences(settings: SequenceSettings, *, unit: int, shortest: int) -> None:
    """Raise a ValueError that names the option and what it needs.

    Args:
        settings: the numbers.
        unit: tokens that every length is a multiple of.
        shortest: tokens of the shortest sequence that the task can ask.
    """
    s, lengths = settings, settings.lengths
    at_least = {
        "train_length": shortest, "windows": 2, "steps": 1, "batch_size": 1, "dim": 1, "layers": 1, "heads": 1,
        "threads": 1, "checkpoint_every": 1,
    }  # fmt: skip
    check_training(s, at_least)
    if s.train_length % unit:
        raise ValueError(f"--train-length {s.train_length}: --task {s.task} needs a multiple of {unit}")
    if not lengths or lengths[0] != 1 or any(b <= a for a, b in itertools.pairwise(lengths)):
        shown = ",".join(map(str, lengths))
        raise ValueError(f"--lengths {shown}: multiples of the training length that start at 1 and grow are needed")
    check_heads(s.dim, s.heads)
