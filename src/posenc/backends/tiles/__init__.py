"""Tiles of queries and keys, for every structure that encodings state: memory grows with the length, not its square.

The idea: a block of 64 queries meets all of its keys in a tile small enough to stay near the processor. Forward and
backward run tile by tile, and the backward pass computes the logits again instead of storing them. Structures add up in
place, so that any list of encodings that state theirs is one pass: RoPE + CoPE + T5 under stick-breaking, say.

The invariants that everything here relies on:

- Keys and values are reversed once, the newest first. Sums that run from the newest key back (counted gates,
  stick-breaking, forget gates) are plain running sums then, and softmax does not care about the order.
- In reversed order a function of the distance is constant along anti-diagonals: a tile of it is a strided view of one
  row of numbers (`structure.tile.toeplitz_view`), and its gradient is read through a skewed view (`skew_view`). Built
  as a matrix, the same bias takes 4 to 5 times the time of plain attention instead of 1.1 times.
- Where all terms are functions of the distance, PyTorch's fused CPU kernel runs instead of the tiles, with a view of
  their row as its mask (`masks`).

`loop` cuts the tiles, `block` computes the scores of one and goes back through them, `softmax` and `sticks` make
weights of them, `prune` leaves keys out; the structures' own arithmetic stands in their classes (`posenc.structure`).
`operator` is the way in, for eager calls and for compilers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.backends.derivatives import only_plain_operations
from posenc.backends.tiles import operator
from posenc.backends.tiles.block import FEW
from posenc.backends.tiles.loop import TileArguments
from posenc.call import AttentionCall
from posenc.dtypes import float32_or_better, widened
from posenc.structure import (
    Bias,
    HeadMixing,
    ReflectionProducts,
    Reflections,
    Row,
    Structure,
    TileFacts,
)
from posenc.structure.reflections import blocks_of
from posenc.tracing import exporting, has_values, tracing


def refuses(call: AttentionCall) -> str | None:
    """Why tiles cannot serve this call, or None."""
    if not call.q.is_cpu:
        return "tiles are cut for a processor's cache: a GPU would wait for tens of thousands of small kernels"
    if exporting():
        return "an exported program must do without operators of this library"
    transformed = only_plain_operations(call)
    if transformed is not None:
        return transformed
    if call.scale == 0:
        return "a scale of 0 leaves nothing to compute with"
    if call.weight is not None and call.weight.structure() is None:
        return f"{type(call.weight).__name__} states no structure"
    if call.replaces_softmax and call.causal == "positions" and not _own_keys_last(call):
        return f"{type(call.weight).__name__} finds a query's own key by position, tiles by index"
    few = not tracing() and call.q.shape[2] <= FEW  # a compiler would make a graph for each side of it
    facts = TileFacts(few, call.aligned, call.k.shape[1], not call.replaces_softmax, _structures(call))
    for encoding, stated in zip(call.score, call.structures, strict=True):
        name = type(encoding).__name__
        if stated is None:
            return f"{name} states no structure for this call"
        for structure in stated:
            inside = structure.bias if isinstance(structure, HeadMixing) else None
            reason = structure.tile_refusal(name, facts) or (None if inside is None else _unknown(inside, call))
            if reason is not None:
                return reason
    return next((reason for bias in call.bias if (reason := _unknown(bias, call)) is not None), None)


def _own_keys_last(call: AttentionCall) -> bool:
    """Whether the query's own keys by position are the last of the keys, as by index; reads values."""
    q_pos, last = call.q_pos, call.k_pos[..., max(0, call.k.shape[2] - call.q.shape[2]) :]
    if q_pos.shape[-1] != last.shape[-1] or not (has_values(q_pos) and has_values(last)):
        return False
    return bool((last == q_pos).all() & (last[..., 1:] > last[..., :-1]).all())


def _structures(call: AttentionCall) -> list[Structure]:
    """All structures of the call's score encodings, in their order."""
    return [structure for stated in call.structures for structure in stated or ()]


def _unknown(bias: Bias | Structure, call: AttentionCall) -> str | None:
    """Why a bias cannot be computed by tiles, or None."""
    assert not isinstance(bias, Structure)
    if _by_index(bias, call) or bias.offsets(*call.bias_positions) is not None:
        return None
    name = type(bias).__name__
    return f"{name} states no structure" if call.aligned else f"positions are given: {name} knows none of indices"


def strategy(call: AttentionCall) -> str:
    """How this backend goes about the call, in words."""
    kinds = [structure.description for structure in _structures(call)]
    kinds += [_kind_of_bias(bias, call) for bias in call.bias]
    weights = None if call.weight is None else call.weight.structure()
    kinds += [] if weights is None else [weights.description]
    kinds += [] if call.softcap is None else ["a cap"]
    kinds += [] if call.dropout is None else ["dropout"]
    return f"blocks of queries under {', '.join(kinds) or 'no bias'}, computed anew in the backward pass"


def _kind_of_bias(bias: Bias, call: AttentionCall) -> str:
    if not _by_index(bias, call):
        return "a bias by differences of coordinates"
    return "a network of the distance" if bias.of_distance(call.k_pos[:1]) is None else Row.description


def run(call: AttentionCall) -> Tensor:
    """Attention tile by tile, ``(batch, heads, queries, value_dim)`` in the dtype of q."""
    tolerance = call.tolerance or (4e-18 if float32_or_better(call.q.dtype) == torch.float64 else 2e-9)
    q, k, stated = call.q, call.k, _structures(call)
    terms: list[Structure] = []
    for structure in stated:
        if isinstance(structure, Reflections):
            reflected = blocks_of(widened(q), widened(k), structure.w, structure.beta)
            q, k = reflected.q, reflected.k
            terms.append(ReflectionProducts(reflected.products, reflected.near))
    chained = len(terms) > 0
    changed = chained or call.softcap is not None
    for stage in (1, 2):  # what reads the bare products comes first
        row = call.distance_row() if stage == 2 and call.aligned else None
        if stage == 2:
            terms += [] if row is None else [Row(row)]
            terms += [
                _bias_structure(b, call) for b in call.bias if row is None or b.of_distance(call.k_pos[:1]) is None
            ]
        for structure in stated:
            if structure.stage == stage:
                structure = structure.with_products(call.q, call.k, changed=changed, chained=chained)
                if isinstance(structure, HeadMixing):
                    structure = structure.with_bias(_bias_structure(structure.bias, call))
                terms.append(structure)
                changed = True
    weights = None if call.weight is None else call.weight.structure()
    vector = None if weights is None else getattr(weights, "vector", None)
    if vector is not None and vector.shape[1] != call.v.shape[3]:
        name, width = type(call.weight).__name__, vector.shape[1]
        raise ValueError(f"value_dim of {name} is {width}, but v has width {call.v.shape[3]}")
    visibility = call.visibility._replace(narrowed=())
    arguments = TileArguments(
        q, k, call.v, tuple(terms), weights, visibility, call.scale, tolerance, call.softcap, call.dropout
    )
    return operator.run(arguments).to(call.q.dtype)


def _bias_structure(bias: Bias | Structure, call: AttentionCall) -> Structure:
    """One bias as a row of the distance, a network, or numbers by differences of coordinates."""
    assert not isinstance(bias, Structure)
    row = call.row_of(bias) if call.aligned else None
    if row is not None:
        return Row(row)
    structure: Structure | None = None
    if call.aligned:
        structure = bias.network(call.q.shape[2], call.k.shape[2], like=call.q)
    if structure is None:
        structure = bias.offsets(*call.bias_positions)
    assert structure is not None
    return structure


def _by_index(bias: Bias, call: AttentionCall) -> bool:
    """Whether a bias is one of the difference of two indices."""
    if not call.aligned:
        return False
    return bias.of_distance(call.k_pos[:1]) is not None or bias.network(1, 1, like=call.q) is not None
