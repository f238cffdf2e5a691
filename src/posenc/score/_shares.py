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
        """Its own and those of its members."""


class Share(BiasEncoding):
    """w_h · b_h, for a bias b that all heads of a mixture heed by weights of their own.

    It owns no parameters: it asks the mixture, which may have got new ones since.

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
        """Those of the mixture."""
        return self._of[0].parameters(recurse)

    def _weights(self, like: Tensor) -> Tensor:
        owner, member, _ = self._of
        return owner.logits.to(like.dtype).softmax(-1)[:, member]

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        bias: Tensor = self._of[2](q_pos, k_pos)
        return bias * self._weights(bias).view(-1, 1, 1)

    def of_distance(self, distance: Tensor) -> Tensor | None:
        found = self._of[2].of_distance(distance)
        return None if found is None else found * self._weights(found).view(-1, *[1] * distance.ndim)

    def network(self, queries: int, keys: int, *, like: Tensor) -> Network | None:
        found = self._of[2].network(queries, keys, like=like)
        if found is None:
            return None
        weights = self._weights(found.outer)
        return Network(
            found.by_distance, found.by_query, found.inner, found.inner_bias, found.outer * weights[:, None],
            found.outer_bias * weights,
        )  # fmt: skip

    def offsets(self, q_pos: Tensor, k_pos: Tensor) -> Offsets | None:
        found = self._of[2].offsets(q_pos, k_pos)
        if found is None:
            return None
        return Offsets(found.values * self._weights(found.values)[:, None], found.of_queries, found.of_keys)
