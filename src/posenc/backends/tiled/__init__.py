"""Tiles of queries and keys, for every structure that encodings state: memory grows with the length, not its square.

Forward and backward run tile by tile, the backward pass computing scores anew. Terms add up, so that any list of
encodings with known structures is one pass: RoPE + CoPE + T5 under stick-breaking, for instance.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.backends.derivatives import only_plain_operations
from posenc.backends.inputs.attention_call import AttentionCall, precise, scores_in, widen
from posenc.backends.tiled import decode, operator
from posenc.backends.tiled.reflections import Blocks, blocks_of
from posenc.backends.tiled.spec import Recipe
from posenc.structure import (
    Bend,
    Bias,
    Column,
    Counts,
    Decay,
    Factor,
    Kernel,
    LowRank,
    Network,
    Offsets,
    Ranges,
    Reflections,
    Sink,
    Sticks,
    Structure,
    Vectors,
)
from posenc.tracing import exporting


def refuses(call: AttentionCall) -> str | None:
    """Why tiles cannot serve this call, or None."""
    if call.q.device.type not in ("cpu", "cuda"):
        return f"tiles were never tried on {call.q.device.type}"
    if exporting():
        return "an exported program must do without operators of this library"
    transformed = only_plain_operations()
    if transformed is not None:
        return transformed
    if call.scale == 0:
        return "a scale of 0 leaves nothing to compute with"
    if call.weight is not None and call.weight.structure() is None:
        return f"{type(call.weight).__name__} states no structure"
    if not call.aligned and any(_by_distance(found) for found in call.structures):
        return "positions are given: nothing is a function of the difference of two indices"
    for (encoding, _), found in zip(call.score, call.structures, strict=True):
        if found is None:
            return f"{type(encoding).__name__} states no structure for this call"
        for part in found:
            if isinstance(part, Factor):
                return f"{type(encoding).__name__} multiplies what is added to the scores before it"
            if isinstance(part, Bend | Kernel):
                reason = _beside(part, call, type(encoding).__name__) or _unknown(part.bias, call)
                if reason is not None:
                    return reason
            if isinstance(part, Ranges):
                return f"{type(encoding).__name__} turns queries and keys anew in each range of distances"
            if isinstance(part, Counts) and part.keys is not None and part.keys.shape[1] != call.k.shape[1]:
                return f"{type(encoding).__name__} counts with other key heads than the call's"
    parts = [part for found in call.structures for part in found or ()]
    reflections = [part for part in parts if isinstance(part, Reflections)]
    if len(reflections) > 1:
        return "two encodings reflect"
    if reflections and call.q.shape[2] <= decode.MOST:
        return "the definition reflects few queries in fewer steps"
    return next((reason for bias in call.bias if (reason := _unknown(bias, call)) is not None), None)


def _beside(part: Bend | Kernel, call: AttentionCall, name: str) -> str | None:
    """Why an encoding that looks at what a tile holds cannot do so here, or None."""
    if call.q.shape[2] <= decode.MOST:
        return "the definition takes few queries in fewer steps"
    if call.weight is not None and not isinstance(call.weight.structure(), Sink):
        return f"{name} looks at scores, of which stick-breaking has some at a time"
    parts = [other for found in call.structures for other in found or ()]
    others = [other for other in parts if other is not part]
    if isinstance(part, Bend) and any(isinstance(other, Kernel) for other in parts[parts.index(part) :]):
        return f"{name} looks at scores before a kernel that is to multiply the bare products"
    if any(isinstance(other, Reflections) or type(other) is type(part) for other in others):
        return f"{name} looks at products that another encoding changes"
    if isinstance(part, Bend) and any(isinstance(other, Counts | Decay) for other in others):
        return f"{name} looks at whole scores, of which gates leave out what softmax does not see"
    return None


def _unknown(bias: Bias, call: AttentionCall) -> str | None:
    """Why a bias cannot be had by tiles, or None."""
    if _by_index(bias, call) or bias.offsets(*_precise(call)) is not None:
        return None
    name = type(bias).__name__
    return f"{name} states no structure" if call.aligned else f"positions are given: {name} knows none of indices"


def strategy(call: AttentionCall) -> str:
    """How this backend goes about the call, in words."""
    return f"blocks of queries under {', '.join(_kinds(call)) or 'no bias'}, computed anew in the backward pass"


def run(call: AttentionCall) -> Tensor:
    """Attention tile by tile, ``(batch, heads, queries, value_dim)`` in the dtype of q."""
    wide = scores_in(call.q.dtype)
    tolerance = call.tolerance or (4e-18 if wide == torch.float64 else 2e-9)
    q, k = call.q, call.k
    chained: list[Blocks] = []  # which compilers follow, unlike a call of list[Blocks]
    for found in call.structures:
        for part in found or ():
            if isinstance(part, Reflections):
                chained.append(blocks_of(widen(q), widen(k), part.w, part.beta))
                q, k = chained[0].q, chained[0].k
    recipe = Recipe(q, k, call.v, call.visibility, call.scale, tolerance, call.softcap)
    for blocks in chained:
        recipe.term("chain", {"whole": blocks.whole, "near": blocks.near})
    if call.dropout is not None:
        recipe.drop(call.dropout)
    queries, keys = call.q.shape[2], call.k.shape[2]
    kernels = [part for found in call.structures for part in found or () if isinstance(part, Kernel)]
    for kernel in kernels:  # first of all, as it acts on the bare products
        _inside(recipe, "kernel", kernel.bias, call)
    counts: list[Structure] = [part for found in call.structures for part in found or () if isinstance(part, Counts)]
    for number, count in enumerate(counts):  # first: the gates of one see the bare products of q and k
        assert isinstance(count, Counts)
        if count.keys is None and (
            number or kernels or call.softcap is not None or chained
        ):  # those of others make their own
            count = count._replace(keys=widen(call.k))
        if count.queries is None and chained:
            count = count._replace(queries=widen(call.q))
        _state(recipe, count)
    row = call.distance_row() if call.aligned else None
    if row is not None:
        recipe.term("row", {"row": row})
    for bias in call.bias:
        stated = _network(bias, call, queries, keys) if call.aligned else bias.offsets(*_precise(call))
        if stated is not None and not (call.aligned and bias.of_distance(call.k_pos[:1]) is not None):
            _state(recipe, stated)
    for found in call.structures:
        for part in found or ():
            if isinstance(part, Vectors) and part.content is None and chained:
                part = part._replace(content=widen(call.q))
            if isinstance(part, Bend):
                _inside(recipe, "bend", part.bias, call, part)
            elif not isinstance(part, Counts | Reflections | Kernel):
                _state(recipe, part)
    weights = None if call.weight is None else call.weight.structure()
    if isinstance(weights, Sink):
        recipe.sink(weights.logits)
    if isinstance(weights, Sticks):
        sticks = weights
        if sticks.vector is not None and sticks.vector.shape[1] != call.v.shape[3]:
            name, width = type(call.weight).__name__, sticks.vector.shape[1]
            raise ValueError(f"value_dim of {name} is {width}, but v has width {call.v.shape[3]}")
        recipe.sticks(sticks.vector, attend_current=sticks.attend_current, remainder=sticks.remainder)
    return operator.run(recipe).to(call.q.dtype)


def _state(recipe: Recipe, part: Structure) -> None:
    """Write one structure into the recipe."""
    named = {name: value for name, value in part._asdict().items() if isinstance(value, Tensor)}
    if isinstance(part, Column):
        recipe.term("column", named)
    elif isinstance(part, Decay):
        recipe.term("decay", named)
    elif isinstance(part, Vectors):
        recipe.term("vectors", named, number=part.first)
    elif isinstance(part, Counts):
        recipe.term("counts", named, factor=part.factor)
    elif isinstance(part, LowRank):
        recipe.term("lowrank", named)
    elif isinstance(part, Offsets):
        recipe.term("offsets", {"values": part.values}, fixed={"of_queries": part.of_queries, "of_keys": part.of_keys})
    else:
        recipe.term("network", named)


def _inside(recipe: Recipe, kind: str, bias: Bias, call: AttentionCall, part: Bend | None = None) -> None:
    """Write a term with a bias inside into the recipe."""
    own = {} if part is None else {n: t for n, t in part._asdict().items() if isinstance(t, Tensor)}
    slope = 1.0 if part is None else part.slope
    row = call.row_of(bias) if call.aligned else None
    queries, keys = call.q.shape[2], call.k.shape[2]
    if row is not None:
        recipe.term(f"{kind}:row", {**own, "of.row": row}, factor=slope)
        return
    stated = _network(bias, call, queries, keys) if call.aligned else None
    if stated is not None:
        named = {f"of.{name}": value for name, value in stated._asdict().items()}
        recipe.term(f"{kind}:network", {**own, **named}, factor=slope)
        return
    offsets = bias.offsets(*_precise(call))
    assert offsets is not None
    fixed = {"of.of_queries": offsets.of_queries, "of.of_keys": offsets.of_keys}
    recipe.term(f"{kind}:offsets", {**own, "of.values": offsets.values}, factor=slope, fixed=fixed)


def _by_index(bias: Bias, call: AttentionCall) -> bool:
    """Whether a bias is one of the difference of two indices."""
    if not call.aligned:
        return False
    return bias.of_distance(call.k_pos[:1]) is not None or _network(bias, call, 1, 1) is not None


def _precise(call: AttentionCall) -> tuple[Tensor, Tensor]:
    """Positions as biases take them."""
    return precise(call.q_pos, call.q.dtype), precise(call.k_pos, call.q.dtype)


def _network(bias: object, call: AttentionCall, queries: int, keys: int) -> Network | None:
    found: Network | None = bias.network(queries, keys, like=call.q)  # type: ignore[attr-defined]
    return found


def _by_distance(found: object) -> bool:
    return any(isinstance(part, Vectors) for part in found or ())  # type: ignore[attr-defined]


def _kinds(call: AttentionCall) -> list[str]:
    """What the tiles hold, by kind."""
    words = {
        Column: "a term per key", Decay: "forget gates", Vectors: "vectors of the distance", Counts: "counts",
        Reflections: "products of reflections", LowRank: "products of few numbers",
        Kernel: "a kernel on the products", Bend: "a network across heads",
    }  # fmt: skip
    found = [words[type(part)] for parts in call.structures for part in parts or ()]
    found += [
        "a bias by differences of coordinates" if not _by_index(b, call) else
        "a bias by distance" if b.of_distance(call.k_pos[:1]) is not None else "a network of the distance"
        for b in call.bias
    ]  # fmt: skip
    if call.weight is not None:
        found.append("a sink" if isinstance(call.weight.structure(), Sink) else "stick-breaking")
    found += [] if call.softcap is None else ["a cap"]
    return found + ([] if call.dropout is None else ["dropout"])
