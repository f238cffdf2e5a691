"""Random choices that one whole number brings back."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")


class Draw:
    """A stream of choices.

    Args:
        seed: equal seeds give equal choices.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = random.Random(seed)
        self.source = torch.Generator().manual_seed(seed)

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def one(self, items: Sequence[Item]) -> Item:
        return self._random.choice(items)

    def weighted(self, items: Mapping[Item, float]) -> Item:
        return self._random.choices(list(items), list(items.values()))[0]

    def whole(self, low: int, high: int) -> int:
        """low … high."""
        return self._random.randint(low, high)

    def number(self, low: float, high: float) -> float:
        return round(self._random.uniform(low, high), 4)

    def some(self, items: Sequence[Item], count: int) -> list[Item]:
        return self._random.sample(list(items), count)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.source, dtype=torch.float64)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.source, dtype=torch.float64)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """low … high, int64."""
        return torch.randint(low, high + 1, shape, generator=self.source)

    def order(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.source)
