"""The five hook points of attention, one abstract class each: read this first.

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

Each hook point has its own signature, so each is an abstract class and a folder of that name. A class is a hook point
or a leaf; ``bias.distance.DistanceBias`` and ``bias.offset.OffsetBias`` are helper levels. ``forward`` is the
definition: dense, readable, in float32 or better. A method marked *Structure* says what a backend may exploit, or
returns None. Positions are ``(tokens,)`` or ``(batch, tokens)``, written ``(*batch, tokens)``; encodings with
``axes > 1`` take a last axis of coordinates. Nothing is kept between calls.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from torch import Tensor, nn

from posenc.context import Context as Context
from posenc.context import softcapped as softcapped
from posenc.dtypes import float64_if_supported as float64_if_supported
from posenc.dtypes import no_autocast as no_autocast
from posenc.factory_kwargs import check_names
from posenc.head_shares import HeadAxis as HeadAxis
from posenc.head_shares import HeadShare as HeadShare
from posenc.head_shares import keep_heads

if TYPE_CHECKING:  # structures are for backends: who imports an encoding does not wait for them
    from posenc.structure import DistanceNetwork, Lookup, Network, Offsets, Sink, Sticks, Structure

Table = tuple[Tensor, ...]  # what rotating tokens at some positions needs; a value of the call, never state


class Encoding(nn.Module):
    """Base class of all positional encodings. Subclass one of the five hook points, not this class.

    Constructors also take ``dtype`` and ``device`` where there are parameters. Class attributes tell models and
    `posenc compare` how to use it.
    """

    axes: int = 1  # coordinates of a position; 1: positions have no axis of coordinates; 0: positions are not read
    plain_positions: bool = False  # with several axes: whether plain text positions are allowed, equal on all axes
    causal_only: bool = False  # whether it is undefined for keys after the query
    lr_multiplier: float = 1.0  # on the learning rate of its parameters; 10 and more suit biases: Adam moves lr a step
    shared_by_layers: bool = True  # one instance for all layers; False: one per layer. As in the source
    table_bound: bool = False  # whether it is undefined at positions past its max_length

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Refuse keywords of other libraries and name the keyword used here; takes the arguments of `__init__`."""
        if kwargs:
            check_names(cls, list(kwargs))
        return super().__new__(cls)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        """Options of the constructor that follow from the training length in tokens, like T5's max_distance."""
        return {}

    def head_axes(self) -> dict[str, HeadAxis]:
        """Where each parameter holds something of each head, by the parameter's name; the others are of all heads."""
        return {}

    def heads(self, start: int, stop: int, *, num_heads: int | None = None) -> Self:
        """The encoding of query heads ``start`` … ``stop − 1`` alone, as tensor parallelism gives them to a rank.

        A new module with parameters of its own, copies of the part: slopes and other constants keep their values for
        these heads. Its state dict has the same names; `head_axes` says along which axis the parts of all ranks
        are joined. Parameters that are not named there are of all heads: each rank has a copy, and the gradient of the
        whole is the sum over the ranks, as is the gradient of ``x``. `posenc.distributed.HeadParallel` does the same
        with DTensors, sums included.

        Args:
            start, stop: query heads, whole groups where heads share keys, or part of a single group.
            num_heads: query heads of the whole model, needed by encodings that know their key heads alone.

        Raises:
            ValueError: for heads that are not there, groups that are cut, or an encoding in which heads speak to each
                other.

        >>> from posenc import ALiBi
        >>> ALiBi(12).heads(6, 12).slopes == ALiBi(12).slopes[6:]
        True
        """
        share = HeadShare.checked(self, start, stop, num_heads)
        part = copy.deepcopy(self)
        part._keep_heads(share)
        return part

    def _keep_heads(self, share: HeadShare) -> None:
        """Become the encoding of some heads. Overrides cut constants per head that are not parameters."""
        keep_heads(self, share)


class EmbeddingEncoding(Encoding):
    """Acts on token embeddings, once, before the projections to q, k and v."""

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Encode ``x`` (batch, tokens, dim) at ``positions`` (*batch, tokens); returns (batch, tokens, out_dim).

        Positions are counted from 0 by default, where tokens have one coordinate each.
        """
        raise NotImplementedError

    if TYPE_CHECKING:  # nn.Module types calls as Any
        __call__ = forward


class RotaryEncoding(Encoding):
    """Acts on queries and keys before their dot product; linear in each of them.

    Two kinds need more than a token's position. Where ``length_dependent`` is True, frequencies depend on how many
    tokens a sequence spans, and ``forward`` takes one more argument, ``length``: a declared number, or a
    pair of tensors ``(*batch, queries | 1)`` and ``(*batch, keys | 1)`` that `attention` computes. Where `cacheable` is
    False, keys rotated in one call are wrong in the next, so caches keep them unrotated.
    """

    length_dependent: bool = False
    composes_by_shift: bool = True  # whether R(p + n) = R(n) R(p), so that cached keys can be rotated further
    relative: bool = False  # whether q·k depends on differences of positions alone: learned frequencies then get their
    # gradients from an origin near the tokens, see `near_origin`

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate ``q`` (batch, heads, queries, head_dim) and ``k`` (batch, num_kv_heads, keys, head_dim)."""
        q_table = self.table(q_pos, like=q)
        k_table = q_table if k_pos is q_pos else self.table(k_pos, like=k)
        return self.rotate_queries(q, q_table), self.rotate(k, k_table)

    if TYPE_CHECKING:  # nn.Module types calls as Any; a length is for classes that depend on it

        def __call__(
            self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, length: int | tuple[Tensor, Tensor] | None = None
        ) -> tuple[Tensor, Tensor]: ...

    def cacheable(self, length: int | None = None) -> bool:
        """Whether, under this declared length, a token's rotation depends on its position alone."""
        return True

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """What rotating tokens at ``positions`` needs: compute it once per step and pass it to every layer.

        Args:
            positions: ``(*batch, tokens)``, integers (exact) or float32/float64.
            length: tokens that a length-dependent spectrum spans, one number or ``(*batch, tokens | 1)``; default
                the last of ``positions`` + 1, row by row. Others ignore it.
            like: a tensor whose device and precision (float64, else float32) the table takes; default: those of the
                positions.
        """
        raise NotImplementedError

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        """Rotate one tensor ``(batch, any heads, tokens, head_dim)``: keys, and queries if rotated alike."""
        raise NotImplementedError

    def rotate_queries(self, x: Tensor, table: Table) -> Tensor:
        """Rotate queries, where they are not rotated as keys are."""
        return self.rotate(x, table)


class BiasEncoding(Encoding):
    """Adds to the scores a term that depends only on positions."""

    num_heads: int

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """The bias ``(*batch, heads, queries, keys)``.

        Its precision is float64 where positions or parameters have it, else float32.
        """
        raise NotImplementedError

    if TYPE_CHECKING:  # nn.Module types calls as Any
        __call__ = forward

    def of_distance(self, distance: Tensor) -> Tensor | None:
        """Structure: the bias as a function of ``distance = p_key − p_query`` only.

        Returns ``(heads, *distance.shape)``, or None where the bias depends on more.
        """
        return None

    def distance_slopes(self, *, like: Tensor) -> Tensor | None:
        """Structure: slopes m_h ``(heads,)`` where the bias is −m_h · |distance|, or None.

        They are float32, without gradients, on the device of ``like``; such a bias states `of_distance` as well.
        """
        return None

    def lookup(self, queries: int, keys: int, *, like: Tensor) -> Lookup | None:
        """Structure: a table of which each distance has one entry, for queries that are the last of the keys, or None.

        On the device of ``like``, the table in the dtype of the parameters; such a bias states `of_distance` as well.
        """
        return None

    def distance_network(self) -> DistanceNetwork | None:
        """Structure: a small network of distance and query position, for queries that are the last of keys 0, 1, …"""
        return None

    def network(self, queries: int, keys: int, *, like: Tensor) -> Network | None:
        """`distance_network` of some lengths, in float64 if ``like`` or the parameters are float64, else float32."""
        found = self.distance_network()
        return None if found is None else found.of_lengths(queries, keys, like=like)

    def offsets(self, q_pos: Tensor, k_pos: Tensor) -> Offsets | None:
        """Structure: a table by coordinate differences, for positions ``(tokens, axes)`` whose values are known."""
        return None


class Reads(NamedTuple):
    """What a score or weight encoding reads of a call apart from the scores.

    Backends, caches and other encodings rely on it: what no encoding reads may be changed, dropped or never computed.
    """

    rotated: bool = True  # q and k themselves; False: they may be changed, as long as q·k stays what it is
    unrotated: bool = False  # `q_content` or `k_content`: caches then keep unrotated keys
    products: bool = False  # the dot products, which no other encoding's `absorb_into_qk` may have changed
    values: bool = False  # v
    token_order: bool = False  # `SequenceContext.token_order`: which token follows which
    key_order: bool = False  # which visible key lies before which, by index: it must be the order of the text
    own_key: bool = False  # what it kept of the query's own token, by index: queries must be the last of the keys
    key_counts: bool = False  # `SequenceContext.key_counts`: how many keys each query attends to, for `structure`


class Scope(NamedTuple):
    """How far a score encoding reaches beyond one query and the keys that are visible to it."""

    by_rows: bool = True  # False: the scores of one query depend on which others are in the call
    look_back: int = 0  # tokens before the oldest key of a window that are still read: caches keep them
    replaces: bool = False  # it replaces q·k: no rotation may be in the list, and it comes first
    narrows: bool = False  # it hides keys, by `visible`


class ScoreEncoding(Encoding):
    """Changes the scores, given queries, keys and what `token_state` kept of the tokens.

    ``reads`` declares what it reads and ``scope`` how far it reaches. ``length_dependent``: it rotates q or k by
    frequencies that depend on the length of a sequence, and gets `SequenceContext.row_lengths`.
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

    def token_state(self, x: Tensor) -> Tensor | None:
        """What later queries need of the layer's input ``x`` (batch, tokens, dim).

        Returns ``(batch, heads, tokens, ...)``, which a cache keeps with k and v, or None.
        """
        return None

    def structure(self, context: Context, *, future: bool) -> Sequence[Structure] | None:
        """Structures whose sum is what `forward` adds to the scores and `output` to the results; or None.

        Args:
            context: as for `forward`, but q, k and v keep their own precision and the mask is None: each structure
                says how hidden keys are left out.
            future: whether queries may attend to keys after them.
        """
        return None

    def absorb_into_qk(
        self, context: Context
    ) -> tuple[Tensor, Tensor, *tuple[BiasEncoding | ScoreEncoding, ...]] | None:
        """Structure: queries and keys to use instead of q and k, and encodings that add the rest; or None.

        All of `forward` is in the dot products of the former and in the latter: biases, and score encodings that take
        this one's place in the list and its tokens' states.
        The scale, a softcap and what other encodings add stay. ``context.mask`` may be None; `TokenOrder.used` says
        which tokens count.
        """
        return None

    def output(self, weights: Tensor, context: Context) -> Tensor | None:
        """A term ``(batch, heads, queries, value_dim)`` that is added to ``weights @ v``; or None."""
        return None


class WeightEncoding(Encoding):
    """Computes weights from scores, instead of softmax. ``reads`` as for `ScoreEncoding`."""

    reads: Reads = Reads()

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        """Weights ``(batch, heads, queries, keys)``: not negative, zero where masked, rows sum to at most 1."""
        raise NotImplementedError

    if TYPE_CHECKING:  # nn.Module types calls as Any
        __call__ = forward

    def structure(self) -> Sticks | Sink | None:
        """Structure: the kind of weights, `output` included; or None."""
        return None

    def output(self, weights: Tensor, context: Context) -> Tensor | None:
        """A term ``(batch, heads, queries, value_dim)`` for weight that no key got, added to the result; or None."""
        return None


HOOK_POINTS: dict[str, type[Encoding]] = {
    "embedding": EmbeddingEncoding,
    "rotary": RotaryEncoding,
    "bias": BiasEncoding,
    "score": ScoreEncoding,
    "weight": WeightEncoding,
}


def hook_point_of(encoding: Encoding) -> str:
    """The name of the hook point where an encoding acts, which is also its folder."""
    for name, hook_point in HOOK_POINTS.items():
        if isinstance(encoding, hook_point):
            return name
    bases = ", ".join(base.__name__ for base in HOOK_POINTS.values())
    raise ValueError(f"{type(encoding).__name__} is no encoding: subclass one of {bases}")
