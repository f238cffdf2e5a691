"""One call of attention, validated and sorted by hook point: what every backend receives."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor

from posenc.context import SequenceContext, Unrotated
from posenc.dropout import Dropout, check_dropout
from posenc.dtypes import float32_or_better, float64_if_supported, widened
from posenc.encoding import (
    BiasEncoding,
    Context,
    Encoding,
    RotaryEncoding,
    ScoreEncoding,
    WeightEncoding,
)
from posenc.positions.checking import RESTARTS, default_positions, edges_of
from posenc.rotate import RowLengths, rotated, row_lengths
from posenc.structure import Bias, Structure, TokenOrder
from posenc.structure.lookup import all_distances
from posenc.tracing import stand_ins, tracing
from posenc.validate import (
    Causal,
    axes_of,
    causal_order,
    check_encodings,
    check_key_order,
    check_length,
    check_mask,
    check_order,
    check_positions,
    check_scale,
    check_segments,
    check_softcap,
    check_tensors,
    check_tolerance,
    check_window,
    plain_positions,
    token_states_of,
    without_coordinates,
)
from posenc.visibility import VisibilityMask


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


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call of attention, validated, with rotated queries and keys. Immutable: `replace` gives a changed copy.

    Rotary encodings are not listed: they have acted on queries and keys before a backend receives the call.
    """

    q: Tensor  # (batch, heads, queries, head_dim)
    k: Tensor  # (batch, num_kv_heads, keys, head_dim)
    v: Tensor  # (batch, num_kv_heads, keys, value_dim)
    bias: tuple[BiasEncoding, ...]
    score: tuple[ScoreEncoding, ...]
    weight: WeightEncoding | None  # what replaces softmax
    score_states: tuple[Tensor | None, ...]  # what each score encoding keeps of the keys' tokens
    weight_state: Tensor | None
    causal: Causal
    scale: float
    positions: tuple[Tensor, Tensor] | None  # of queries and keys; None: nobody reads any
    aligned: bool  # positions are the default, keys 0 … n − 1 and queries the last of them, or tell no more than it
    axes: int = 1  # coordinates of a position
    mask: Tensor | None = None  # (batch | 1, heads | 1, queries | 1, keys) bool
    segments: tuple[Tensor, Tensor] | None = None  # of queries (batch | 1, queries) and keys (batch | 1, keys)
    window: int | None = None  # a query attends to keys less than this many tokens away
    tolerance: float = 0.0  # weight of a row that may be left out; 0: what is below rounding
    softcap: float | None = None  # the dot products are capped to this
    dropout: Dropout | None = None  # on the weights
    unrotated: tuple[Tensor, Tensor] | None = None  # q and k before their rotation, where that changed them
    structures: tuple[Sequence[Structure] | None, ...] = ()  # of each score encoding, once asked (`with_structures`)
    row_lengths: RowLengths | int | None = None  # what rotations inside score encodings span, where these ask
    token_order: TokenOrder | None = None  # which tokens follow one another, where an encoding reads it

    def replace(self, **changes: Any) -> AttentionCall:
        """A copy with other values of some fields."""
        return dataclasses.replace(self, **changes)

    @property
    def score_with_states(self) -> zip[tuple[ScoreEncoding, Tensor | None]]:
        """Score encodings, each with its tokens' states."""
        return zip(self.score, self.score_states, strict=True)

    @property
    def sink(self) -> Tensor | None:
        """Logits ``(heads,)`` that take weight and have no value, where a sink is all that changes softmax."""
        weights = None if self.weight is None else self.weight.structure()
        return None if weights is None else weights.sink_logits()

    @property
    def replaces_softmax(self) -> bool:
        """Whether weights are something else than softmax, with or without a sink."""
        return self.weight is not None and self.sink is None

    @property
    def q_pos(self) -> Tensor:
        """Positions of queries, ``(*batch, queries)``."""
        return self._both_positions[0]

    @property
    def k_pos(self) -> Tensor:
        """Positions of keys, ``(*batch, keys)``."""
        return self._both_positions[1]

    @property
    def _both_positions(self) -> tuple[Tensor, Tensor]:
        """Of queries and keys; default ones are made when they are read, which on a GPU is rare, and kept."""
        if self.positions is not None:
            return self.positions
        if tracing():
            return default_pair(self.q, self.k)
        kept: dict[str, tuple[Tensor, Tensor]] = vars(self)
        if "_default_positions" not in kept:
            kept["_default_positions"] = default_pair(self.q, self.k)
        return kept["_default_positions"]

    @property
    def bias_positions(self) -> tuple[Tensor, Tensor]:
        """Positions of queries and keys as biases take them: in a float64 call a bias is to be float64 as well."""
        q_pos, k_pos = self._both_positions
        return (q_pos.double(), k_pos.double()) if self.q.dtype == torch.float64 else (q_pos, k_pos)

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
        return self.window is not None or not self.ordered

    @property
    def ordered(self) -> bool:
        """Whether the order of the indices, with or without a window, is all that hides keys."""
        if self.mask is not None or self.segments is not None or self.causal == "positions":
            return False
        return len(self.score) == 0 or all(not encoding.scope.narrows for encoding in self.score)

    @property
    def mask_alone_hides(self) -> bool:
        """Whether nothing but the mask hides keys from a single query, which is the newest token of the keys."""
        if self.window is not None or self.segments is not None or self.causal == "positions":
            return False
        return not any(encoding.scope.narrows for encoding in self.score)

    @property
    def visibility(self) -> VisibilityMask:
        """Which keys each query attends to."""
        causal, window = self.causal, self.window
        q_pos, k_pos = self._both_positions
        if causal == "positions" and window is not None and (q_pos.is_floating_point() or k_pos.is_floating_point()):
            # A difference of float32 numbers that is rounded to the window hides a key that is visible.
            q_pos, k_pos = (p.to(float64_if_supported(p.device)) for p in (q_pos, k_pos))
        narrowed = tuple(encoding.visible for encoding in self.score if encoding.scope.narrows)
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
        if queries == 1 and self.mask is not None and self.mask_alone_hides:
            return self.mask[..., first:last]
        return self.visibility.rows(start, queries if stop is None else stop, queries, keys, first, last)

    def distance_row(self) -> Tensor | None:
        """All biases that are functions of the distance, summed: ``(heads, queries + keys − 1)``; None without any.

        Entries are distances queries − 1, … −(keys − 1) from a query to a key: queries are the last of the keys.
        """
        rows = [row for row in self.rows if row is not None]
        return sum(rows[1:], rows[0]) if rows else None

    @property
    def rows(self) -> tuple[Tensor | None, ...]:
        """Of each bias its row by distance; whether there is one is asked more than once, so the call keeps them."""
        if tracing():  # a compiler finds what is computed twice
            return tuple(map(self.row_of, self.bias))
        kept: dict[str, tuple[Tensor | None, ...]] = vars(self)
        if "_rows" not in kept:
            kept["_rows"] = tuple(map(self.row_of, self.bias))
        return kept["_rows"]

    def row_of(self, bias: Bias) -> Tensor | None:
        """One bias by distance, the entries as in `distance_row`; None where it is not a function of distance."""
        queries, keys, dtype = self.q.shape[2], self.k.shape[2], float32_or_better(self.q.dtype)
        apart = all_distances(queries, keys, self.q.device)
        row = bias.of_distance(apart.double() if dtype == torch.float64 else apart)
        return None if row is None else row.to(dtype)

    def bias_of(self, start: int = 0, stop: int | None = None) -> Tensor | None:
        """The summed bias for queries ``start … stop − 1``, (batch | 1, heads, rows, keys); None if there is none."""
        if not self.bias:
            return None
        q_pos, k_pos = self.bias_positions
        q_pos = q_pos[..., start:stop, :] if self.axes > 1 else q_pos[..., start:stop]
        dtype, total = float32_or_better(self.q.dtype), None
        for encoding in self.bias:
            term: Tensor = encoding(q_pos, k_pos).to(dtype)
            term = term if term.ndim == 4 else term.unsqueeze(0)
            total = term if total is None else total + term
        return total

    def widened(self) -> AttentionCall:
        """The call in the precision of scores, converted once.

        Encodings that read q and k in addition to the scores change what these give: their gradients may cancel, and
        have to meet before they are rounded to the dtype of the call.
        """
        unrotated = None if self.unrotated is None else (widened(self.unrotated[0]), widened(self.unrotated[1]))
        return self.replace(q=widened(self.q), k=widened(self.k), v=widened(self.v), unrotated=unrotated)

    def context(self, mask: Tensor | None, token_state: Tensor | None) -> Context:
        """The context of a score or weight encoding's `forward`, with queries, keys and values as they are here."""
        unrotated = None if self.unrotated is None else Unrotated(*self.unrotated)
        q_pos, k_pos = self._both_positions
        sequence = SequenceContext(self.token_order, None, self.row_lengths, self.causal == "positions")
        return Context(
            self.q, self.k, self.v, q_pos, k_pos, self.scale, mask, token_state, self.softcap, unrotated, sequence
        )


def default_pair(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Default positions: keys 0 … n − 1, queries the last of them; one tensor where there are as many."""
    queries, keys = q.shape[2], k.shape[2]
    k_pos = default_positions(keys, k.device)
    if queries == keys:
        return k_pos, k_pos
    return default_positions(queries, k.device, keys - queries), k_pos


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
        ValueError: for anything that does not fit; the message names the argument.
    """
    check_tensors(q, k, v)
    axes = 0
    if encodings:
        check_encodings(encodings, q.shape[1], q.shape[2])
        axes = axes_of(encodings)
    if axes > 1:
        q_pos, k_pos, causal = plain_positions(encodings, q, k, q_pos, k_pos, causal, axes)
    causal = causal_order(causal, encodings, axes)
    if causal is True and q.shape[2] > k.shape[2]:
        check_order(q, k, causal)
    if axes == 0 and causal != "positions" and not (q_pos is None and k_pos is None):
        q_pos, k_pos = without_coordinates(q_pos, q), without_coordinates(k_pos, k)
    positions = None
    if axes > 1 or q_pos is not None or k_pos is not None:
        positions = check_positions(q, k, q_pos, k_pos, max(axes, 1))
    states: Sequence[Tensor | None] = [None] * len(encodings)
    if x is not None or token_states is not None:
        states = token_states_of(encodings, x, token_states, k)
    call = AttentionCall(
        q, k, v, *_by_hook_point(encodings, states), causal,
        float(q.shape[-1] ** -0.5) if scale is None else check_scale(scale, q.shape[-1]),
        positions, positions is None, max(axes, 1),
        None if mask is None else check_mask(mask, q, k),
        None if segments is None else check_segments(segments, q, k),
        None if window is None else check_window(window),
        tolerance if isinstance(tolerance, float) and tolerance == 0.0 else check_tolerance(tolerance),
        None if softcap is None else check_softcap(softcap),
        None if isinstance(dropout, float) and dropout == 0.0 else check_dropout(dropout),
    )  # fmt: skip
    length = None if length is None else check_length(length)
    if q.shape[0] == 0 or q.shape[2] == 0 or (not encodings and positions is None):
        return call  # an empty call is checked like any other, and nothing is computed
    return _with_positions(call, encodings, length)


def _by_hook_point(
    encodings: Sequence[Encoding], states: Sequence[Tensor | None]
) -> tuple[
    tuple[BiasEncoding, ...], tuple[ScoreEncoding, ...], WeightEncoding | None, tuple[Tensor | None, ...], Tensor | None
]:
    """Biases, score encodings and what replaces softmax; the states of the score encodings and of the last."""
    bias: list[BiasEncoding] = []
    score: list[ScoreEncoding] = []
    score_states: list[Tensor | None] = []
    weight, weight_state = None, None
    for encoding, state in zip(encodings, states, strict=True):
        if isinstance(encoding, BiasEncoding):
            bias.append(encoding)
        elif isinstance(encoding, ScoreEncoding):
            score.append(encoding)
            score_states.append(state)
        elif isinstance(encoding, WeightEncoding):
            weight, weight_state = encoding, state
    return tuple(bias), tuple(score), weight, tuple(score_states), weight_state


def _with_positions(call: AttentionCall, encodings: Sequence[Encoding], length: int | None) -> AttentionCall:
    """What positions tell: q and k rotated, the lengths that score encodings span, which tokens follow one another."""
    q, k, positions = call.q, call.k, call.positions
    changes: dict[str, Any] = {}
    rotates, reads, spanning, order = False, call.causal == "positions", False, False
    for encoding in encodings:
        if isinstance(encoding, RotaryEncoding):
            rotates = True
        else:
            reads = reads or encoding.axes > 0
            spanning = spanning or (isinstance(encoding, ScoreEncoding) and encoding.length_dependent)
            order = order or (isinstance(encoding, ScoreEncoding) and encoding.reads.token_order)
    if positions is None and (rotates or spanning):
        positions = default_pair(q, k)
    if rotates and positions is not None:
        q, k = rotated(encodings, q, k, *positions, length, call.mask, call.segments)
        if q is not call.q:
            changes = {"q": q, "k": k, "unrotated": (call.q, call.k)}
    if spanning and positions is not None:
        changes["row_lengths"] = row_lengths(positions[1], call.mask, call.segments) if length is None else length
    if not reads or _distances_by_index(call, encodings):
        # Nothing else reads given positions, or no more than indices tell: a call by index, which more backends serve.
        changes |= {"positions": None, "aligned": True, "axes": 1}
    else:
        changes["positions"] = positions
    call = call.replace(**changes)
    if call.causal == "positions":
        readers: list[ScoreEncoding | WeightEncoding] = [*call.score, *([] if call.weight is None else [call.weight])]
        check_key_order(readers, call.visibility, q.shape[2], k.shape[2])
    if order:
        call = call.replace(token_order=call.visibility.token_order(q.shape[2], k.shape[2]))
    return call


def _distances_by_index(call: AttentionCall, encodings: Sequence[Encoding]) -> bool:
    """Whether distances between visible tokens are those of their indices, and nothing but a rotation reads more.

    So it is in packed documents whose positions `from_segments` counted, each from 0: no query sees another document.
    """
    if call.positions is None or call.segments is None or call.causal == "positions" or stand_ins():
        return False
    q_pos, k_pos = call.positions
    of_queries, of_keys = (edges_of(part) for part in call.segments)
    counted = edges_of(k_pos, RESTARTS)
    if counted is None or of_queries is None or of_keys is None or q_pos is not k_pos:
        return False
    if not counted.ends == of_queries.ends == of_keys.ends:
        return False
    readers = [e for e in encodings if e.axes and not isinstance(e, RotaryEncoding)]
    return all(isinstance(e, BiasEncoding) and _is_by_distance(e, call) for e in readers)


def _is_by_distance(bias: BiasEncoding, call: AttentionCall) -> bool:
    """Whether a bias states that it is a function of the distance alone."""
    stated = bias.distance_slopes(like=call.q), bias.lookup(call.q.shape[2], call.k.shape[2], like=call.q)
    return any(part is not None for part in stated) or call.row_of(bias) is not None


def with_structures(call: AttentionCall) -> AttentionCall:
    """The call with the structures of its score encodings, asked once."""
    if call.structures or len(call.score) == 0:
        return call
    counts = None
    for encoding in call.score:
        if encoding.reads.key_counts and counts is None:
            counts = call.visibility.key_counts(call.q.shape[2], call.k.shape[2])
    context = call.context(None, None)
    context = context._replace(sequence=SequenceContext(call.token_order, counts, call.row_lengths))
    future, structures = call.causal is not True, []
    for encoding, state in zip(call.score, call.score_states, strict=True):
        structures.append(encoding.structure(context._replace(token_state=state), future=future))
    return call.replace(structures=tuple(structures))
