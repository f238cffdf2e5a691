"""The five places of attention where a positional encoding acts: read this first.

    tokens x ── EmbeddingEncoding   x_t  ← x_t + e(p_t)            once, before the projections
                │
                q, k, v = W x
                │
                RotaryEncoding      q, k ← R(p) q, R(p) k
                │
                s = q·k · scale
                BiasEncoding        s_ij ← s_ij + b_h(p_i, p_j)
                ScoreEncoding       s_i· ← f(s_i·; q, k, tokens)
                WeightEncoding      a_i· ← w(s_i·)                 instead of softmax
                │
                o = a v

Each place has a signature of its own, so each is an abstract class and a folder of that name. A class is a place or a
leaf; ``bias.distance.DistanceBias`` and ``bias.offset.OffsetBias`` are helper levels. ``forward`` is the definition:
dense, readable, in float32 or better. A *structure* method says what a fast path may exploit, or returns None.
Positions are ``(tokens,)`` or ``(batch, tokens)``, written ``(*batch, tokens)``; encodings with ``axes > 1`` take a
last axis of coordinates. Nothing is kept between calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch import Tensor, nn

from posenc.context import Context as Context
from posenc.context import softcapped as softcapped
from posenc.factory_kwargs import check_names
from posenc.precision import own_precision as own_precision
from posenc.precision import widest as widest
from posenc.structure import Network, Offsets, Sink, Sticks, Structure

Table = tuple[Tensor, ...]  # what the rotation of given positions needs; a value of the call, never state


class Encoding(nn.Module):
    """Anything that tells attention where tokens are. Subclass one of the five places, not this.

    Constructors also take ``dtype`` and ``device``. How it is trained its class says: to `posenc compare` as well.
    """

    axes: int = 1  # coordinates of a position; 1: positions have no axis of coordinates; 0: positions are not read
    plain_positions: bool = False  # with several coordinates: whether positions of one stand for equal ones, as of text
    causal_only: bool = False  # whether it has no meaning for keys after the query
    lr_multiplier: float = 1.0  # on the learning rate of its parameters; 10 and more suit biases: Adam moves lr a step
    shared_by_layers: bool = True  # one instance serves all layers; False: each has its own. As the source has it
    table_bound: bool = False  # whether it is undefined at positions past its max_length

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Refuse keywords of other libraries by the name that they have here; arguments are `__init__`'s."""
        if kwargs:
            check_names(cls, list(kwargs))
        return super().__new__(cls)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        """Options of the constructor that follow the trained length, in tokens, like T5's max_distance."""
        return {}


class EmbeddingEncoding(Encoding):
    """Acts on token embeddings, once, before the projections to q, k and v."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Encode ``x`` (batch, tokens, dim) at ``positions`` (*batch, tokens); returns (batch, tokens, out_dim)."""
        raise NotImplementedError

    if TYPE_CHECKING:  # nn.Module types calls as Any
        __call__ = forward


class RotaryEncoding(Encoding):
    """Acts on queries and keys, before their product; linear in each of them.

    Two kinds need more than a token's position. Where ``length_dependent`` is True, frequencies depend on how many
    tokens a row spans, and ``forward`` takes one more argument, ``length``: a number that the caller declares, or a
    pair of tensors ``(*batch, queries | 1)`` and ``(*batch, keys | 1)`` that `attention` finds. Where `fixed` is
    False, rotated keys of one call do not serve the next, so caches keep them as they were.

    Where q and k are also scaled for one another, by what `reach` says, ``forward`` is `rotate_only` and then `decay`.
    In a list, the scaling acts after all rotations, as nothing may stand between the factors of a query and of a key.
    """

    length_dependent: bool = False
    moves: bool = True  # whether R(p + n) = R(n) R(p), so that rotated keys can be turned on
    carries: bool = False  # whether a layer changes its table for the next one, which only some models hand on

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate ``q`` (batch, heads, queries, head_dim) and ``k`` (batch, num_kv_heads, keys, head_dim)."""
        of_queries = self.table(q_pos, like=q)
        of_keys = of_queries if k_pos is q_pos else self.table(k_pos, like=k)
        return self.rotate_queries(q, of_queries), self.rotate(k, of_keys)

    if TYPE_CHECKING:  # nn.Module types calls as Any; a length is for classes that depend on it

        def __call__(
            self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, length: int | tuple[Tensor, Tensor] | None = None
        ) -> tuple[Tensor, Tensor]: ...

    def fixed(self, length: int | None = None) -> bool:
        """Whether, under this declared length, a token's rotation depends on its position alone."""
        return True

    def reach(self, dtype: torch.dtype) -> int | None:
        """Tokens that the queries of one call may span where q and k are scaled for one another; None: any number."""
        return None

    def rotate_only(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """`forward` without the scaling of q and k for one another, where there is such a thing."""
        raise NotImplementedError

    def decay(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """The scaling of q and k for one another without their rotation, where there is such a thing."""
        raise NotImplementedError

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """What rotating tokens at ``positions`` needs: make it once a step, hand it to every layer.

        Args:
            positions: ``(*batch, tokens)``, integers (exact) or float32/float64.
            length: tokens that a length-dependent spectrum spans, one number or ``(*batch, tokens | 1)``; default
                the last of ``positions`` + 1, row by row. Others ignore it.
            like: a tensor whose device and precision (float64, else float32) it takes; default: what it is made of.
        """
        raise NotImplementedError

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        """Rotate one tensor ``(batch, any heads, tokens, head_dim)``: keys, and queries where these turn alike."""
        raise NotImplementedError

    def rotate_queries(self, x: Tensor, table: Table) -> Tensor:
        """Rotate queries, where these do not turn as keys do."""
        return self.rotate(x, table)


class BiasEncoding(Encoding):
    """Adds to the scores a term that depends on positions alone."""

    num_heads: int

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """The bias ``(*batch, heads, queries, keys)`` for given positions.

        Its precision: float64 where positions or parameters have it, else float32.
        """
        raise NotImplementedError

    if TYPE_CHECKING:  # nn.Module types calls as Any
        __call__ = forward

    def of_distance(self, distance: Tensor) -> Tensor | None:
        """Structure: the bias as a function of ``distance = p_key − p_query`` alone.

        Returns ``(heads, *distance.shape)``, or None where the bias is no such function.
        """
        return None

    def network(self, queries: int, keys: int, *, like: Tensor) -> Network | None:
        """Structure: a small network of distance and query position, for queries that are the last of keys 0, 1, ….

        The statement takes the device of ``like``, and float64 if it has that, else float32.
        """
        return None

    def offsets(self, q_pos: Tensor, k_pos: Tensor) -> Offsets | None:
        """Structure: numbers by differences of coordinates, for positions (tokens, axes) that may be looked at."""
        return None


class Reads(NamedTuple):
    """What a score or weight encoding reads of a call, beside the scores themselves.

    Backends, caches and other encodings go by it: what nobody reads may be changed, thrown away or never made.
    """

    rotated: bool = True  # numbers of q and k themselves; False: it may stand beside rotations that scale q for k
    unrotated: bool = False  # `q_content` or `k_content`: caches keep keys before their rotation
    products: bool = False  # the dot products, which no `absorb_into_qk` may have changed
    values: bool = False  # v
    token_order: bool = False  # `SequenceContext.token_order`: which token follows which
    key_counts: bool = False  # `SequenceContext.key_counts`: how many keys each query attends to, for `structure`


class Scope(NamedTuple):
    """How far a score encoding reaches beyond one query and the keys that are visible to it."""

    by_rows: bool = True  # False: the scores of one query depend on which others are in the call
    look_back: int = 0  # tokens before the oldest key of a window that are read all the same: caches keep them
    replaces: bool = False  # it puts others in the place of q·k: no rotation beside it, and it comes first
    narrows: bool = False  # it hides keys, by `visible`


class ScoreEncoding(Encoding):
    """Changes the scores, given queries, keys and whatever `remember` kept of the tokens.

    ``reads`` declares what it reads, ``scope`` how far it reaches; ``length_dependent``: it rotates q or k by
    frequencies that span a row, and gets `spans`.
    """

    reads: Reads = Reads()
    scope: Scope = Scope()
    length_dependent: bool = False

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        """New scores ``(batch, heads, queries, keys)``; masked entries may hold any finite number."""
        raise NotImplementedError

    if TYPE_CHECKING:  # nn.Module types calls as Any
        __call__ = forward

    def visible(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """The keys that an encoding which ``narrows`` leaves to each query, bool ``(*batch, queries, keys)``."""
        raise NotImplementedError

    def remember(self, x: Tensor) -> Tensor | None:
        """What must be kept of the layer's input ``x`` (batch, tokens, dim) for later queries.

        Returns ``(batch, heads, tokens, ...)``, which a cache keeps beside k and v, or None.
        """
        return None

    def structure(self, context: Context, *, future: bool) -> Sequence[Structure] | None:
        """Structure: what `forward` adds to the scores, and `output` to the results, as a sum of known kinds; or None.

        Args:
            context: as for `forward`, but q, k and v have their own precision and the mask is None: what is hidden
                counts for nothing, as each kind says.
            future: whether queries may see keys after them.
        """
        return None

    def absorb_into_qk(self, context: Context) -> tuple[Tensor, Tensor] | None:
        """Structure: queries and keys in whose product `forward` is contained whole, in the place of q and k; or None.

        The scale, a softcap and what other encodings add stay. ``context.mask`` may be None; `TokenOrder.used` says
        which tokens count.
        """
        return None

    def extra_biases(self) -> Sequence[BiasEncoding]:
        """Structure: biases that `forward` adds beside the products of what `absorb_into_qk` gives."""
        return ()

    def output(self, weights: Tensor, context: Context) -> Tensor | None:
        """What the weights read beside v, ``(batch, heads, queries, value_dim)``, added to ``weights @ v``; or None."""
        return None


class WeightEncoding(Encoding):
    """Turns scores into weights in the place of softmax. ``reads`` as for `ScoreEncoding`."""

    reads: Reads = Reads()

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        """Weights ``(batch, heads, queries, keys)``: not negative, zero where masked, rows sum to at most 1."""
        raise NotImplementedError

    if TYPE_CHECKING:  # nn.Module types calls as Any
        __call__ = forward

    def structure(self) -> Sticks | Sink | None:
        """Structure: weights of a known kind, with `output`; or None."""
        return None

    def output(self, weights: Tensor, context: Context) -> Tensor | None:
        """What takes the place of weight that was not given, ``(batch, heads, queries, value_dim)``; or None."""
        return None


PLACES: dict[str, type[Encoding]] = {
    "embedding": EmbeddingEncoding,
    "rotary": RotaryEncoding,
    "bias": BiasEncoding,
    "score": ScoreEncoding,
    "weight": WeightEncoding,
}


def place_of(encoding: Encoding) -> str:
    """The name of the place where an encoding acts, which is also its folder."""
    for name, place in PLACES.items():
        if isinstance(encoding, place):
            return name
    raise ValueError(
        f"{type(encoding).__name__} is no encoding: subclass one of {', '.join(c.__name__ for c in PLACES.values())}"
    )
