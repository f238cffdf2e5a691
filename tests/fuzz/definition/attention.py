"""Attention by its definition: visibility, scores, what is added to them, weights, values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.fuzz.definition import bias, grid_rotary, rotary, score
from tests.fuzz.definition.rotary import MOVED, moved
from tests.fuzz.definition.terms import Call, Encoded, Rounding, linear, products


def seen_pairs(
    q_pos: Tensor,
    k_pos: Tensor,
    of_queries: Tensor,
    of_keys: Tensor,
    mask: Tensor | None,
    *,
    heads: int,
    causal: object,
    window: int | None,
) -> Tensor:
    """``(batch, heads, queries, keys)`` bool, True where a query may look.

    Args:
        q_pos, k_pos: ``(batch, tokens)``; read where the order is that of positions.
        of_queries, of_keys: documents, ``(batch, tokens)``.
        mask: ``(batch | 1, heads | 1, queries | 1, keys)`` or None.
        causal: True, False or "positions".
        window: tokens that a query sees, or None.
    """
    (batch, queries), keys = of_queries.shape, of_keys.shape[1]
    own_key = torch.arange(queries)[:, None] + (keys - queries)
    other = torch.arange(keys)[None]
    if causal == "positions":
        back = q_pos[:, :, None] - k_pos[:, None, :]
        allowed = back >= 0
        if window is not None:
            allowed = allowed & (back < window)
    else:
        back = (own_key - other).expand(batch, -1, -1)
        allowed = back >= 0 if causal else torch.ones_like(back, dtype=torch.bool)
        if window is not None:
            allowed = allowed & (back < window) & (back > -window)
    allowed = allowed & (of_queries[:, :, None] == of_keys[:, None, :])
    allowed = allowed[:, None].expand(batch, heads, queries, keys)
    return allowed if mask is None else allowed & mask


def sink_of(weight_encodings: Sequence[Encoded], scores: Tensor) -> Tensor | None:
    """The logits of a sink, ``(batch, heads, queries, 1)``, or None."""
    if not weight_encodings:
        return None
    (encoded,) = weight_encodings
    logit = torch.full(scores.shape[1:2], encoded.number("logit", 0.0), dtype=torch.float64)
    logits = encoded.parameters["logits"] if encoded.option("learned", True) else logit
    return logits.view(-1, 1, 1).expand(*scores.shape[:3], 1) + 0.0


def softmax(scores: Tensor, call: Call, sink: Tensor | None = None) -> Tensor:
    """Zeros for a query that attends to nothing; a ``sink`` takes weight and gives none."""
    some = call.sees.any(-1, keepdim=True)
    open_ = torch.where(call.sees | ~some, scores, -math.inf)
    largest = torch.where(some, open_, 0.0).detach().amax(-1, keepdim=True)
    shifted = open_ - largest
    parts = call.rounding.near(shifted.exp(), shifted.exp().detach() * 4)
    total = parts.sum(-1, keepdim=True)
    if sink is not None:  # the largest of a row counts with the sink's, lest that overflow
        over = (sink.detach() - largest).clamp(min=0.0)
        parts, largest = parts * (-over).exp(), largest + over
        total = parts.sum(-1, keepdim=True) + call.rounding.near((sink - largest).exp())
        parts = call.rounding.near(parts, parts.detach() * (1 + largest.abs()))
    if scores.requires_grad:  # backward passes make weights anew from the logarithm of their sum, which is rounded
        total = total * (-call.rounding.near(torch.zeros_like(largest), largest)).exp()
    return torch.where(call.sees, parts / total, 0.0)


def stick_breaking(encoded: Encoded, scores: Tensor, call: Call) -> tuple[Tensor, Tensor | None]:
    """Weights, and what is read in the place of weight that was not given: from the newest key back, key by key."""
    keys, rounding = scores.shape[-1], call.rounding
    is_own = torch.arange(keys) == call.key_index[:, None]
    if call.by_position:  # the newest key that is seen at the query's own position, if there is one
        at = call.sees & (call.q_pos[:, None, :, None] == call.k_pos[:, None, None, :])
        newest = torch.where(at, torch.arange(keys), -1).amax(-1, keepdim=True)
        is_own = at & (torch.arange(keys) == newest)
    taken = call.sees if encoded.option("attend_current", False) else call.sees & ~is_own
    log_left, size = torch.zeros(scores.shape[:-1], dtype=torch.float64), torch.zeros(scores.shape[:-1])
    weights: list[Tensor] = [torch.zeros(())] * keys
    for j in reversed(range(keys)):
        s, here = scores[..., j], taken[..., j]
        log_weight = F.logsigmoid(s) + rounding.near(log_left, size)
        weights[j] = torch.where(here, log_weight.exp(), 0.0)
        remaining = torch.where(here, F.logsigmoid(-s), 0.0)
        log_left, size = log_left + remaining, size + remaining.detach().abs()
    out = rounding.near(torch.stack(weights, -1), torch.stack(weights, -1).detach() * 4)
    left = rounding.near(log_left, size).exp()
    rule = encoded.option("remainder", "drop")
    if rule == "own":
        out = out + torch.where(is_own & call.sees, left.unsqueeze(-1), 0.0)
    if rule != "vector":
        return out, None
    left = torch.where(call.sees.any(-1), rounding.near(left, 1.0), 0.0)
    return out, left.unsqueeze(-1) * encoded.parameters["vector"][:, None, :]


Bias = Callable[[Encoded, Call], Tensor]
Rotation = Callable[[Encoded, Call], Call]
Score = Callable[[Encoded, Tensor, Call], Tensor]
Read = Callable[[Encoded, Tensor, Call], Tensor | None]


def dape(encoded: Encoded, scores: Tensor, call: Call, biases: dict[str, Bias]) -> Tensor:
    inner: Encoded = encoded.option("bias")  # type: ignore[assignment]
    parameters, rounding = encoded.parameters, call.rounding
    bias = biases[inner.kind](inner, call).expand_as(scores)
    both = torch.cat([scores, bias], 1).movedim(1, -1)
    units = linear(both, parameters["inner.weight"], parameters["inner.bias"], rounding)
    units = torch.where(units > 0, units, 0.01 * units)
    bent = linear(units, parameters["outer.weight"], parameters["outer.bias"], rounding).movedim(-1, 1)
    return rounding.near(scores + bias + bent)


def mixture(
    encoded: Encoded, scores: Tensor, call: Call, rotations: dict[str, Rotation], biases: dict[str, Bias]
) -> Tensor:
    """Each list alone, its rotations first and then its biases, times its share."""
    lists: list[list[Encoded]] = encoded.option("members")  # type: ignore[assignment]
    logits = encoded.parameters["logits"][None, :, None, :]
    if encoded.option("adaptive", False):
        assert call.x is not None
        by_token = linear(call.x, encoded.parameters["weight"], None, call.rounding)
        of_heads = by_token.unflatten(-1, (-1, len(lists))).transpose(1, 2)
        logits = logits + of_heads[:, :, call.key_index.clamp(min=0)]
    shares, total = call.rounding.near(logits.softmax(-1)), torch.zeros(())
    for member, share in zip(lists, shares.unbind(-1), strict=True):
        alone, after = scores, call
        for e in member:
            after = rotations[e.kind](e, after) if e.kind in rotations else after
        if after is not call:
            alone = call.rounding.near(alone + _bare(after) - _bare(call))
        for e in member:
            alone = call.rounding.near(alone + biases[e.kind](e, call)) if e.kind in biases else alone
        total = total + share.unsqueeze(-1) * alone
    return call.rounding.near(total)


def _bare(call: Call) -> Tensor:
    return call.capped(products(call.q, call.for_queries(call.k), call.rounding) * call.scale)


ROTATIONS: dict[str, Rotation] = {
    "RoPE": rotary.rope, "XPos": rotary.xpos, "AxialRoPE": grid_rotary.axial, "MRoPE": grid_rotary.mrope,
    "VJEPARoPE": grid_rotary.vjepa, "MixedRoPE": grid_rotary.mixed, "LieRE": grid_rotary.liere,
    "ComRoPEAP": grid_rotary.comrope, "ComRoPELD": grid_rotary.comrope, "RoPEpp": rotary.rope_pp,
    "GRAPEM": rotary.grape_m, "FoPE": rotary.fope, "PoPE": grid_rotary.pope,
}  # fmt: skip
BIASES: dict[str, Bias] = {
    "ALiBi": bias.alibi, "T5Bias": bias.t5, "KERPLE": bias.kerple, "Sandwich": bias.sandwich, "FIRE": bias.fire,
    "DistanceMLP": bias.distance_mlp, "LogCPB": bias.grid_log_cpb, "SwinBias": bias.swin,
    "BEiTBias": bias.beit, "ALiBi2D": bias.alibi_2d, "T5GridBias": bias.t5_grid,
}  # fmt: skip
SCORES: dict[str, Score] = {
    "Shaw": score.shaw, "TransformerXL": score.transformer_xl, "CoPE": score.cope, "ForgetGate": score.forget,
    "DataDependentALiBi": score.data_alibi, "SSMax": score.ssmax, "LogN": score.log_n,
    "StepTemperature": score.step_temperature, "PowerTemperature": score.power_temperature,
    "TokenRelativeBias": score.token_relative, "PaTH": score.path, "DAPE": partial(dape, biases=BIASES),
    "DecomposedRelative": bias.decomposed, "GRAPEA": score.grape_a,
    "SelectiveRoPE": score.selective_rope, "GRAPEContext": score.grape_context, "RePo": score.repo,
    "GRAPEAP": score.grape_ap, "Mixture": partial(mixture, rotations=ROTATIONS, biases=BIASES),
}  # fmt: skip
READS: dict[str, Read] = {"Shaw": score.shaw_values}


WEIGHTS = ("StickBreaking", "AttentionSink")
LEFT_OUT = 0.01  # weights that tiles may leave out are below this many units of rounding


def define(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Sequence[Encoded] = (),
    *,
    q_pos: Tensor | None = None,
    k_pos: Tensor | None = None,
    x: Tensor | None = None,
    mask: Tensor | None = None,
    segments: Tensor | tuple[Tensor, Tensor] | None = None,
    causal: object = True,
    scale: float | None = None,
    length: int | None = None,
    window: int | None = None,
    softcap: float | None = None,
    axes: int = 1,
    rounding: Rounding | None = None,
) -> Tensor:
    """What `attention` shall give for the same arguments, ``(batch, heads, queries, value_dim)`` in float64.

    Args:
        q, k, v, x: float64.
        encodings: as `Encoded`.
        axes: coordinates of the positions given.
        rounding: what moves numbers on the way; default nothing.
    """
    batch, heads, queries, keys = *q.shape[:3], k.shape[2]
    of_queries, of_keys = _documents(segments, batch, queries, keys)
    q_at, k_at = _places(q_pos, k_pos, batch, queries, keys, axes)
    full = None if mask is None else mask[None, None] if mask.ndim == 2 else mask[:, None] if mask.ndim == 3 else mask
    known = torch.ones(batch, keys, dtype=torch.bool)
    if full is not None:
        known = full.flatten(1, 2).any(1).expand(batch, keys)
    flat = [t if t.ndim == 2 else t[..., 0] for t in (q_at, k_at)]
    sees = seen_pairs(*flat, of_queries, of_keys, full, heads=heads, causal=causal, window=window)
    full_result = seen_pairs(*flat, of_queries, of_keys, full, heads=heads, causal=causal, window=None)
    used = full_result.any(1).any(1)
    size = q.shape[-1] ** -0.5 if scale is None else float(scale)
    call = Call(
        q, k, v, q_at, k_at, x, sees, known, used, of_queries, of_keys, size, length, rounding or Rounding(),
        q_content=q, k_content=k, softcap=softcap, by_position=causal == "positions",
    )  # fmt: skip
    return attend(call, encodings)


def attend(call: Call, encodings: Sequence[Encoded]) -> Tensor:
    """The data flow: rotations, products, biases, score encodings, weights, values."""
    rounding = call.rounding
    for encoded in encodings:
        if encoded.kind in ROTATIONS:
            call = ROTATIONS[encoded.kind](encoded, call)
    moving = [encoded for encoded in encodings if encoded.kind in MOVED]
    if moving:
        scores, held = moved(moving[0], call)
        call = replace(call, sees=call.sees & held)
    else:
        scores = call.capped(products(call.q, call.for_queries(call.k), rounding) * call.scale)
    for encoded in encodings:
        if encoded.kind in BIASES:
            scores = rounding.near(scores + BIASES[encoded.kind](encoded, call))
    for encoded in encodings:
        if encoded.kind in SCORES:
            scores = SCORES[encoded.kind](encoded, scores, call)
    weight_encodings = [encoded for encoded in encodings if encoded.kind in WEIGHTS]
    read: list[Tensor | None] = []
    sticks, sink = [e for e in weight_encodings if e.kind == "StickBreaking"], None
    if sticks:
        weights, remainder = stick_breaking(sticks[0], scores, call)
        read.append(remainder)
    else:
        sink = sink_of(weight_encodings, scores)
        weights = softmax(scores, call, sink)
    read += [READS[e.kind](e, weights, call) for e in encodings if e.kind in READS]
    stored = rounding.stored(rounding.near(weights, weights.detach() + LEFT_OUT))
    values = call.for_queries(call.v)
    product = stored @ values
    if scores.requires_grad and rounding.inner:
        share = torch.where(call.sees, scores.detach().sigmoid(), 0.0) if sticks else weights.detach()
        remainder = [e.parameters["vector"].detach().abs() for e in sticks if "vector" in e.parameters]
        _round_gradient(scores, weights, product, values, share, remainder, rounding, sink)
    out = rounding.near(product, stored.detach().abs() @ values.detach().abs())
    for part in read:
        out = out if part is None else rounding.near(out + part)
    return rounding.stored(out)


def _round_gradient(
    scores: Tensor,
    weights: Tensor,
    product: Tensor,
    values: Tensor,
    share: Tensor,
    combined: Sequence[Tensor],
    rounding: Rounding,
    sink: Tensor | None,
) -> None:
    """The gradient of a score is a difference, a (g·v − Σ a g·v): its rounding is relative to what is subtracted.

    Args:
        share: the factor of the sum, the weight itself for softmax.
        beside: sizes of vectors ``(heads, width)`` that get the weight which is left.
        sink: logits of a sink, row by row; the gradient of one is its weight times what all others read.
    """
    sizes: list[Tensor] = []  # of the gradients of weights

    def rounded(g: Tensor) -> Tensor:
        of_weights = torch.stack(torch.broadcast_tensors(*sizes)).sum(0)
        total = (weights.detach() * of_weights).sum(-1, keepdim=True)
        rounded_ = rounding.stored(g.detach(), weights.detach() * of_weights + share * total)
        return rounding.near(rounded_, LEFT_OUT * (of_weights + total))

    def of_product(g: Tensor) -> None:
        sizes.append(g.detach().abs() @ values.detach().abs().mT)
        sizes.extend((g.detach().abs() * vector[:, None]).sum(-1, keepdim=True) for vector in combined)

    def rounded_sink(g: Tensor) -> Tensor:
        of_weights = torch.stack(torch.broadcast_tensors(*sizes)).sum(0)
        left = (1 - weights.detach().sum(-1, keepdim=True)).clamp(min=0.0)
        return rounding.stored(g.detach(), left * (weights.detach() * of_weights).sum(-1, keepdim=True))

    if sink is not None and sink.requires_grad:
        sink.register_hook(rounded_sink)
    product.register_hook(of_product)
    weights.register_hook(lambda g: sizes.append(g.detach().abs()))
    scores.register_hook(rounded)


def _documents(
    segments: Tensor | tuple[Tensor, Tensor] | None, batch: int, queries: int, keys: int
) -> tuple[Tensor, Tensor]:
    """The document of each query and each key, ``(batch, tokens)``; one for all where none are told."""
    if segments is None:
        return torch.zeros(batch, queries, dtype=torch.long), torch.zeros(batch, keys, dtype=torch.long)
    if isinstance(segments, Tensor):
        segments = (segments[..., keys - queries :], segments)
    return tuple(part.expand(batch, -1) for part in segments)  # type: ignore[return-value]


def _places(
    q_pos: Tensor | None, k_pos: Tensor | None, batch: int, queries: int, keys: int, axes: int
) -> tuple[Tensor, Tensor]:
    """Positions ``(batch, tokens[, axes])``, int64 or float64; untold: keys 0, 1, … and queries the last of them."""
    if q_pos is None and k_pos is None:
        q_pos, k_pos = torch.arange(keys - queries, keys), torch.arange(keys)
    elif q_pos is None or k_pos is None:
        q_pos = k_pos = k_pos if q_pos is None else q_pos
    expanded = []
    for value in (q_pos, k_pos):
        assert value is not None
        wide = value.double() if value.is_floating_point() else value.long()
        rows = wide if wide.ndim == (2 if axes == 1 else 3) else wide.unsqueeze(0)
        expanded.append(rows.expand(batch, *rows.shape[1:]))
    return expanded[0], expanded[1]
