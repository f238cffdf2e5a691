"""TAPE for one call whose tokens already have rotation states, where a layer cannot rotate queries and keys itself."""

from __future__ import annotations

from torch import Tensor

from posenc.encoding import RotaryEncoding, Table
from posenc.rotary.tape import TAPE


class TAPEWithStates(RotaryEncoding):
    """TAPE by given states; positions are not read.

    Args:
        tape: the encoding.
        states: of the call's keys, two of ``(batch, heads, keys, head_dim)``; queries are the last of them.
    """

    carries = True
    moves = False

    def __init__(self, tape: TAPE, states: Table) -> None:
        super().__init__()
        self.tape, self.states = tape, states

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys rotated by the states of their tokens."""
        first = k.shape[2] - q.shape[2]
        of_queries = tuple(state[:, :, first:] for state in self.states)
        return self.tape.rotate(q, of_queries), self.tape.rotate(k, self.states)
