"""`TokenOrder`: how the tokens of a call follow one another, for encodings that read it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class TokenOrder(NamedTuple):
    """How the tokens of a call follow one another, whatever a window hides."""

    used: Tensor | None  # bool (batch | 1, keys): visible to some query; None: all are
    previous: Tensor  # (batch | 1, keys): index of the token before each in its sequence; −1 at the start of one

    def first(self, keys: int) -> TokenOrder:
        """The order of the first keys alone."""
        return TokenOrder(None if self.used is None else self.used[:, :keys], self.previous[:, :keys])


def single_sequence(keys: int, device: torch.device) -> TokenOrder:
    """The order of one sequence in which every token is used."""
    return TokenOrder(None, torch.arange(keys, device=device)[None] - 1)
