"""Helper class: biases that are a function of the distance alone write b(h, p_key − p_query) once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from posenc import positions as position
from posenc.encoding import BiasEncoding, overrides


class DistanceBias(BiasEncoding):
    """A bias b_h(p_key − p_query). Subclasses write `of_distance`; the dense form follows from it."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if overrides(cls, "of_distance", "of_newest"):
            cls.of_newest = DistanceBias.of_newest  # type: ignore[method-assign]

    def of_distance(self, distance: Tensor) -> Tensor:
        """The bias ``(heads, *distance.shape)`` at ``distance = p_key − p_query`` (negative in the past)."""
        raise NotImplementedError

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        position.check_dtype("q_pos", q_pos)
        position.check_dtype("k_pos", k_pos)
        distance = position.wide(k_pos).unsqueeze(-2) - position.wide(q_pos).unsqueeze(-1)
        bias = self.of_distance(distance)  # (heads, *batch, queries, keys)
        return bias.movedim(0, -3)

    def of_newest(self, keys: int, *, like: Tensor) -> Tensor:
        distance = torch.arange(1 - keys, 1, device=like.device)
        return self.of_distance(distance.double() if like.dtype == torch.float64 else distance)
