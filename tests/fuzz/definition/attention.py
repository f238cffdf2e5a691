"""Attention by its definition: scores, what is added to them, weights, values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from tests.fuzz.definition import between, bias, grid_bias, grid_rotary, path, polar, rotary, score, tape, weight
from tests.fuzz.definition.mixture import Bias, Members, Read, Rotation, Score, dape, kernel
from tests.fuzz.definition.remapped import MOVED, moved
from tests.fuzz.definition.terms import Call, Encoded, Rounding, products
from tests.fuzz.definition.visibility import seen_pairs

ROTATIONS: dict[str, Rotation] = {
    "RoPE": rotary.rope, "XPos": rotary.xpos, "AxialRoPE": grid_rotary.axial, "MRoPE": grid_rotary.mrope,
    "VJEPARoPE": grid_rotary.vjepa, "MixedRoPE": grid_rotary.mixed, "LieRE": grid_rotary.liere,
    "ComRoPEAP": grid_rotary.comrope, "ComRoPELD": grid_rotary.comrope, "RoPEpp": rotary.rope_pp,
    "GRAPEM": rotary.grape_m, "FoPE": rotary.fope, "PoPE": polar.pope, "TAPE": tape.tape,
}  # fmt: skip
BIASES: dict[str, Bias] = {
    "ALiBi": bias.alibi, "T5Bias": bias.t5, "KERPLE": bias.kerple, "Sandwich": bias.sandwich, "FIRE": bias.fire,
    "DistanceMLP": bias.distance_mlp, "LogCPB": grid_bias.log_cpb, "SwinBias": grid_bias.swin,
    "BEiTBias": grid_bias.beit, "ALiBi2D": grid_bias.alibi_2d, "T5GridBias": grid_bias.t5_grid,
}  # fmt: skip
SCORES: dict[str, Score] = {
    "Shaw": score.shaw, "TransformerXL": score.transformer_xl, "CoPE": score.cope, "ForgetGate": score.forget,
    "DataDependentALiBi": score.data_alibi, "SSMax": score.ssmax, "LogN": score.log_n,
    "StepTemperature": score.step_temperature, "PowerTemperature": score.power_temperature,
    "TokenRelativeBias": score.token_relative, "PaTH": path.path, "DAPE": partial(dape, biases=BIASES),
    "DecomposedRelative": grid_bias.decomposed, "KERPLEWeight": partial(kernel, biases=BIASES), "GRAPEA": score.grape_a,
    "SelectiveRoPE": between.selective_rope, "GRAPEContext": between.grape_context, "GRAPEAP": between.grape_ap,
}  # fmt: skip
READS: dict[str, Read] = {"Shaw": score.shaw_values}


def members_of(encoded: Encoded) -> Members:
    return Members(encoded, ROTATIONS, BIASES, SCORES, READS)


SCORES["Mixture"] = lambda encoded, scores, call: members_of(encoded).mixed(scores, call)
READS["Mixture"] = lambda encoded, weights, call: members_of(encoded).read(weights, call)
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
    whole = seen_pairs(*flat, of_queries, of_keys, full, heads=heads, causal=causal, window=None)
    used = whole.any(1).any(1)
    size = q.shape[-1] ** -0.5 if scale is None else float(scale)
    call = Call(
        q, k, v, q_at, k_at, x, sees, known, used, of_queries, of_keys, size, length, rounding or Rounding(),
        q_content=q, k_content=k, softcap=softcap,
    )  # fmt: skip
    return attend(call, encodings)


def attend(call: Call, encodings: Sequence[Encoded]) -> Tensor:
    """The data flow: rotations, products, biases, score encodings, weights, values."""
    rounding = call.rounding
    for encoded in encodings:
        if encoded.kind in ROTATIONS:
            call = ROTATIONS[encoded.kind](encoded, call)
    for encoded in encodings:
        if encoded.kind == "XPos":
            call = rotary.faded(encoded, call)
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
    instead = [encoded for encoded in encodings if encoded.kind in WEIGHTS]
    read: list[Tensor | None] = []
    sticks, sink = [e for e in instead if e.kind == "StickBreaking"], None
    if sticks:
        weights, beside = weight.stick_breaking(sticks[0], scores, call)
        read.append(beside)
    else:
        sink = weight.sink_of(instead, scores)
        weights = weight.softmax(scores, call, sink)
    read += [READS[e.kind](e, weights, call) for e in encodings if e.kind in READS]
    stored = rounding.stored(rounding.near(weights, weights.detach() + LEFT_OUT))
    values = call.for_queries(call.v)
    product = stored @ values
    if scores.requires_grad and rounding.inner:
        share = torch.where(call.sees, scores.detach().sigmoid(), 0.0) if sticks else weights.detach()
        beside = [e.parameters["vector"].detach().abs() for e in sticks if "vector" in e.parameters]
        _round_gradient(scores, weights, product, values, share, beside, rounding, sink)
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
    beside: Sequence[Tensor],
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
        sizes.extend((g.detach().abs() * vector[:, None]).sum(-1, keepdim=True) for vector in beside)

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
    found = []
    for given in (q_pos, k_pos):
        assert given is not None
        wide = given.double() if given.is_floating_point() else given.long()
        rows = wide if wide.ndim == (2 if axes == 1 else 3) else wide.unsqueeze(0)
        found.append(rows.expand(batch, *rows.shape[1:]))
    return found[0], found[1]
