"""Structures: what an encoding may state about its scores and weights, so that a path can do without whole matrices.

A score or weight encoding states them in its method ``structure(context)``, next to the definition; a test of the
conformance suite holds statement and definition together. All of them speak of queries i that are the last tokens of
keys j in the order of the text, at distance n = i − j. Every tensor may carry gradients. A bias of positions states
``of_distance`` instead, or `Network`.

Axes of size 1 are shared: batch | 1, heads | 1. Gradients arrive in the same shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor


class Column(NamedTuple):
    """s_ij ← s_ij + values_j: one term per key."""

    values: Tensor  # (batch | 1, heads, keys)


class Decay(NamedTuple):
    """s_ij ← s_ij + Σ gates_l over the keys l with j < l ≤ i that query i sees."""

    gates: Tensor  # (batch | 1, heads, keys), not positive


class Vectors(NamedTuple):
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


class Counts(NamedTuple):
    """s_ij ← s_ij + factor · z_i[p_ij], z_i = q_i · table: positions p that count gates from key j up to query i.

    p_ij = min(Σ_{j ≤ l ≤ i} sigmoid(scale · q_i · k_l), positions − 1); z between two positions in proportion.
    """

    table: Tensor  # (width, positions)
    factor: float
    queries: Tensor | None = None  # what the gates and z see, (batch, heads, queries, width); None: the call's q
    keys: Tensor | None = None  # (batch, kv_heads, keys, width); None: the call's k


class Factor(NamedTuple):
    """s_ij ← values_i · s_ij, all that was added before included."""

    values: Tensor  # (batch | 1, heads | 1, queries)


class Range(NamedTuple):
    """Queries and keys some way apart, and the positions to which both are turned before they meet."""

    q_pos: Tensor  # (*batch, queries)
    k_pos: Tensor  # (*batch, keys)
    first: int | None  # least way apart; None: any, keys after the query too
    last: int | None  # below this; None: any
    until: int | None = None  # only keys at positions below it


class Ranges(NamedTuple):
    """s_ij ← what s_ij would be with R(a_i) q_i · R(b_j) k_j in the place of q_i · k_j, turned as their range says.

    Apart are two tokens by p_i − p_j, or by chunks of so many tokens: floor(p_i / chunk) − floor(p_j / chunk). Ranges
    do not overlap. A query does not see a key that is in none.
    """

    parts: tuple[Range, ...]
    turn: Callable[[Tensor, Tensor, Tensor | int | None], Tensor]  # x (batch, heads, tokens, width), positions, span
    chunk: int | None = None
    queries: Tensor | None = None  # in the place of the call's q, (batch, heads, queries, width)
    keys: Tensor | None = None  # (batch, kv_heads, keys, width)
    spans: tuple[Tensor | int | None, Tensor | int | None] = (None, None)  # of queries and of keys, if turning asks

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


class Reflections(NamedTuple):
    """s_ij ← s_ij + scale · (q_i · H_i … H_{j+1} · k_j − q_i·k_j),  H_t = I − beta_t · w_t w_tᵀ: the call's q and k."""

    w: Tensor  # (batch, kv_heads, keys, width)
    beta: Tensor  # (batch, kv_heads, keys)


class Offsets(NamedTuple):
    """s_ij ← s_ij + values_h[of_queries_i + of_keys_j]: a bias of differences of coordinates that lie on a grid."""

    values: Tensor  # (heads, entries)
    of_queries: Tensor  # int64 (queries,)
    of_keys: Tensor  # int64 (keys,)


class LowRank(NamedTuple):
    """s_ij ← s_ij + Σ_e left_ie · right_ej, ``right`` without a gradient."""

    left: Tensor  # (batch, heads, queries, entries)
    right: Tensor  # (entries, keys)


class Network(NamedTuple):
    """s_ij ← s_ij + outer_h · relu(inner · x_ij + inner_bias) + outer_bias_h,  x_ij = by_distance_n · by_query_i."""

    by_distance: Tensor  # (queries + keys − 1,), at n = −(queries − 1) … keys − 1
    by_query: Tensor  # (queries,)
    inner: Tensor  # (units,)
    inner_bias: Tensor  # (units,)
    outer: Tensor  # (heads, units)
    outer_bias: Tensor  # (heads,)


class Bias(Protocol):
    """A bias of positions, by what it states of itself: `posenc.encoding.BiasEncoding`."""

    def of_distance(self, distance: Tensor) -> Tensor | None:
        """``(heads, *distance.shape)``."""

    def network(self, queries: int, keys: int, *, like: Tensor) -> Network | None:
        """Of queries that are the last of the keys."""

    def offsets(self, q_pos: Tensor, k_pos: Tensor) -> Offsets | None:
        """Of given positions."""


class Kernel(NamedTuple):
    """s_ij ← s_ij + (exp(b_ij) − 1) · p_ij, p the product of the call's q and k, times the scale and capped."""

    bias: Bias


class Bend(NamedTuple):
    """s_ij ← s_ij + b_ij + outer · f(inner · [s_ij; b_ij] + inner_bias) + outer_bias, across heads.

    s_ij has all that was added before; f(x) is x, and slope · x below 0.
    """

    bias: Bias
    inner: Tensor  # (units, 2 · heads)
    inner_bias: Tensor  # (units,)
    outer: Tensor  # (heads, units)
    outer_bias: Tensor  # (heads,)
    slope: float


class Sticks(NamedTuple):
    """a_ij = sigmoid(s_ij) · Π (1 − sigmoid(s_il)) over the keys l > j that query i sees, in the place of softmax."""

    attend_current: bool  # whether a query sees its own key, n = 0
    remainder: Literal["drop", "own", "vector"]  # what gets the weight that is left
    vector: Tensor | None = None  # (heads, value_dim)


class Sink(NamedTuple):
    """a_ij = exp(s_ij) / (exp(logits_h) + Σ_l exp(s_il)): softmax with a logit that takes weight and has no value."""

    logits: Tensor  # (heads,)


Structure = (
    Column
    | Decay
    | Vectors
    | Counts
    | Factor
    | Ranges
    | Reflections
    | LowRank
    | Offsets
    | Network
    | Kernel
    | Bend
    | Sticks
    | Sink
)


class Text(NamedTuple):
    """How the tokens of a call follow one another, whatever a window hides."""

    used: Tensor | None  # bool (batch | 1, keys): seen by any query; None: all
    before: Tensor  # (batch | 1, keys): index of the token before each in its text; −1 where a text begins


def alone(keys: int, device: torch.device) -> Text:
    """One text, of which every token counts."""
    return Text(None, torch.arange(keys, device=device)[None] - 1)
