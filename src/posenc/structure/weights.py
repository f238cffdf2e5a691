"""What stands in place of softmax: stick-breaking, and softmax with a sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from posenc.structure.interface import Structure


@dataclass(eq=False)
class Sticks(Structure):
    """a_ij = sigmoid(s_ij) · Π (1 − sigmoid(s_il)) over visible keys l > j, instead of softmax."""

    attend_current: bool  # whether a query attends to its own key, n = 0
    remainder: Literal["drop", "own", "vector"]  # what gets the weight that is left
    vector: Tensor | None = None  # (heads, value_dim)

    description = "stick-breaking"


@dataclass(eq=False)
class Sink(Structure):
    """a_ij = exp(s_ij) / (exp(logits_h) + Σ_l exp(s_il)): softmax with a logit that takes weight and has no value."""

    logits: Tensor  # (heads,)

    description = "a sink"

    def sink_logits(self) -> Tensor:
        return self.logits
