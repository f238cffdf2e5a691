"""Encodings that change scores ``(batch, heads, queries, keys)`` with sight of queries, keys and tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.fuzz.definition.angles import angles, geometric
from tests.fuzz.definition.bias import slopes_of
from tests.fuzz.definition.rotary import FRACTION, waves
from tests.fuzz.definition.terms import Call, Encoded, linear, products, softplus


def content(call: Call) -> tuple[Tensor, Tensor]:
    """Queries and keys before any rotation, both with all query heads."""
    assert call.q_content is not None
    assert call.k_content is not None
    return call.q_content, call.for_queries(call.k_content)


def distances(call: Call) -> Tensor:
    """p_query − p_key ``(batch, queries, keys)``."""
    return call.q_pos[:, :, None] - call.k_pos[:, None, :]


def by_row(q: Tensor, table: Tensor, rows: Tensor, call: Call) -> Tensor:
    """q_i · table[rows_ij], for a table ``(rows, width)`` and rows ``(batch, queries, keys)``."""
    of_rows = products(q, table, call.rounding)
    if of_rows.requires_grad and call.rounding.inner:
        of_rows.register_hook(lambda g: ends_by_difference(g, call))
    return of_rows.gather(-1, rows[:, None].expand(-1, q.shape[1], -1, -1))


def shaw_rows(encoded: Encoded, call: Call) -> Tensor:
    most = encoded.count("max_distance")
    return (-distances(call)).clamp(-most, most) + most


def shaw(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    term = by_row(call.q, encoded.parameters["key_table"], shaw_rows(encoded, call), call) * call.scale
    return call.rounding.near(scores + term)


def shaw_values(encoded: Encoded, weights: Tensor, call: Call) -> Tensor | None:
    """Σ_j a_ij · value_table[r_ij]."""
    if not encoded.option("values", True):
        return None
    table, rows = encoded.parameters["value_table"], shaw_rows(encoded, call)
    by_distance = weights.new_zeros(*weights.shape[:-1], len(table))
    by_distance = by_distance.scatter_add(-1, rows[:, None].expand(weights.shape), weights)
    return ends_by_difference(by_distance, call) @ table


def ends_by_difference(by_row: Tensor, call: Call) -> Tensor:
    """What each row of a table gets, ``(…, rows)``: the first and last, of all farther distances, may be what the
    others leave of the sum."""
    ends = torch.zeros(by_row.shape[-1], dtype=by_row.dtype)
    ends[0] = ends[-1] = 1.0
    return call.rounding.near(by_row, ends * by_row.detach().abs().sum(-1, keepdim=True))


def transformer_xl(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    q, k = content(call)
    parameters, rounding = encoded.parameters, call.rounding
    heads, width = q.shape[1], q.shape[3]
    of_keys = products(parameters["u"].unsqueeze(1), k, rounding)  # u · k_j, (batch, heads, 1, keys)
    distance = distances(call)
    if encoded.option("learned_distances") is None:
        if encoded.option("clamp") is not None:
            most = encoded.count("clamp")
            distance = distance.clamp(-most, most)
        dim = encoded.count("dim")
        values, which = distance.flatten().unique(return_inverse=True)
        angle = angles(values, geometric(encoded.number("base", 10_000.0), dim // 2, dim))
        farthest = max(float(t.double().abs().amax()) for t in (call.q_pos, call.k_pos) if t.numel())
        cos, sin = waves(angle, rounding, torch.full_like(angle, farthest * FRACTION), 6.0)
        made = linear(torch.cat([sin, cos], -1), parameters["weight"], None, rounding)
        projected = made.view(-1, heads, width).transpose(0, 1)
        of_rows = products(q + parameters["v"].unsqueeze(1), projected, rounding)
        size = (q.detach() + parameters["v"].detach().unsqueeze(1)).abs().sum(-1, keepdim=True)
        of_rows = rounding.near(of_rows, size * parameters["weight"].detach().abs().sum(-1).amax())
        rows = which.view(distance.shape)
        by_distance = of_rows.gather(-1, rows[:, None].expand(-1, heads, -1, -1))
    else:
        last = encoded.count("learned_distances") - 1
        rows = distance.clamp(0, last)
        vectors = parameters["table"].transpose(0, 1)  # (heads, rows, width)
        of_rows = products(q, vectors, rounding) + parameters["table_bias"].T.unsqueeze(1)
        by_distance = of_rows.gather(-1, rows[:, None].expand(-1, heads, -1, -1))
    return rounding.near(scores + (of_keys + by_distance) * call.scale)


def cope(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    """Counting from the newest key back, key by key; a hidden key counts for nothing."""
    rounding, most = call.rounding, encoded.count("max_position")
    q, k = content(call)
    if encoded.option("rotated", False):
        q, k = call.q, call.for_queries(call.k)
    gates_by, head_dim = encoded.option("gates", "keys"), q.shape[-1]
    if gates_by == "values":
        k = call.for_queries(call.v)
    if gates_by == "separate":
        assert call.x is not None
        projected = rounding.stored(linear(call.x, encoded.parameters["gate_weight"], None, rounding))
        of_heads = projected.unflatten(-1, (-1, head_dim)).transpose(1, 2)
        k = of_heads[:, [h * of_heads.shape[1] // q.shape[1] for h in range(q.shape[1])]]
    asked = products(q, k, rounding) * call.scale
    gates = torch.where(call.sees, rounding.near(rounding.bent(asked, asked.sigmoid())), 0.0)
    z = products(q, encoded.parameters["table"].T, rounding)
    count, terms = torch.zeros(gates.shape[:-1], dtype=torch.float64), [torch.zeros(())] * gates.shape[-1]
    for j in reversed(range(gates.shape[-1])):
        count = count + gates[..., j]
        position = rounding.near(count).clamp(0.0, float(most))
        low = position.detach().floor()
        share = position - low
        first, second = low.long(), (low + 1).clamp(max=most).long()
        terms[j] = (
            z.gather(-1, first[..., None])[..., 0] * (1 - share) + z.gather(-1, second[..., None])[..., 0] * share
        )
    term = torch.stack(terms, -1)
    out = scores + (term * call.scale if encoded.option("scaled", False) else term)
    if encoded.option("relative") is not None:
        rows = distances(call).clamp(0, encoded.count("relative"))
        out = out + by_row(q, encoded.parameters["relative_table"].T, rows, call) * call.scale
    return rounding.near(out)


def decays(gates: Tensor, counted: Tensor, call: Call) -> Tensor:
    """For query i and key j the sum of the gates of counted keys l > j, ``(batch, heads, queries, keys)``.

    Args:
        gates: ``(batch, heads, queries | 1, keys)``.
        counted: bool ``(batch, heads, queries, keys)``.
    """
    total, found = torch.zeros(counted.shape[:-1], dtype=torch.float64), [torch.zeros(())] * counted.shape[-1]
    for j in reversed(range(counted.shape[-1])):
        found[j] = total
        total = total + torch.where(counted[..., j], gates[..., j], 0.0)
    return call.rounding.near(torch.stack(found, -1))


def _log_sigmoid(x: Tensor, call: Call) -> Tensor:
    return call.rounding.near(F.logsigmoid(x))


def forget(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    heads, parameters = scores.shape[1], encoded.parameters
    kind = encoded.option("kind", "data")
    if kind == "data":
        assert call.x is not None
        logits = linear(call.x, parameters["weight"], parameters["bias"], call.rounding).transpose(1, 2)
        gates = _log_sigmoid(logits, call).unsqueeze(2)
    elif kind == "bias":
        gates = _log_sigmoid(parameters["bias"], call)[:, None, None]
    else:
        first, last = (math.log(t) for t in encoded.option("decay_time"))  # type: ignore[attr-defined]
        times = [math.exp(first + (last - first) * h / max(1, heads - 1)) for h in range(heads)]
        gates = torch.tensor([-1 / t for t in times], dtype=torch.float64)[:, None, None]
    gates = gates.expand(*scores.shape[:2], 1, scores.shape[-1])
    decay = decays(gates, call.sees, call)
    return call.rounding.near(scores + (decay * call.scale if encoded.option("scaled", False) else decay))


def data_alibi(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    assert call.x is not None
    heads, parameters, factor = scores.shape[1], encoded.parameters, encoded.number("post_log_scale", 1.0)
    form, keys = encoded.option("form", "causal"), torch.arange(scores.shape[-1])
    projected = linear(call.x, parameters["weight"], parameters.get("bias"), call.rounding)
    own = call.own[:, None]
    if form == "rows":
        width = encoded.count("gate_dim", 8)
        of_queries, of_keys = (part.unflatten(-1, (heads, width)).transpose(1, 2) for part in projected.chunk(2, -1))
        mine = of_queries[:, :, call.own.clamp(min=0)]
        gates = _log_sigmoid(products(mine, of_keys, call.rounding) * width**-0.5, call) * factor
        counted = call.sees & (keys < own)
        through = decays(gates, counted, call) + torch.where(counted, gates, 0.0)  # l = j counts as well
        return call.rounding.near(scores + through)
    parts = [_log_sigmoid(part, call) * factor for part in projected.transpose(1, 2).split(heads, 1)]
    if form == "causal":
        return call.rounding.near(scores + decays(parts[0].unsqueeze(2), call.sees, call))
    before = decays(parts[0].unsqueeze(2), call.sees & (keys <= own), call)
    ahead, total = [], torch.zeros(scores.shape[:-1], dtype=torch.float64)
    for j in range(scores.shape[-1]):  # from the query on: its own later gates
        total = total + torch.where((call.sees & (keys > own))[..., j], parts[1][..., None, j], 0.0)
        ahead.append(total)
    after = call.rounding.near(torch.stack(ahead, -1))
    return call.rounding.near(scores + torch.where(keys < own, before, torch.where(keys > own, after, 0.0)))


def grape_a(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    """A bias by distance back, at a rate that keys, queries or both say."""
    parameters, rounding, width = encoded.parameters, call.rounding, call.q.shape[-1]

    def rate(x: Tensor, direction: Tensor) -> Tensor:
        if encoded.option("normalized", True):
            direction = direction / direction.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        along = products(x, direction.unsqueeze(-2), rounding)[..., 0] * width**-0.5
        return rounding.near(rounding.bent(along, softplus(along)))

    total = torch.zeros(())
    if "u" in parameters:
        total = total + rate(call.for_queries(call.k), parameters["u"]).unsqueeze(-2)
    if "v" in parameters:
        total = total + rate(call.q, parameters["v"]).unsqueeze(-1)
    slopes = torch.tensor(slopes_of(encoded), dtype=torch.float64)
    slope = (rounding.near(softplus(parameters["omega"])) * slopes)[:, None, None]
    back = distances(call).clamp(min=0).double()[:, None]
    return rounding.near(scores - rounding.near(back * slope * total))


def ssmax(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    factor = encoded.parameters["scale"].view(-1, 1) * _logs(encoded.option("count", "visible"), call)
    if encoded.option("bias", False):
        factor = factor + encoded.parameters["bias"].view(-1, 1)
    return _times(scores, factor, call)


def log_n(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    most = math.log(encoded.count("original_length"))
    beyond = (_logs(encoded.option("count", "position"), call) - most).clamp(min=0.0)
    return _times(scores, 1 + encoded.number("strength", 1 / most) * beyond, call)


def power_temperature(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    at = (call.q_pos.double() + 1).clamp(min=0.0) / encoded.count("step", 2048)
    return _times(scores, ((1 + at) ** encoded.number("power", 0.1)).unsqueeze(1), call)


def token_relative(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    assert call.x is not None
    rounding, extent = call.rounding, encoded.count("extent")
    heads, queries = scores.shape[1], scores.shape[2]
    made = linear(call.x, encoded.parameters["weight"], None, rounding)
    made = made.view(*made.shape[:2], heads, -1).transpose(1, 2)[:, :, call.own.clamp(min=0)]
    by_row = products(made, encoded.parameters["profiles"].T, rounding)
    assert by_row.shape[2] == queries
    away = distances(call)[:, None]
    near = (away >= 0) & (away < extent)
    found = by_row.gather(-1, away.clamp(0, extent - 1).expand(*scores.shape))
    size = by_row.detach().abs().amax(-1, keepdim=True)
    return rounding.near(scores + torch.where(near, rounding.near(found, size), 0.0))


def step_temperature(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    at = (call.q_pos + encoded.count("offset", 1)).double() / encoded.count("step", 8192)
    factor = 1 + encoded.number("strength", 0.1) * at.floor().clamp(min=0.0).log1p().unsqueeze(1)
    return _times(scores, factor, call)


def _logs(count: object, call: Call) -> Tensor:
    """ln n, ``(batch, heads | 1, queries)``, of the keys that a query sees, or of its position + 1."""
    n = call.sees.sum(-1) if count == "visible" else (call.q_pos.double() + 1).unsqueeze(1)
    return n.double().clamp(min=1.0).log()


def _times(scores: Tensor, factor: Tensor, call: Call) -> Tensor:
    """Scores times a factor a query, which may be taken into the query and rounded there."""
    factor = call.rounding.near(factor).unsqueeze(-1)
    sizes = call.q.detach().abs() @ call.for_queries(call.k).detach().abs().mT
    return call.rounding.stored(
        scores * factor, factor.detach().abs() * (abs(call.scale) * sizes + scores.detach().abs())
    )
