"""One call of attention, validated and sorted by hook point: what every backend receives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor

from posenc import positions as position
from posenc.context import SequenceContext, Unrotated
from posenc.dropout import Dropout, check_dropout
from posenc.encoding import (
    BiasEncoding,
    Context,
    Encoding,
    RotaryEncoding,
    ScoreEncoding,
    WeightEncoding,
    float64_if_supported,
)
from posenc.positions._counted import counted
from posenc.rotate import Spans, rotated, spans
from posenc.structure import Bias, Structure, TokenOrder
from posenc.token_states import token_states_of
from posenc.validate import (
    Causal,
    check_encodings,
    check_key_order,
    check_length,
    check_mask,
    check_order,
    check_scale,
    check_segments,
    check_softcap,
    check_tensors,
    check_tolerance,
    check_window,
    coordinates_of,
    fill_positions,
    is_plain,
    order_under,
    plain_axes,
    without_coordinates,
)
from posenc.visibility import VisibilityMask


class CallPositions:
    """Positions of queries and keys; default positions (keys 0 … n − 1, queries the last of them) come on demand.

    Most short calls never read them, and making them takes as long as the kernel.
    """

    def __init__(self, queries: int, keys: int, device: torch.device, positions: tuple[Tensor, Tensor] | None) -> None:
        self.queries, self.keys, self.device = queries, keys, device
        self._value = positions

    def read(self) -> tuple[Tensor, Tensor]:
        """Positions of queries ``(*batch, queries)`` and keys ``(*batch, keys)``; one tensor where equal."""
        if self._value is None:
            of_keys = counted(0, self.keys, self.device)
            same = self.queries == self.keys
            of_queries = of_keys if same else counted(self.keys - self.queries, self.keys, self.device)
            self._value = of_queries, of_keys
        return self._value

    def part(self, start: int, stop: int, seen: int, axis: int) -> CallPositions:
        """Positions of queries ``start … stop − 1`` and of keys 0 … seen − 1; tokens lie along ``axis``."""
        of_queries, of_keys = self.read()
        parts = of_queries.narrow(axis, start, stop - start), of_keys.narrow(axis, 0, seen)
        return CallPositions(stop - start, seen, self.device, parts)


class AttentionOptions(TypedDict, total=False):
    """The keywords that `posenc.attention`, `explain_backend`, the maps and the FlexAttention call share."""

    q_pos: Tensor | None
    k_pos: Tensor | None
    x: Tensor | None
    token_states: Sequence[Tensor | None] | None
    mask: Tensor | None
    segments: Tensor | tuple[Tensor, Tensor] | None
    causal: Causal | None
    scale: float | None
    length: int | None
    window: int | None
    tolerance: float
    softcap: float | None
    dropout: float


class StaticCall(NamedTuple):
    """The static part of a call, without tensors: hashable, and equal for all steps of a generation.

    Rotary encodings are not listed: they have acted on queries and keys before a backend receives the call.
    """

    bias: tuple[BiasEncoding, ...]
    score: tuple[ScoreEncoding, ...]
    weight: WeightEncoding | None
    causal: Causal
    scale: float
    aligned: bool  # positions are the default: keys 0 … n − 1, queries the last of them
    axes: int  # coordinates of a position
    window: int | None  # a query attends to keys less than this many tokens away
    tolerance: float  # weight of a row that may be left out; 0: what is below rounding
    softcap: float | None  # the dot products are capped to this


class AttentionCall(NamedTuple):
    """One call of attention, validated, with rotated queries and keys: a static part and the tensors. Immutable.

    `replace` gives a changed copy and takes the names of both parts; where only tensors change, `_replace` costs less.
    """

    static: StaticCall

    q: Tensor  # (batch, heads, queries, head_dim)
    k: Tensor  # (batch, num_kv_heads, keys, head_dim)
    v: Tensor  # (batch, num_kv_heads, keys, value_dim)
    positions: CallPositions
    score_states: tuple[Tensor | None, ...]  # what each score encoding keeps of the keys' tokens
    weight_state: Tensor | None
    mask: Tensor | None  # (batch | 1, heads | 1, queries | 1, keys) bool
    segments: tuple[Tensor, Tensor] | None  # of queries (batch | 1, queries) and keys (batch | 1, keys)
    unrotated: tuple[Tensor, Tensor] | None  # q and k before their rotation, where that changed them

    structures: tuple[Sequence[Structure] | None, ...] = ()  # of each score encoding, once asked (`with_structures`)
    dropout: Dropout | None = None  # on the weights
    spans: Spans | int | None = None  # tokens that rotations inside score encodings span, where these ask
    token_order: TokenOrder | None = None  # which tokens follow one another, where an encoding reads it

    def replace(self, **changes: Any) -> AttentionCall:
        """A copy with other values of some fields, static ones included."""
        static = {name: changes.pop(name) for name in _STATIC if name in changes}
        if static:
            changes["static"] = self.static._replace(**static)
        return self._replace(**changes)

    @property
    def bias(self) -> tuple[BiasEncoding, ...]:
        """Encodings that add to the logits."""
        return self.static.bias

    @property
    def score(self) -> tuple[ScoreEncoding, ...]:
        """Encodings that change the logits."""
        return self.static.score

    @property
    def score_with_states(self) -> zip[tuple[ScoreEncoding, Tensor | None]]:
        """Score encodings, each with its tokens' states."""
        return zip(self.static.score, self.score_states, strict=True)

    @property
    def weight(self) -> WeightEncoding | None:
        """What replaces softmax."""
        return self.static.weight

    @property
    def sink(self) -> Tensor | None:
        """Logits ``(heads,)`` that take weight and have no value, where a sink is all that changes softmax."""
        weights = None if self.static.weight is None else self.static.weight.fast_form()
        return None if weights is None else weights.sink_logits()

    @property
    def replaces_softmax(self) -> bool:
        """Whether weights are something else than softmax, with or without a sink."""
        return self.static.weight is not None and self.sink is None

    @property
    def causal(self) -> Causal:
        """The order in which keys are visible."""
        return self.static.causal

    @property
    def scale(self) -> float:
        """The factor on dot products."""
        return self.static.scale

    @property
    def aligned(self) -> bool:
        """Whether positions are the default."""
        return self.static.aligned

    @property
    def axes(self) -> int:
        """Coordinates of a position."""
        return self.static.axes

    @property
    def window(self) -> int | None:
        """A query attends to keys less than this many tokens away."""
        return self.static.window

    @property
    def tolerance(self) -> float:
        """Weight of a row that may be left out."""
        return self.static.tolerance

    @property
    def softcap(self) -> float | None:
        """What dot products are capped to."""
        return self.static.softcap

    @property
    def q_pos(self) -> Tensor:
        """Positions of queries, ``(*batch, queries)``."""
        return self.positions.read()[0]

    @property
    def k_pos(self) -> Tensor:
        """Positions of keys, ``(*batch, keys)``."""
        return self.positions.read()[1]

    @property
    def training(self) -> bool:
        """Whether a backward pass may follow."""
        if not torch.is_grad_enabled():
            return False
        if self.q.requires_grad or self.k.requires_grad or self.v.requires_grad:
            return True
        return any(p.requires_grad for bias in self.bias for p in bias.parameters())

    @property
    def masked(self) -> bool:
        """Whether visibility depends on more than the order of the indices."""
        return self.static.window is not None or not self.ordered

    @property
    def ordered(self) -> bool:
        """Whether the order of the indices, with or without a window, is all that hides keys."""
        if self.mask is not None or self.segments is not None or self.static.causal == "positions":
            return False
        return not any(encoding.scope.narrows for encoding in self.static.score)

    @property
    def visibility(self) -> VisibilityMask:
        """Which keys each query attends to."""
        causal, window = self.static.causal, self.static.window
        q_pos, k_pos = self.positions.read()
        if causal == "positions" and window is not None and (q_pos.is_floating_point() or k_pos.is_floating_point()):
            # A difference of float32 numbers that is rounded to the window hides a key that is visible.
            q_pos, k_pos = (p.to(float64_if_supported(p.device)) for p in (q_pos, k_pos))
        narrowed = tuple(encoding.visible for encoding in self.static.score if encoding.scope.narrows)
        return VisibilityMask(causal, window, self.mask, self.segments, q_pos, k_pos, narrowed)

    def visible(
        self, start: int = 0, stop: int | None = None, first: int = 0, last: int | None = None
    ) -> Tensor | None:
        """Which keys, of those from ``first`` to before ``last``, queries ``start … stop − 1`` may attend to.

        Returns:
            (batch | 1, heads | 1, rows, keys) bool; None: all.
        """
        if not self.masked and (self.causal is False or self.q.shape[2] == 1):  # one query is the newest key
            return None
        queries, keys = self.q.shape[2], self.k.shape[2]
        return self.visibility.rows(start, queries if stop is None else stop, queries, keys, first, last)

    def distance_row(self) -> Tensor | None:
        """All biases that are functions of the distance, summed: ``(heads, queries + keys − 1)``; None without any.

        Entries are distances queries − 1, … −(keys − 1) from a query to a key: queries are the last of the keys.
        """
        rows = [row for row in map(self.row_of, self.bias) if row is not None]
        return sum(rows[1:], rows[0]) if rows else None

    def row_of(self, bias: Bias) -> Tensor | None:
        """One bias by distance, the entries as in `distance_row`; None where it is not a function of distance."""
        queries, keys, dtype = self.q.shape[2], self.k.shape[2], score_dtype(self.q.dtype)
        apart = queries - 1 - torch.arange(queries + keys - 1, device=self.q.device)
        row = bias.of_distance(precise(apart, dtype))
        return None if row is None else row.to(dtype)

    def bias_of(self, start: int = 0, stop: int | None = None) -> Tensor | None:
        """The summed bias for queries ``start … stop − 1``, (batch | 1, heads, rows, keys); None if there is none."""
        if not self.static.bias:
            return None
        total: Tensor | None = None
        rows = self.q_pos[..., start:stop, :] if self.axes > 1 else self.q_pos[..., start:stop]
        for encoding in self.bias:
            q_pos, k_pos = (precise(p, self.q.dtype) for p in (rows, self.k_pos))
            term: Tensor = encoding(q_pos, k_pos).to(score_dtype(self.q.dtype))
            term = term if term.ndim == 4 else term.unsqueeze(0)
            total = term if total is None else total + term
        return total

    def widened(self) -> AttentionCall:
        """The call in the precision of scores, converted once.

        Encodings that read q and k in addition to the scores change what these give: their gradients may cancel, and
        have to meet before they are rounded to the dtype of the call.
        """
        unrotated = None if self.unrotated is None else (widen(self.unrotated[0]), widen(self.unrotated[1]))
        return self._replace(q=widen(self.q), k=widen(self.k), v=widen(self.v), unrotated=unrotated)

    def context(self, mask: Tensor | None, token_states: Tensor | None) -> Context:
        """The context of a score or weight encoding's `forward`, with queries, keys and values as they are here."""
        unrotated = None if self.unrotated is None else Unrotated(*self.unrotated)
        q_pos, k_pos = self.positions.read()
        sequence = SequenceContext(self.token_order, None, self.spans, self.static.causal == "positions")
        return Context(
            self.q, self.k, self.v, q_pos, k_pos, self.static.scale, mask, token_states, self.static.softcap, unrotated,
            sequence,
        )  # fmt: skip


def score_dtype(dtype: torch.dtype) -> torch.dtype:
    """The precision in which scores and weights live: float32 or better."""
    return torch.promote_types(dtype, torch.float32)


def widen(x: Tensor) -> Tensor:
    """``x`` in the precision of scores."""
    return x.to(score_dtype(x.dtype))


def precise(positions: Tensor, dtype: torch.dtype) -> Tensor:
    """Positions in float64 for a float64 problem, so that a bias computed from them is float64 as well."""
    return positions.double() if dtype == torch.float64 else positions


_STATIC = StaticCall._fields


def prepare_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Sequence[Encoding],
    *,
    q_pos: Tensor | None = None,
    k_pos: Tensor | None = None,
    x: Tensor | None = None,
    token_states: Sequence[Tensor | None] | None = None,
    mask: Tensor | None = None,
    segments: Tensor | tuple[Tensor, Tensor] | None = None,
    causal: Causal | None = None,
    scale: float | None = None,
    length: int | None = None,
    window: int | None = None,
    tolerance: float = 0.0,
    softcap: float | None = None,
    dropout: float = 0.0,
) -> AttentionCall:
    """Validate a call, fill in its defaults, rotate queries and keys; takes the arguments of `AttentionOptions`.

    Raises:
        ValueError: for anything that does not fit; the text names the argument.
    """
    check_tensors(q, k, v)
    check_encodings(encodings, q.shape[1], q.shape[2])
    axes = coordinates_of(encodings)
    if plain_axes(encodings, axes) and is_plain(q_pos, q, axes) and is_plain(k_pos, k, axes):
        causal = True if causal is None else causal
        if q_pos is None and k_pos is None:
            k_pos = torch.arange(k.shape[2], device=q.device)
            q_pos = k_pos[k.shape[2] - q.shape[2] :] if q.shape[2] <= k.shape[2] else k_pos
        q_pos, k_pos = (None if p is None else position.on_all_axes(p, axes) for p in (q_pos, k_pos))
    causal = order_under(causal, encodings, axes)
    check_order(q, k, causal)
    queries, keys, device = q.shape[2], k.shape[2], q.device
    if axes == 0 and causal != "positions":
        q_pos, k_pos = (without_coordinates(filled, t) for filled, t in ((q_pos, q), (k_pos, k)))
    filled = fill_positions(q, k, q_pos, k_pos, max(axes, 1))
    aligned, positions = filled is None, CallPositions(queries, keys, device, filled)
    empty = q.shape[0] == 0 or queries == 0  # checked like any other call, and nothing is computed
    remembered = token_states_of(encodings, x, token_states, k)
    mask, parts = check_mask(mask, q, k), check_segments(segments, q, k)
    spanned: Spans | int | None = check_length(length)
    unrotated = q, k
    if not empty and any(isinstance(e, RotaryEncoding) for e in encodings):
        q, k = rotated(encodings, q, k, *positions.read(), spanned, mask, parts)
    read = any(e.axes > 0 for e in encodings if not isinstance(e, RotaryEncoding))
    if not aligned and causal != "positions" and not read:  # by what is left to do
        aligned, axes, positions = True, 1, CallPositions(queries, keys, device, None)
    spanning = any(isinstance(e, ScoreEncoding) and e.length_dependent for e in encodings)
    if spanning and spanned is None and not empty:
        spanned = spans(positions.read()[1], mask, parts)
    scores = [(e, f) for e, f in zip(encodings, remembered, strict=True) if isinstance(e, ScoreEncoding)]
    weights = [(e, f) for e, f in zip(encodings, remembered, strict=True) if isinstance(e, WeightEncoding)]
    weight, weight_state = weights[0] if weights else (None, None)
    static = StaticCall(
        tuple(e for e in encodings if isinstance(e, BiasEncoding)),
        tuple(e for e, _ in scores),
        weight,
        causal,
        check_scale(scale, unrotated[0].shape[-1]),
        aligned,
        max(axes, 1),
        check_window(window),
        check_tolerance(tolerance),
        check_softcap(softcap),
    )
    call = AttentionCall(
        static,
        q,
        k,
        v,
        positions,
        tuple(f for _, f in scores),
        weight_state,
        mask,
        parts,
        None if q is unrotated[0] else unrotated,
        dropout=check_dropout(dropout),
        spans=spanned if spanning else None,
    )
    if causal == "positions" and not empty:
        check_key_order(call.score if weight is None else (*call.score, weight), call.visibility, queries, keys)
    if not empty and any(isinstance(e, ScoreEncoding) and e.reads.token_order for e in encodings):
        call = call.replace(token_order=call.visibility.token_order(queries, keys))
    return call


def with_structures(call: AttentionCall) -> AttentionCall:
    """The call with the structures of its score encodings, asked once."""
    if call.structures or not call.score:
        return call
    q, k, static = call.q, call.k, call.static
    counts = None
    if any(e.reads.key_counts for e in static.score):
        counts = call.visibility.counted(q.shape[2], k.shape[2])
    q_pos, k_pos = call.positions.read()
    unrotated = None if call.unrotated is None else Unrotated(*call.unrotated)
    sequence = SequenceContext(call.token_order, counts, call.spans)
    unmasked = Context(
        q, k, call.v, q_pos, k_pos, static.scale, softcap=static.softcap, unrotated=unrotated, sequence=sequence
    )
    future = static.causal is not True
    return call._replace(
        structures=tuple(
            e.fast_form(unmasked._replace(token_state=state), future=future) for e, state in call.score_with_states
        )
    )
