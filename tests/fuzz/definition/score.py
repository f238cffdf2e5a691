"""Encodings that read or change scores, among them those that read the tokens between a key and its query."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.fuzz.definition.bias import slopes_of
from tests.fuzz.definition.frequencies import angles, geometric
from tests.fuzz.definition.rotary import FRACTION, rotated_pairs, waves
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
        built = linear(torch.cat([sin, cos], -1), parameters["weight"], None, rounding)
        projected = built.view(-1, heads, width).transpose(0, 1)
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
    """Counting from the newest key back, key by key; a hidden key does not count."""
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
    logits = products(q, k, rounding) * call.scale
    gates = torch.where(call.sees, rounding.near(rounding.bent(logits, logits.sigmoid())), 0.0)
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
    total, sums = torch.zeros(counted.shape[:-1], dtype=torch.float64), [torch.zeros(())] * counted.shape[-1]
    for j in reversed(range(counted.shape[-1])):
        sums[j] = total
        total = total + torch.where(counted[..., j], gates[..., j], 0.0)
    return call.rounding.near(torch.stack(sums, -1))


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
    own_key = call.key_index[:, None]
    if form == "rows":
        width = encoded.count("gate_dim", 8)
        of_queries, of_keys = (part.unflatten(-1, (heads, width)).transpose(1, 2) for part in projected.chunk(2, -1))
        actual = of_queries[:, :, call.key_index.clamp(min=0)]
        gates = _log_sigmoid(products(actual, of_keys, call.rounding) * width**-0.5, call) * factor
        counted = call.sees & (keys < own_key)
        through = decays(gates, counted, call) + torch.where(counted, gates, 0.0)  # l = j counts as well
        return call.rounding.near(scores + through)
    parts = [_log_sigmoid(part, call) * factor for part in projected.transpose(1, 2).split(heads, 1)]
    if form == "causal":
        return call.rounding.near(scores + decays(parts[0].unsqueeze(2), call.sees, call))
    before = decays(parts[0].unsqueeze(2), call.sees & (keys <= own_key), call)
    ahead, total = [], torch.zeros(scores.shape[:-1], dtype=torch.float64)
    for j in range(scores.shape[-1]):  # from the query on: its own later gates
        total = total + torch.where((call.sees & (keys > own_key))[..., j], parts[1][..., None, j], 0.0)
        ahead.append(total)
    after = call.rounding.near(torch.stack(ahead, -1))
    return call.rounding.near(scores + torch.where(keys < own_key, before, torch.where(keys > own_key, after, 0.0)))


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
    rounding, max_distance = call.rounding, encoded.count("max_distance")
    heads, queries = scores.shape[1], scores.shape[2]
    built = linear(call.x, encoded.parameters["weight"], None, rounding)
    built = built.view(*built.shape[:2], heads, -1).transpose(1, 2)[:, :, call.key_index.clamp(min=0)]
    by_row = products(built, encoded.parameters["profiles"].T, rounding)
    assert by_row.shape[2] == queries
    away = distances(call)[:, None]
    near = (away >= 0) & (away < max_distance)
    terms = by_row.gather(-1, away.clamp(0, max_distance - 1).expand(*scores.shape))
    size = by_row.detach().abs().amax(-1, keepdim=True)
    return rounding.near(scores + torch.where(near, rounding.near(terms, size), 0.0))


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


TOGETHER = 64  # tokens whose reflections are found at once: each as exact as the largest of them


def path(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    """s_ij + scale · (q_i H_i … H_{j+1} k_j − q_i·k_j), H_t = I − beta_t w_t w_tᵀ."""
    assert call.x is not None
    parameters, rounding = encoded.parameters, call.rounding
    width, num_kv_heads, conv = encoded.count("head_dim"), encoded.count("num_kv_heads"), encoded.count("conv", 3)
    x = call.x
    strength = linear(x, parameters["beta_weight"], parameters["beta_bias"], rounding)
    beta = 2 * rounding.bent(strength, strength.sigmoid())
    low = linear(x, parameters["down"], None, rounding) if "down" in parameters else x
    raw = linear(low, parameters["up"], None, rounding)  # (batch, keys, num_kv_heads · width)
    taps, before = parameters["taps"], predecessors(call)
    rows = []
    for row in range(x.shape[0]):
        tokens = []
        for t in range(x.shape[1]):
            total, size, at = torch.zeros(()), torch.zeros(()), t
            for step in range(conv):
                if at < 0:
                    break
                total = total + taps[step] * raw[row, at]
                size = size + (taps[step] * raw[row, at]).detach().abs()
                at = before[row][at]
            tokens.append(rounding.near(total, size))
        rows.append(torch.stack(tokens))
    mixed = torch.stack(rows)
    bent = rounding.bent(mixed, mixed * mixed.sigmoid(), 1 + mixed.detach().abs())
    w = bent.unflatten(-1, (num_kv_heads, width)).transpose(1, 2)
    w = rounding.near(w / rounding.near((w.square().sum(-1, keepdim=True) + 1e-6).sqrt()))
    reflects = torch.where(call.sees.any(1).any(1), 1.0, 0.0)  # tokens that no query may see do nothing
    beta = beta.transpose(1, 2) * reflects.unsqueeze(1)
    of_heads = [h * num_kv_heads // call.q.shape[1] for h in range(call.q.shape[1])]
    w, beta, k = w[:, of_heads], beta[:, of_heads], call.for_queries(call.k)
    left, parts, sizes = call.q, [torch.zeros(())] * k.shape[2], list[Tensor]()
    for j in reversed(range(k.shape[2])):
        parts[j] = products(left, k[:, :, j : j + 1], rounding).squeeze(-1)
        met = (call.key_index >= j)[:, None]
        along = products(left, w[:, :, j : j + 1], rounding) * beta[:, :, j, None, None]
        sizes.append(left.detach().abs().amax(-1, keepdim=True))
        largest = torch.stack(sizes[-TOGETHER:]).amax(0)
        left = rounding.near(torch.where(met, left - along * w[:, :, j : j + 1], left), 10 * largest)
    bare = call.scale * products(call.q, k, rounding)
    changed = call.capped(call.scale * torch.stack(parts, -1)) - call.capped(bare)
    return rounding.near(scores + changed, bare.detach().abs())


def predecessors(call: Call) -> list[list[int]]:
    """The token before each key in its text, ``[batch][keys]``: the newest earlier known one of its document, or −1."""
    rows = []
    for documents, known in zip(call.of_keys.tolist(), call.known.tolist(), strict=True):
        row = []
        for t in range(len(documents)):
            earlier = [s for s in range(t) if known[s] and documents[s] == documents[t]]
            row.append(earlier[-1] if earlier else -1)
        rows.append(row)
    return rows


def selective_rope(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    """Queries and keys rotated by the temperature times the sum of what tokens up to them say."""
    steps = _silent_unused(_steps(encoded, call), call)
    sums, sizes = _sums(steps)
    learned = encoded.parameters.get("temperature")
    temperature = torch.tensor(_temperatures(encoded), dtype=torch.float64) if learned is None else learned
    angle = call.rounding.of_host(sums * temperature, sizes * temperature.detach().abs())
    return _in_their_place(scores, angle, call)


def repo(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    """Queries and keys rotated by RoPE's frequencies times the positions that a network makes of their tokens."""
    assert call.x is not None
    parameters, rounding, width = encoded.parameters, call.rounding, encoded.count("head_dim")
    gate, content = (linear(call.x, parameters[name], None, rounding) for name in ("gate", "content"))
    gate = rounding.near(rounding.bent(gate, gate * gate.sigmoid(), 1 + gate.detach().abs()))
    chosen = linear(rounding.near(gate * content), parameters["final"], None, rounding).transpose(1, 2).unsqueeze(-1)
    theta = geometric(encoded.number("base", 10_000.0), width // 2, width)
    return _in_their_place(scores, rounding.of_host(chosen * theta, chosen.detach().abs() * theta), call)


def grape_context(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    """Queries and keys rotated back by learned frequencies times the steps of all tokens before them."""
    assert call.x is not None
    parameters, rounding = encoded.parameters, call.rounding
    logits = linear(call.x, parameters["weight"], parameters["bias"], rounding) / encoded.number("omega_scale", 16.0)
    steps = rounding.near(rounding.bent(logits, logits.sigmoid())).transpose(1, 2)[
        ..., None
    ]  # (batch, phases, keys, 1)
    steps = _silent_unused(steps, call)
    sums, sizes = _sums(steps)
    theta = parameters["log_theta"].exp().unsqueeze(-2)  # (heads | 1, 1, pairs)
    angle = rounding.of_host(-(sums - steps) * theta, sizes * (theta.detach() + FRACTION))
    return _in_their_place(scores, angle, call)


def grape_ap(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    """What a query says of each token that it sees after a key, added up."""
    rounding, width = call.rounding, encoded.count("path_dim")
    if encoded.option("tie", "none") == "key":
        p = call.for_queries(call.k)
    else:
        assert call.x is not None
        built = linear(call.x, encoded.parameters["weight"], None, rounding)
        p = built.unflatten(-1, (-1, width)).transpose(1, 2)
    mean = rounding.near(p.square().mean(-1, keepdim=True) + rounding.least)
    unit = rounding.near(p / rounding.near(mean.sqrt()))
    radian = torch.ones(width // 2, dtype=torch.float64)
    far = call.k_pos.double().abs()[:, None, :, None] * (radian + FRACTION)
    cos, sin = waves(-angles(call.k_pos, radian)[:, None], rounding, far)
    logits = products(p[:, :, call.key_index], rotated_pairs(unit, cos, sin, "half"), rounding) / width
    gates = rounding.near(rounding.bent(logits, F.logsigmoid(logits)))
    slopes = torch.tensor(slopes_of(Encoded("ALiBi", {"num_heads": scores.shape[1]})), dtype=torch.float64)
    return rounding.near(scores + slopes[:, None, None] * decays(gates, call.sees, call))


def _steps(encoded: Encoded, call: Call) -> Tensor:
    """How far each token rotates all that follows, before the temperature, ``(batch, num_kv_heads, keys, pairs)``."""
    assert call.x is not None
    parameters, rounding, num_kv_heads = encoded.parameters, call.rounding, encoded.count("num_kv_heads")
    shares = call.x.unflatten(-1, (num_kv_heads, -1))
    length = rounding.near((rounding.near(shares.square().sum(-1, keepdim=True)) + 1e-6).sqrt())
    shares = rounding.near(shares / length)
    steps = _angle_steps(encoded, shares, call)
    if encoded.option("taps", 4) is None:
        phi = rounding.near(steps - _before(steps, call), steps.detach().abs() + _before(steps, call).detach().abs())
    else:
        taps = parameters["taps"].unflatten(-1, (num_kv_heads, -1)).unsqueeze(-2)  # (taps, num_kv_heads, 1, pairs)
        phi, back, size = torch.zeros(()), steps, torch.zeros(())
        for step, tap in enumerate(taps):
            back = _before(back, call) if step else back
            phi, size = phi + tap * back, size + (tap * back).detach().abs()
        phi = rounding.near(phi, size)
        if encoded.option("activation", False):
            phi = rounding.near(rounding.bent(phi, phi * phi.sigmoid(), 1 + phi.detach().abs()))
    if encoded.option("bias", False):
        phi = rounding.near(phi + parameters["bias"].exp().unsqueeze(-2))
    return phi if encoded.option("gate") is None else rounding.near(phi * _gate(encoded, shares, call))


def _angle_steps(encoded: Encoded, shares: Tensor, call: Call) -> Tensor:
    """What tokens say by shares ``(batch, keys, num_kv_heads, share)``, as ``(batch, num_kv_heads, keys, pairs)``."""
    up, rounding = encoded.parameters["up"], call.rounding
    if encoded.option("rank", 16) is not None:
        low = linear(shares.flatten(2), encoded.parameters["down"], None, rounding)
        return linear(low, up, None, rounding).unflatten(-1, (shares.shape[2], -1)).transpose(1, 2)
    columns = rounding.near(up / rounding.near(up.norm(dim=1, keepdim=True).clamp(min=1e-12)))
    of_heads = rounding.near(columns * encoded.parameters["lengths"][:, None, None])  # (num_kv_heads, share, pairs)
    return products(shares.transpose(1, 2), of_heads.mT, rounding)


def _gate(encoded: Encoded, shares: Tensor, call: Call) -> Tensor:
    """Between 0 and 1, ``(batch, num_kv_heads, keys, 1 | pairs)``."""
    parameters, rounding, seen = encoded.parameters, call.rounding, shares.flatten(2)
    if encoded.option("gate") == "pair":
        seen = linear(seen, parameters["gate_down"], None, rounding)
    logits = linear(seen, parameters["gate_up"], parameters["gate_bias"], rounding)
    gates = rounding.near(rounding.bent(logits, logits.sigmoid()))
    return gates.unflatten(-1, (shares.shape[2], -1)).transpose(1, 2)


def _temperatures(encoded: Encoded) -> list[float]:
    base, width, most = encoded.number("base", 500_000.0), encoded.count("head_dim"), encoded.number("temperature", 1.0)
    if base > 1:
        return [most * float(t) for t in geometric(base, width // 2, width)]
    last = width // 2 - 1
    return [most * math.tan(base * math.pi / 2 * j / last) / math.tan(base * math.pi / 2) for j in range(last + 1)]


def _before(x: Tensor, call: Call) -> Tensor:
    """What the token before each one in its text has, ``(batch, heads, keys, width)``; 0 where there is none."""
    rows = []
    for row, at in zip(x, predecessors(call), strict=True):
        none = torch.tensor(at)[:, None] < 0
        rows.append(torch.where(none, 0.0, row[:, at]))
    return torch.stack(rows)


def _silent_unused(steps: Tensor, call: Call) -> Tensor:
    """Tokens that no query of the call may see add nothing."""
    return torch.where(call.used[:, None, :, None], steps, 0.0)


def _sums(steps: Tensor) -> tuple[Tensor, Tensor]:
    """Over all tokens up to each one, of the steps and of their sizes."""
    total, sums = torch.zeros(()), list[Tensor]()
    for step in steps.unbind(2):
        total = total + step
        sums.append(total)
    return torch.stack(sums, 2), steps.detach().abs().sum(2, keepdim=True).expand_as(steps)


def _in_their_place(scores: Tensor, angle: Tensor, call: Call) -> Tensor:
    """Scores with products of queries and keys that are rotated by angles ``(batch, num_kv_heads | 1, keys, pairs)``.

    A query before the first key, as there are where it is not among them, has not been rotated.
    """
    rounding, rows = call.rounding, angle.shape[1]
    begun = (call.key_index >= 0)[:, None]
    of_queries = torch.where(begun, angle[:, :, call.key_index.clamp(min=0)], 0.0)
    parts = []
    for x, at in ((call.q, of_queries), (call.k, angle)):
        of_heads = at[:, [head * rows // x.shape[1] for head in range(x.shape[1])]]
        cos, sin = waves(of_heads, rounding)
        parts.append(rounding.stored(rotated_pairs(x, cos, sin, "half")))
    after = replace(call, q=parts[0], k=parts[1])
    bare = call.scale * products(call.q, call.for_queries(call.k), rounding)
    rotated = call.scale * products(after.q, after.for_queries(after.k), rounding)
    return rounding.near(scores + (after.capped(rotated) - call.capped(bare)), bare.detach().abs())
