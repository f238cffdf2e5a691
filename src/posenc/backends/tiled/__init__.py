"""Tiles of queries and keys, for every structure that encodings state: memory grows with the length, not its square.

The idea: a block of 64 queries meets all of its keys in a tile small enough to stay near the processor. Forward and
backward run tile by tile, and the backward pass computes the logits again instead of storing them. Terms add up in
place, so that any list of encodings with known structures is one pass: RoPE + CoPE + T5 under stick-breaking, say.

The invariants that everything here relies on:

- Keys and values are reversed once, the newest first. Sums that run from the newest key back (counted gates,
  stick-breaking, forget gates) are plain running sums then, and softmax does not care about the order.
- In reversed order a function of the distance is constant along anti-diagonals: a tile of it is a strided view of one
  row of numbers (`tile.diagonals`), and its gradient is read through a skewed view (`tile.by_distance`). Built as a
  matrix, the same bias takes 4 to 5 times the time of plain attention instead of 1.1 times.
- Where all terms are functions of the distance, PyTorch's fused CPU kernel runs instead of the tiles, with a view of
  their row as its mask (`fused_row`).
- The loop is one custom operator (`operator`), since a compiler would unroll it anew for each length. An operator takes
  tensors and plain values alone: `spec` writes the call down as text.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.backends.derivatives import only_plain_operations
from posenc.backends.tiled import operator
from posenc.backends.tiled.reflections import Blocks, blocks_of
from posenc.backends.tiled.spec import SpecWriter
from posenc.backends.tiled.tiled_call import FEW
from posenc.call import AttentionCall, precise, score_dtype, widen
from posenc.structure import Bias, Reflections, Structure, TileFacts, TileTerm
from posenc.tracing import exporting, has_values, tracing


def refuses(call: AttentionCall) -> str | None:
    """Why tiles cannot serve this call, or None."""
    if call.q.device.type not in ("cpu", "cuda"):
        return f"tiles were never tried on {call.q.device.type}"
    if exporting():
        return "an exported program must do without operators of this library"
    transformed = only_plain_operations(call)
    if transformed is not None:
        return transformed
    if call.scale == 0:
        return "a scale of 0 leaves nothing to compute with"
    if call.weight is not None and call.weight.fast_form() is None:
        return f"{type(call.weight).__name__} states no structure"
    if call.replaces_softmax and call.causal == "positions" and not _own_keys_last(call):
        return f"{type(call.weight).__name__} finds a query's own key by position, tiles by index"
    few = not tracing() and call.q.shape[2] <= FEW  # a compiler would make a graph for each side of it
    facts = TileFacts(few, call.aligned, call.k.shape[1], not call.replaces_softmax, _parts(call))
    for encoding, parts in zip(call.score, call.structures, strict=True):
        name = type(encoding).__name__
        if parts is None:
            return f"{name} states no structure for this call"
        for part in parts:
            inside = part.inside_bias()
            reason = part.tile_refusal(name, facts) or (None if inside is None else _unknown(inside, call))
            if reason is not None:
                return reason
    return next((reason for bias in call.bias if (reason := _unknown(bias, call)) is not None), None)


def _own_keys_last(call: AttentionCall) -> bool:
    """Whether the query's own keys by position are the last of the keys, as by index; reads values."""
    q_pos, last = call.q_pos, call.k_pos[..., max(0, call.k.shape[2] - call.q.shape[2]) :]
    if q_pos.shape[-1] != last.shape[-1] or not (has_values(q_pos) and has_values(last)):
        return False
    return bool((last == q_pos).all() & (last[..., 1:] > last[..., :-1]).all())


def _parts(call: AttentionCall) -> list[Structure]:
    """All structures of the call's score encodings, in their order."""
    return [part for parts in call.structures for part in parts or ()]


def _unknown(bias: Bias, call: AttentionCall) -> str | None:
    """Why a bias cannot be computed by tiles, or None."""
    if _by_index(bias, call) or bias.offsets(*_precise(call)) is not None:
        return None
    name = type(bias).__name__
    return f"{name} states no structure" if call.aligned else f"positions are given: {name} knows none of indices"


def strategy(call: AttentionCall) -> str:
    """How this backend goes about the call, in words."""
    kinds = [part.description for part in _parts(call)] + [_kind_of_bias(bias, call) for bias in call.bias]
    weights = None if call.weight is None else call.weight.fast_form()
    kinds += [] if weights is None else [weights.description]
    kinds += [] if call.softcap is None else ["a cap"]
    kinds += [] if call.dropout is None else ["dropout"]
    return f"blocks of queries under {', '.join(kinds) or 'no bias'}, computed anew in the backward pass"


def _kind_of_bias(bias: Bias, call: AttentionCall) -> str:
    if not _by_index(bias, call):
        return "a bias by differences of coordinates"
    return "a network of the distance" if bias.of_distance(call.k_pos[:1]) is None else "a bias by distance"


def run(call: AttentionCall) -> Tensor:
    """Attention tile by tile, ``(batch, heads, queries, value_dim)`` in the dtype of q."""
    tolerance = call.tolerance or (4e-18 if score_dtype(call.q.dtype) == torch.float64 else 2e-9)
    q, k, parts = call.q, call.k, _parts(call)
    chained: list[Blocks] = []  # a compiler follows this annotation, but not list[Blocks]()
    for part in parts:
        if isinstance(part, Reflections):
            chained.append(blocks_of(widen(q), widen(k), part.w, part.beta))
            q, k = chained[0].q, chained[0].k
    writer = SpecWriter(q, k, call.v, call.visibility, call.scale, tolerance, call.softcap)
    for blocks in chained:
        writer.term(TileTerm("chain", {"products": blocks.products, "near": blocks.near}))
    if call.dropout is not None:
        writer.drop(call.dropout)

    def bias_term(bias: Bias) -> TileTerm:
        return _bias_term(bias, call)

    changed = call.softcap is not None or bool(chained)
    for stage in (0, 1):  # what reads the bare products comes first
        for part in parts:
            if part.stage == stage:
                part = part.with_products(call.q, call.k, changed=changed, chained=bool(chained))
                writer.term(part.tile_term(bias_term))
                changed = True
    row = call.distance_row() if call.aligned else None
    if row is not None:
        writer.term(TileTerm("row", {"row": row}))
    for bias in call.bias:
        if row is None or bias.of_distance(call.k_pos[:1]) is None:
            writer.term(bias_term(bias))
    for part in parts:
        if part.stage == 2:
            part = part.with_products(call.q, call.k, changed=changed, chained=bool(chained))
            writer.term(part.tile_term(bias_term))
    weights = None if call.weight is None else call.weight.fast_form()
    if weights is not None:
        weights.write_tile_weights(writer, type(call.weight).__name__, call.v.shape[3])
    return operator.run(writer).to(call.q.dtype)


def _bias_term(bias: Bias, call: AttentionCall) -> TileTerm:
    """One bias as a term: a row of the distance, a network, or numbers by differences of coordinates."""
    row = call.row_of(bias) if call.aligned else None
    if row is not None:
        return TileTerm("row", {"row": row})
    structure: Structure | None = None
    if call.aligned:
        structure = bias.network(call.q.shape[2], call.k.shape[2], like=call.q)
    if structure is None:
        structure = bias.offsets(*_precise(call))
    assert structure is not None
    return structure.tile_term(lambda inside: _bias_term(inside, call))


def _by_index(bias: Bias, call: AttentionCall) -> bool:
    """Whether a bias is one of the difference of two indices."""
    if not call.aligned:
        return False
    return bias.of_distance(call.k_pos[:1]) is not None or bias.network(1, 1, like=call.q) is not None


def _precise(call: AttentionCall) -> tuple[Tensor, Tensor]:
    """Positions as biases take them."""
    return precise(call.q_pos, call.q.dtype), precise(call.k_pos, call.q.dtype)
