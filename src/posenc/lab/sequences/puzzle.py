"""What a generated task is: numbers, and how sequences with their right answers are drawn from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from posenc.lab.sequences.settings import SequenceSettings, check_sequences
from posenc.lab.tasks.task import Profile

UNASKED = -100  # where nothing is to be said; what `cross_entropy` ignores
MOST_TOKENS = 255  # different ones; the last value of a byte stands for UNASKED in files
S = TypeVar("S", bound=SequenceSettings)


class Drawn(NamedTuple):
    """Sequences, and what is to be said after each of their tokens."""

    tokens: Tensor  # (count, length) int64
    answers: Tensor  # (count, length) int64, UNASKED where nothing is to be said; each row has an answer


class Puzzle(ABC, Generic[S]):
    """One generated task."""

    settings: type[S]
    title: ClassVar[str]  # of a report, a few words
    asked: ClassVar[str]  # what is asked, a sentence or two
    shows: ClassVar[str]  # what success and failure mean, a sentence or two
    whole: ClassVar[bool] = False  # whether a sequence counts only if all its answers are right
    ids: ClassVar[bool] = False  # whether there are ids of digits
    unit: ClassVar[int] = 2  # tokens that every length is a multiple of

    @abstractmethod
    def profile(self, name: str) -> Profile[S]:
        """A profile by name; a ValueError for an unknown one."""

    @abstractmethod
    def vocabulary(self, settings: S) -> int:
        """How many different tokens there are, answers included."""

    @abstractmethod
    def shortest(self, settings: S) -> int:
        """Tokens of the shortest sequence that can be asked."""

    @abstractmethod
    def chance(self, settings: S) -> float:
        """The share of right answers of the best guess that does not look at the sequence."""

    @abstractmethod
    def draw(self, settings: S, length: int, count: int, generator: torch.Generator) -> Drawn:
        """Sequences of ``length`` tokens, a multiple of ``unit``."""

    def check(self, settings: S) -> None:
        """Raise a ValueError that names the option and what it needs."""
        check_sequences(settings, unit=self.unit, shortest=self.shortest(settings))
        if self.vocabulary(settings) > MOST_TOKENS:
            raise ValueError(
                f"--task {settings.task}: at most {MOST_TOKENS} different tokens, got {self.vocabulary(settings)}"
            )

    def trained_lengths(self, settings: S) -> range:
        """Lengths that batches of the training have: from half of the training length to all of it."""
        least = max(self.shortest(settings), settings.train_length // 2)
        return range(-(-least // self.unit) * self.unit, settings.train_length + 1, self.unit)

    def ids_of(self, settings: S, tokens: Tensor, generator: torch.Generator | None = None) -> Tensor | None:
        """Places of digits inside their numbers ``(count, length)``, moved at random in training; None if there are
        no numbers."""
        return None


def integers(high: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Whole numbers 0 … high − 1, all as likely."""
    return torch.randint(high, shape, generator=generator)
