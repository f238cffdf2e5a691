"""Helper class: biases that are a function of the distance alone write b(h, p_key − p_query) once."""

from __future__ import annotations

from torch import Tensor

from posenc.encoding import BiasEncoding
from posenc.positions import checking as position


class DistanceBias(BiasEncoding):
    """A bias b_h(p_key − p_query). Subclasses write `of_distance`; the dense form follows from it."""

    def of_distance(self, distance: Tensor) -> Tensor:
        """The bias ``(heads, *distance.shape)`` at ``distance = p_key − p_query`` (negative in the past)."""
        raise NotImplementedError

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        position.check_dtype("q_pos", q_pos)
        position.check_dtype("k_pos", k_pos)
        distance = position.wide(k_pos).unsqueeze(-2) - position.wide(q_pos).unsqueeze(-1)
        bias = self.of_distance(distance)  # (heads, *batch, queries, keys)
        return bias.movedim(0, -3)
