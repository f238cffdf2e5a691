"""`Context`: what the scores of one attention layer may depend on, handed to score and weight encodings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

if TYPE_CHECKING:
    from posenc.structure import TokenOrder


class Unrotated(NamedTuple):
    """Queries and keys before their rotation, in float32 or better."""

    q: Tensor  # (batch, heads, queries, head_dim)
    k: Tensor  # (batch, num_kv_heads, keys, head_dim)


class SequenceContext(NamedTuple):
    """What a call knows of its sequences beyond positions: each field is set only for encodings that declare it."""

    token_order: TokenOrder | None = None  # `Reads.token_order`: which tokens follow one another
    key_counts: Tensor | None = None  # `Reads.key_counts`: visible keys, (batch | 1, heads | 1, queries)
    row_lengths: tuple[Tensor, Tensor] | int | None = None  # `ScoreEncoding.length_dependent`: for its rotations
    by_position: bool = False  # keys are visible by position: a query's own key is the newest visible one at its own


class Context(NamedTuple):
    """What the scores of one layer may depend on; most encodings need only the first eight fields.

    The last three are for encodings that replace the dot products or declare more in their `Reads`.
    """

    q: Tensor  # (batch, heads, queries, head_dim), already rotated, float32 or better
    k: Tensor  # (batch, num_kv_heads, keys, head_dim), already rotated, float32 or better
    v: Tensor  # (batch, num_kv_heads, keys, value_dim), float32 or better
    q_pos: Tensor  # (*batch, queries)
    k_pos: Tensor  # (*batch, keys)
    scale: float  # the factor on q·k that the scores already contain
    mask: Tensor | None = None  # (batch | 1, heads | 1, queries, keys) bool, True where a query may attend
    token_state: Tensor | None = None  # what this encoding's token_state(x) gave for the keys

    softcap: float | None = None  # bound of the dot products that the scores contain: see `softcapped`
    unrotated: Unrotated | None = None  # None: nothing was rotated
    sequence: SequenceContext = SequenceContext()

    @property
    def q_content(self) -> Tensor:
        """Queries before their rotation; ``q`` itself where nothing rotates."""
        return self.q if self.unrotated is None else self.unrotated.q

    @property
    def k_content(self) -> Tensor:
        """Keys before their rotation; ``k`` itself where nothing rotates."""
        return self.k if self.unrotated is None else self.unrotated.k

    def with_qk(self, q: Tensor, k: Tensor) -> Context:
        """The context with other queries and keys, whose content before rotation stays what it was."""
        return self._replace(q=q, k=k, unrotated=self.unrotated or Unrotated(self.q, self.k))


def softcapped(products: Tensor, softcap: float | None) -> Tensor:
    """softcap · tanh(products / softcap): dot products of queries and keys, times the scale, within ± softcap."""
    return products if softcap is None else (products / softcap).tanh() * softcap
