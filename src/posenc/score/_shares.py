"""One bias of a mixture's member, as a bias of its own: times what heads give the member."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor, nn

from posenc.encoding import BiasEncoding
from posenc.structure import Network, Offsets


class Owner(Protocol):
    """The mixture."""

    num_heads: int
    logits: nn.Parameter  # of the weights, (heads, members)

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """The mixture's own parameters and its members'."""


class Share(BiasEncoding):
    """w_h · b_h, for a bias b that all heads of a mixture weight individually.

    It owns no parameters: it reads the mixture's, which may have been replaced since.

    Args:
        owner: the mixture, whose weights are the same for all tokens.
        member: number of the member.
        bias: one of its biases.
    """

    def __init__(self, owner: Owner, member: int, bias: BiasEncoding) -> None:
        super().__init__()
        self.num_heads, self.axes, self.causal_only = owner.num_heads, bias.axes, bias.causal_only
        self._of = (owner, member, bias)  # a tuple registers nothing

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """The mixture's parameters."""
        return self._of[0].parameters(recurse)

    def _weights(self, like: Tensor) -> Tensor:
        owner, member, _ = self._of
        return owner.logits.to(like.dtype).softmax(-1)[:, member]

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        bias: Tensor = self._of[2](q_pos, k_pos)
        return bias * self._weights(bias).view(-1, 1, 1)

    def of_distance(self, distance: Tensor) -> Tensor | None:
        bias = self._of[2].of_distance(distance)
        return None if bias is None else bias * self._weights(bias).view(-1, *[1] * distance.ndim)

    def network(self, queries: int, keys: int, *, like: Tensor) -> Network | None:
        network = self._of[2].network(queries, keys, like=like)
        if network is None:
            return None
        weights = self._weights(network.outer)
        return Network(
            network.by_distance, network.by_query, network.inner, network.inner_bias, network.outer * weights[:, None],
            network.outer_bias * weights,
        )  # fmt: skip

    def offsets(self, q_pos: Tensor, k_pos: Tensor) -> Offsets | None:
        offsets = self._of[2].offsets(q_pos, k_pos)
        if offsets is None:
            return None
        return Offsets(offsets.values * self._weights(offsets.values)[:, None], offsets.query_index, offsets.key_index)
