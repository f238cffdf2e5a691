"""Where the queries and keys of a call are: as given, or counted, and then only if somebody reads it."""

from __future__ import annotations

import torch
from torch import Tensor


class CallPositions:
    """Positions of queries and keys; the default ones, keys 0 … n − 1 and queries the last of them, are made when read.

    Most short calls never read them, and making them takes as long as the kernel.
    """

    def __init__(self, queries: int, keys: int, device: torch.device, given: tuple[Tensor, Tensor] | None) -> None:
        self.queries, self.keys, self.device = queries, keys, device
        self._found = given

    def read(self) -> tuple[Tensor, Tensor]:
        """Those of queries ``(*batch, queries)`` and of keys ``(*batch, keys)``; one tensor where they are the same."""
        if self._found is None:
            counted = torch.arange(self.keys, device=self.device)
            same = self.queries == self.keys
            own = counted if same else torch.arange(self.keys - self.queries, self.keys, device=self.device)
            self._found = own, counted
        return self._found

    def part(self, start: int, stop: int, seen: int, axis: int) -> CallPositions:
        """Those of queries ``start … stop − 1`` and of keys 0 … seen − 1; tokens lie along ``axis``."""
        of_queries, of_keys = self.read()
        parts = of_queries.narrow(axis, start, stop - start), of_keys.narrow(axis, 0, seen)
        return CallPositions(stop - start, seen, self.device, parts)
