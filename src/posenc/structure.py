"""Structures: the form of what an encoding adds to logits or weights, so that backends need no length × length matrix.

A score or weight encoding returns them in its method ``fast_form(context)``, next to the definition; a test of the
conformance suite holds statement and definition together. All of them speak of queries i that are the last tokens of
keys j in the order of the sequence, at distance n = i − j. Every tensor may carry gradients. A bias of positions states
``of_distance`` instead, or `Network`.

A structure is one class: its formula and its tensors, and what each kind of backend asks of it (`Structure`). A tile
term computes it in blocks (``posenc.backends.tiled``, which maps the term's kind to its loop), a score_mod computes it
inside FlexAttention; each has a refusal in words for calls in which that is not exact.

Axes of size 1 are shared: batch | 1, heads | 1. Gradients arrive in the same shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # (score, batch, head, query, key) → score


class TileTerm(NamedTuple):
    """A structure as the tiled backend takes it: which of its terms, and what that reads."""

    kind: str  # one of ``posenc.backends.tiled.spec.TERMS``; "kind:kind of its bias" for a term with a bias inside
    tensors: dict[str, Tensor]  # that may have gradients
    fixed: dict[str, Tensor] | None = None  # that are no part of any derivative
    number: int = 0
    factor: float | None = None  # None: 1; a default of 1.0 would be a symbol under torch.compile(dynamic=True)


class TileFacts(NamedTuple):
    """What decides whether tiles can compute a structure exactly."""

    few_queries: bool  # as few as a decode step has
    aligned: bool  # positions are those of the indices
    num_kv_heads: int
    softmax: bool  # whether weights are softmax's, with or without a sink
    parts: Sequence[Structure]  # all structures of the call, in their order


class Visible(Protocol):
    """What a score_mod needs to know of visibility."""

    @property
    def mask(self) -> Tensor | None:
        """``(batch | 1, heads | 1, queries | 1, keys)`` bool."""

    @property
    def segments(self) -> tuple[Tensor, Tensor] | None:
        """Documents of queries and of keys."""


class Structure:
    """One known form of an encoding's contribution. Subclasses are frozen records of tensors."""

    description: ClassVar[str]  # a noun phrase, for `posenc.explain_backend`
    stage: ClassVar[int] = 2  # when a tile adds it: 0 and 1 read bare dot products; −1: not at all, it changes q and k
    adds_only: ClassVar[bool] = False  # whether it adds numbers that depend on no query's content

    def tile_term(self, bias_term: Callable[[Bias], TileTerm]) -> TileTerm:
        """The structure as a term of tiles; ``bias_term`` states a bias inside it."""
        raise NotImplementedError

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        """Why tiles cannot compute the structure in this call, in words that name the encoding; or None."""
        return None

    def inside_bias(self) -> Bias | None:
        """A bias of positions that the structure holds, which tiles must be able to have as well."""
        return None

    def row_factor(self) -> Tensor | None:
        """What all logits of a query are multiplied by, ``(batch | 1, heads | 1, queries)``, if that is all."""
        return None

    def sink_logits(self) -> Tensor | None:
        """Logits ``(heads,)`` that take weight and have no value, if the structure is softmax with such a sink."""
        return None

    def with_products(self, q: Tensor, k: Tensor, *, changed: bool, chained: bool) -> Structure:
        """The structure with its own tensors instead of dot products that a tile no longer has.

        Args:
            q, k: of the call.
            changed: whether a tile's dot products have been changed by the time this structure reads them.
            chained: whether queries have been carried through reflections.
        """
        return self

    def score_mod(self, queries: int, keys: int, visible: Visible) -> ScoreMod:
        """The structure inside FlexAttention's kernel."""
        raise TypeError(f"{type(self).__name__} has no score_mod")

    def flex_refusal(self, encoding: str, *, ordered: bool, sink: bool) -> str | None:
        """Why FlexAttention cannot compute the structure, or None.

        Args:
            encoding: the name of the encoding that states it.
            ordered: whether visibility is the causal order of indices, with or without hidden keys.
            sink: whether a sink takes weight.
        """
        return f"{encoding} is no term per key and no decay by gates"


@dataclass(frozen=True, eq=False)
class Column(Structure):
    """s_ij ← s_ij + values_j: one term per key."""

    values: Tensor  # (batch | 1, heads, keys)

    description = "a term per key"
    adds_only = True

    def tile_term(self, bias_term: Callable[[Bias], TileTerm]) -> TileTerm:
        return TileTerm("column", {"values": self.values})

    def flex_refusal(self, encoding: str, *, ordered: bool, sink: bool) -> str | None:
        return None

    def score_mod(self, queries: int, keys: int, visible: Visible) -> ScoreMod:
        values = self.values
        one_row, one_head = values.shape[0] == 1, values.shape[1] == 1

        def term(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + values[b * 0 if one_row else b, h * 0 if one_head else h, j]

        return term


@dataclass(frozen=True, eq=False)
class Decay(Structure):
    """s_ij ← s_ij + Σ gates_l over the keys l with j < l ≤ i that query i attends to."""

    gates: Tensor  # (batch | 1, heads, keys), not positive

    description = "forget gates"
    adds_only = True

    def tile_term(self, bias_term: Callable[[Bias], TileTerm]) -> TileTerm:
        return TileTerm("decay", {"gates": self.gates})

    def flex_refusal(self, encoding: str, *, ordered: bool, sink: bool) -> str | None:
        if sink:
            return "a sink sees what gates add to all keys of a query, which has no gradient there"
        return None if ordered else "a decay by gates needs the causal order of indices, and no mask per query"

    def score_mod(self, queries: int, keys: int, visible: Visible) -> ScoreMod:
        """C_i − C_j of running sums C; each sum is a pair of floats, whose parts are subtracted one by one."""
        of_queries, rest_of_queries, of_keys, rest_of_keys = gate_sums(self.gates, queries, visible)
        one_row, one_head = of_keys.shape[0] == 1, of_keys.shape[1] == 1

        def term(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            b, h = b * 0 if one_row else b, h * 0 if one_head else h
            rest = rest_of_queries[b, h, i] - rest_of_keys[b, h, j]
            return score + ((of_queries[b, h, i] - of_keys[b, h, j]) + rest)

        return term


@dataclass(frozen=True, eq=False)
class Vectors(Structure):
    """s_ij ← s_ij + scale · (q_i + shift) · r_n, and o_i ← o_i + Σ_j a_ij values_n, for vectors of the distance.

    r_n is row n − first of ``rows``; distances beyond the first or last row take that row. With ``weight``,
    r_n = weight_h · row: rows are then something that heads share, sinusoids for instance.
    """

    rows: Tensor  # (heads | 1, distances, width), or (1, distances, features) with weight
    first: int  # n of the first row; not positive
    content: Tensor | None = None  # queries that meet the rows, (batch, heads, queries, width); None: the call's q
    shift: Tensor | None = None  # (heads, width)
    weight: Tensor | None = None  # (heads, width, features)
    values: Tensor | None = None  # (distances, value_dim)

    description = "vectors of the distance"

    def tile_term(self, bias_term: Callable[[Bias], TileTerm]) -> TileTerm:
        optional = {"content": self.content, "shift": self.shift, "weight": self.weight, "values": self.values}
        tensors = {"rows": self.rows, **{name: tensor for name, tensor in optional.items() if tensor is not None}}
        return TileTerm("vectors", tensors, number=self.first)

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        if facts.aligned:
            return None
        return "positions are given: nothing is a function of the difference of two indices"

    def with_products(self, q: Tensor, k: Tensor, *, changed: bool, chained: bool) -> Vectors:
        if self.content is not None or not chained:
            return self
        return Vectors(self.rows, self.first, _widened(q), self.shift, self.weight, self.values)


@dataclass(frozen=True, eq=False)
class Counts(Structure):
    """s_ij ← s_ij + factor · z_i[p_ij], z_i = q_i · table: positions p that count gates from key j up to query i.

    p_ij = min(Σ_{j ≤ l ≤ i} sigmoid(scale · q_i · k_l), positions − 1); z between two positions in proportion.
    """

    table: Tensor  # (width, positions)
    factor: float
    queries: Tensor | None = None  # queries of the gates and z, (batch, heads, queries, width); None: the call's q
    keys: Tensor | None = None  # (batch, num_kv_heads, keys, width); None: the call's k

    description = "counts"
    stage = 1  # the gates read the bare products of q and k

    def tile_term(self, bias_term: Callable[[Bias], TileTerm]) -> TileTerm:
        optional = {"queries": self.queries, "keys": self.keys}
        tensors = {"table": self.table, **{name: tensor for name, tensor in optional.items() if tensor is not None}}
        return TileTerm("counts", tensors, factor=self.factor)

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        if self.keys is not None and self.keys.shape[1] != facts.num_kv_heads:
            return f"{encoding} counts with other key heads than the call's"
        return None

    def with_products(self, q: Tensor, k: Tensor, *, changed: bool, chained: bool) -> Counts:
        queries = _widened(q) if self.queries is None and chained else self.queries
        keys = _widened(k) if self.keys is None and changed else self.keys
        return Counts(self.table, self.factor, queries, keys)


@dataclass(frozen=True, eq=False)
class Factor(Structure):
    """s_ij ← values_i · s_ij, all that was added before included."""

    values: Tensor  # (batch | 1, heads | 1, queries)

    description = "a factor on the logits of a query"

    def row_factor(self) -> Tensor:
        return self.values

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        return f"{encoding} multiplies what is added to the scores before it"


class Range(NamedTuple):
    """Pairs in one range of distances, and the positions to which their queries and keys are rotated."""

    q_pos: Tensor  # (*batch, queries)
    k_pos: Tensor  # (*batch, keys)
    first: int | None  # least distance; None: any, keys after the query included
    last: int | None  # below this; None: any
    until: int | None = None  # only keys at positions below it


@dataclass(frozen=True, eq=False)
class Ranges(Structure):
    """s_ij ← s_ij with R(a_i) q_i · R(b_j) k_j instead of q_i · k_j; the range of a pair (i, j) decides a_i and b_j.

    The distance of two tokens is p_i − p_j, or counts chunks: floor(p_i / chunk) − floor(p_j / chunk). Ranges do not
    overlap. A key outside all ranges is hidden from the query.
    """

    parts: tuple[Range, ...]
    rotate: Callable[[Tensor, Tensor, Tensor | int | None], Tensor]  # x (batch, heads, tokens, width), positions, span
    chunk: int | None = None
    queries: Tensor | None = None  # instead of the call's q, (batch, heads, queries, width)
    keys: Tensor | None = None  # (batch, num_kv_heads, keys, width)
    spans: tuple[Tensor | int | None, Tensor | int | None] = (None, None)  # of queries and of keys, if turning asks

    description = "ranges of distance"

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        return f"{encoding} rotates queries and keys anew in each range of distances"

    def holds(self, part: Range, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """Which pairs of tokens at these positions a range has, bool ``(*batch, queries, keys)``."""
        if self.chunk is None:
            wide = torch.float64 if q_pos.is_floating_point() or k_pos.is_floating_point() else torch.int64
            wide = torch.float32 if wide == torch.float64 and q_pos.device.type == "mps" else wide
            apart = q_pos.to(wide).unsqueeze(-1) - k_pos.to(wide).unsqueeze(-2)
        else:
            of_queries, of_keys = (p.div(self.chunk, rounding_mode="floor") for p in (q_pos, k_pos))
            apart = of_queries.unsqueeze(-1) - of_keys.unsqueeze(-2)
        held = torch.ones_like(apart, dtype=torch.bool) if part.first is None else apart >= part.first
        if part.last is not None:
            held = held & (apart < part.last)
        return held if part.until is None else held & (k_pos < part.until).unsqueeze(-2)

    @property
    def complete(self) -> bool:
        """Whether every pair is in some range."""
        return self.parts[-1].last is None and all(part.until is None for part in self.parts)


@dataclass(frozen=True, eq=False)
class Reflections(Structure):
    """s_ij ← s_ij + scale · (q_i · H_i … H_{j+1} · k_j − q_i·k_j),  H_t = I − beta_t · w_t w_tᵀ: the call's q and k."""

    w: Tensor  # (batch, num_kv_heads, keys, width)
    beta: Tensor  # (batch, num_kv_heads, keys)

    description = "products of reflections"
    stage = -1

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        if sum(isinstance(part, Reflections) for part in facts.parts) > 1:
            return "two encodings reflect"
        return "the definition reflects few queries in fewer steps" if facts.few_queries else None


@dataclass(frozen=True, eq=False)
class Offsets(Structure):
    """s_ij ← s_ij + values_h[of_queries_i + of_keys_j]: a bias of differences of coordinates that lie on a grid."""

    values: Tensor  # (heads, entries)
    of_queries: Tensor  # int64 (queries,)
    of_keys: Tensor  # int64 (keys,)

    description = "a bias by differences of coordinates"

    def tile_term(self, bias_term: Callable[[Bias], TileTerm]) -> TileTerm:
        return TileTerm("offsets", {"values": self.values}, {"of_queries": self.of_queries, "of_keys": self.of_keys})


@dataclass(frozen=True, eq=False)
class LowRank(Structure):
    """s_ij ← s_ij + Σ_e left_ie · right_ej, ``right`` without a gradient."""

    left: Tensor  # (batch, heads, queries, entries)
    right: Tensor  # (entries, keys)

    description = "products of few numbers"

    def tile_term(self, bias_term: Callable[[Bias], TileTerm]) -> TileTerm:
        return TileTerm("lowrank", {"left": self.left, "right": self.right})


@dataclass(frozen=True, eq=False)
class Network(Structure):
    """s_ij ← s_ij + outer_h · relu(inner · x_ij + inner_bias) + outer_bias_h,  x_ij = by_distance_n · by_query_i."""

    by_distance: Tensor  # (queries + keys − 1,), at n = −(queries − 1) … keys − 1
    by_query: Tensor  # (queries,)
    inner: Tensor  # (units,)
    inner_bias: Tensor  # (units,)
    outer: Tensor  # (heads, units)
    outer_bias: Tensor  # (heads,)

    description = "a network of the distance"

    def tile_term(self, bias_term: Callable[[Bias], TileTerm]) -> TileTerm:
        tensors = {
            "by_distance": self.by_distance, "by_query": self.by_query, "inner": self.inner,
            "inner_bias": self.inner_bias, "outer": self.outer, "outer_bias": self.outer_bias,
        }  # fmt: skip
        return TileTerm("network", tensors)

    def score_mod(self, queries: int, keys: int, visible: Visible) -> ScoreMod:
        """The sum over the units written out: a compiler cannot lower a reduction inside a score_mod."""
        tensors = self.by_distance, self.by_query, self.inner, self.inner_bias, self.outer, self.outer_bias
        by_distance, by_query, inner, inner_bias, outer, outer_bias = (t.detach() for t in tensors)
        shift = torch.full((), keys - 1, device=by_query.device)
        units = inner.shape[0]

        def term(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            x = by_distance[i - j + shift] * by_query[i]
            total = outer_bias[h]
            for unit in range(units):
                total = total + outer[h, unit] * (inner[unit] * x + inner_bias[unit]).relu()
            return score + total

        return term


class Bias(Protocol):
    """A bias of positions, by what it states of itself: `posenc.encoding.BiasEncoding`."""

    def of_distance(self, distance: Tensor) -> Tensor | None:
        """``(heads, *distance.shape)``."""

    def network(self, queries: int, keys: int, *, like: Tensor) -> Network | None:
        """Of queries that are the last of the keys."""

    def offsets(self, q_pos: Tensor, k_pos: Tensor) -> Offsets | None:
        """Of given positions."""


@dataclass(frozen=True, eq=False)
class Kernel(Structure):
    """s_ij ← s_ij + (exp(b_ij) − 1) · p_ij, p the product of the call's q and k, times the scale and capped."""

    bias: Bias

    description = "a kernel on the products"
    stage = 0  # it acts on the bare products

    def tile_term(self, bias_term: Callable[[Bias], TileTerm]) -> TileTerm:
        inside = bias_term(self.bias)
        return TileTerm(f"kernel:{inside.kind}", _inside(inside.tensors), _inside(inside.fixed or {}))

    def inside_bias(self) -> Bias:
        return self.bias

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        if facts.few_queries:
            return "the definition takes few queries in fewer steps"
        if not facts.softmax:
            return f"{encoding} looks at scores, of which stick-breaking has some at a time"
        if any(isinstance(part, Reflections | Kernel) for part in facts.parts if part is not self):
            return f"{encoding} looks at products that another encoding changes"
        return None


@dataclass(frozen=True, eq=False)
class HeadMixing(Structure):
    """s_ij ← s_ij + b_ij + outer · f(inner · [s_ij; b_ij] + inner_bias) + outer_bias, across heads.

    s_ij has all that was added before; f(x) is x, and slope · x below 0.
    """

    bias: Bias
    inner: Tensor  # (units, 2 · heads)
    inner_bias: Tensor  # (units,)
    outer: Tensor  # (heads, units)
    outer_bias: Tensor  # (heads,)
    slope: float

    description = "a network across heads"

    def tile_term(self, bias_term: Callable[[Bias], TileTerm]) -> TileTerm:
        inside = bias_term(self.bias)
        network = {
            "inner": self.inner,
            "inner_bias": self.inner_bias,
            "outer": self.outer,
            "outer_bias": self.outer_bias,
        }
        tensors, fixed = {**network, **_inside(inside.tensors)}, _inside(inside.fixed or {})
        return TileTerm(f"bend:{inside.kind}", tensors, fixed, factor=self.slope)

    def inside_bias(self) -> Bias:
        return self.bias

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        if facts.few_queries:
            return "the definition takes few queries in fewer steps"
        if not facts.softmax:
            return f"{encoding} looks at scores, of which stick-breaking has some at a time"
        later = facts.parts[[part is self for part in facts.parts].index(True) :]
        if any(isinstance(part, Kernel) for part in later):
            return f"{encoding} looks at scores before a kernel that is to multiply the bare products"
        other_parts = [part for part in facts.parts if part is not self]
        if any(isinstance(part, Reflections | HeadMixing) for part in other_parts):
            return f"{encoding} looks at products that another encoding changes"
        if any(isinstance(part, Counts | Decay) for part in other_parts):
            return f"{encoding} looks at whole scores, of which gates leave out what softmax does not see"
        return None


@dataclass(frozen=True, eq=False)
class Sticks(Structure):
    """a_ij = sigmoid(s_ij) · Π (1 − sigmoid(s_il)) over visible keys l > j, instead of softmax."""

    attend_current: bool  # whether a query attends to its own key, n = 0
    remainder: Literal["drop", "own", "vector"]  # what gets the weight that is left
    vector: Tensor | None = None  # (heads, value_dim)

    description = "stick-breaking"

    def write_tile_weights(self, writer: TileWeights, encoding: str, value_dim: int) -> None:
        """Write the weights down for tiles; a ValueError unless the vector is as wide as the values."""
        if self.vector is not None and self.vector.shape[1] != value_dim:
            raise ValueError(f"value_dim of {encoding} is {self.vector.shape[1]}, but v has width {value_dim}")
        writer.sticks(self)


@dataclass(frozen=True, eq=False)
class Sink(Structure):
    """a_ij = exp(s_ij) / (exp(logits_h) + Σ_l exp(s_il)): softmax with a logit that takes weight and has no value."""

    logits: Tensor  # (heads,)

    description = "a sink"

    def sink_logits(self) -> Tensor:
        return self.logits

    def write_tile_weights(self, writer: TileWeights, encoding: str, value_dim: int) -> None:
        """Write the weights down for tiles."""
        writer.sink(self.logits)


class TileWeights(Protocol):
    """Where structures of weights write themselves down for tiles: a ``tiled.spec.SpecWriter``."""

    def sink(self, logits: Tensor) -> None: ...

    def sticks(self, sticks: Sticks) -> None: ...


class GateSums(NamedTuple):
    """Running sums of gates as pairs of float32 (float64 calls: of float64)."""

    of_queries: Tensor  # (batch | 1, heads, queries)
    rest_of_queries: Tensor
    of_keys: Tensor  # (batch | 1, heads, keys)
    rest_of_keys: Tensor


def gate_sums(gates: Tensor, queries: int, visible: Visible) -> GateSums:
    """Sums over each key and all keys of its document before it; for queries, the sum at their own key.

    Hidden keys forget nothing. Documents need not lie in one piece: keys are sorted by document for the sum.
    """
    keys, dtype = gates.shape[-1], gates.dtype
    wide = gates.double()
    if visible.mask is not None:
        wide = wide * visible.mask[:, :, 0]
    if visible.segments is None:
        sums = wide.cumsum(-1)
    else:
        order = visible.segments[1].argsort(dim=-1, stable=True).unsqueeze(1)  # (batch | 1, 1, keys)
        wide = wide.expand(max(len(wide), len(order)), -1, -1)
        order = order.expand(len(wide), wide.shape[1], -1)
        sums = torch.zeros_like(wide).scatter(-1, order, wide.gather(-1, order).cumsum(-1))
    own_key = torch.arange(keys - queries, keys, device=gates.device).clamp(min=0)
    of_queries = sums.detach()[..., own_key]
    near, near_keys = of_queries.to(dtype), sums.to(dtype)
    rest = (of_queries - near).to(dtype), (sums.detach() - near_keys.detach()).to(dtype)
    return GateSums(near, rest[0], near_keys, rest[1])


def _widened(x: Tensor) -> Tensor:
    """``x`` in float32 or better."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _inside(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The names of a bias inside another term."""
    return {f"of.{name}": tensor for name, tensor in tensors.items()}


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
