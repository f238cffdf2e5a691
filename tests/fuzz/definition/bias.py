"""Biases by distance, and by the offset between two places of a grid."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import torch
from torch import Tensor

from tests.fuzz.definition.frequencies import angles, geometric
from tests.fuzz.definition.grid_rotary import places
from tests.fuzz.definition.rotary import FRACTION, waves
from tests.fuzz.definition.terms import Call, Encoded, Rounding, linear, products


def apart(call: Call) -> Tensor:
    """p_key − p_query, ``(batch, queries, keys)``, float64; differences of fractions are rounded."""
    distance = (call.k_pos[:, None, :] - call.q_pos[:, :, None]).double()
    if call.k_pos.is_floating_point() or call.q_pos.is_floating_point():
        distance = call.rounding.near(distance)
    return distance


def slopes_of(encoded: Encoded) -> list[float]:
    """ALiBi's slopes: 2^(−8h/n) for a power of two; others take every second slope of twice as many behind those."""
    inputs, heads = encoded.option("slopes", "press"), encoded.count("num_heads")
    most = encoded.number("max_exponent", 8.0)
    if not isinstance(inputs, str):
        return [float(slope) for slope in inputs]  # type: ignore[attr-defined]
    if inputs == "geometric":
        return [2.0 ** (-most * (h + 1) / heads) for h in range(heads)]
    full = 1
    while 2 * full <= heads:
        full *= 2
    slopes = [2.0 ** (-most * (h + 1) / full) for h in range(full)]
    slopes += [2.0 ** (-most * (2 * h + 1) / (2 * full)) for h in range(heads - full)]
    return [max(slope, 0.01) for slope in slopes] if inputs == "kerple" else slopes


def alibi(encoded: Encoded, call: Call) -> Tensor:
    slopes = torch.tensor(slopes_of(encoded), dtype=torch.float64)[:, None, None]
    return call.rounding.near(-slopes * apart(call).abs().unsqueeze(1))


def bucket(distance: float, buckets: int, max_distance: int) -> int:
    """T5's bucket of a distance ≥ 0 in one direction, in whole numbers: no logarithm is ever rounded."""
    n, exact = math.floor(distance), buckets // 2
    if n < exact:
        return n
    index, wide = exact, buckets - exact
    ratio, step = Fraction(max_distance, exact), Fraction(n, exact)
    while index < buckets - 1 and step**wide >= ratio ** (index + 1 - exact):
        index += 1
    return index


def t5(encoded: Encoded, call: Call) -> Tensor:
    table, both = encoded.parameters["weight"], bool(encoded.option("bidirectional", False))
    buckets, most = encoded.count("num_buckets", 32), encoded.count("max_distance", 128)
    one_way = buckets // 2 if both else buckets
    distance = apart(call)
    known: dict[float, int] = {}
    for d in set(distance.flatten().tolist()):
        row = bucket(abs(d) if both else max(-d, 0.0), one_way, most)
        known[d] = row + one_way if both and d > 0 else row
    rows = torch.tensor([known[d] for d in distance.flatten().tolist()]).view(distance.shape)
    return call.rounding.near((table[rows] * encoded.number("bias_scale", 1.0)).movedim(-1, 1))


def _bounded(parameter: Tensor, least: float, most: float) -> Tensor:
    """Inside its bounds, with the gradient of the bounded value."""
    return parameter + (parameter.detach().clamp(least, most) - parameter.detach())


def kerple(encoded: Encoded, call: Call) -> Tensor:
    if encoded.option("kind") == "bam":
        return bam(encoded, call)
    far = apart(call).abs().unsqueeze(1)
    power = encoded.option("kind", "log") == "power"
    p = _bounded(encoded.parameters["p"], 0.01, 2.0 if power else math.inf)[:, None, None]
    a = _bounded(encoded.parameters["a"], 0.01, math.inf)[:, None, None]
    if not power:
        return call.rounding.near(-p * (1 + a * far).log())
    logs = torch.where(far > 0, far, 1.0).log()
    value = torch.where(far > 0, -a * (p * logs).exp(), 0.0)
    return call.rounding.near(value, value.detach().abs() * (1 + (p * logs).detach().abs()))


def bam(encoded: Encoded, call: Call) -> Tensor:
    parameters, away = {n: p[:, None, None] for n, p in encoded.parameters.items()}, apart(call).unsqueeze(1)
    if "mu" in parameters:
        shift = parameters["mu"].exp() - (-parameters["mu"]).exp()
        away = call.rounding.near(away - shift, away.abs() + shift.detach().abs())
    logs = call.rounding.near(away.abs() + 1e-5).log()
    value = -(parameters["log_a"] + parameters["p"] * logs).exp()
    size = 1 + (parameters["p"] * logs).detach().abs() + parameters["log_a"].detach().abs()
    return call.rounding.near(value, value.detach().abs() * size)


def sandwich(encoded: Encoded, call: Call) -> Tensor:
    heads, dim, start = encoded.count("num_heads"), encoded.count("dim", 128), encoded.count("start", 0)
    theta = geometric(10_000.0, dim // 2, dim, first=start)
    distance = apart(call)
    turned_by = distance.abs().unsqueeze(-1) * (theta + FRACTION)
    total = waves(angles(distance, theta), call.rounding, turned_by)[0].sum(-1).unsqueeze(1)
    strength = torch.tensor([heads / (8.0 * (h + 1)) for h in range(heads)], dtype=torch.float64)[:, None, None]
    return call.rounding.near(total * strength, strength * dim)


def fire(encoded: Encoded, call: Call) -> Tensor:
    parameters, rounding = encoded.parameters, call.rounding

    def psi(tokens: Tensor) -> Tensor:
        logarithm = (parameters["c"] * tokens).abs().log1p()
        return rounding.near(logarithm, 3 * logarithm.abs())

    limit = (parameters["multiplier"] * encoded.number("threshold", 512.0)).abs()
    floor = psi(torch.maximum(call.q_pos.double(), limit)).unsqueeze(-1) + 1e-6
    ratio = rounding.near(psi(apart(call).abs()) / floor)
    units = linear(ratio[..., None], parameters["inner.weight"], parameters["inner.bias"], rounding).relu()
    return linear(units, parameters["outer.weight"], parameters["outer.bias"], rounding).movedim(-1, 1)


def distance_mlp(encoded: Encoded, call: Call) -> Tensor:
    parameters, rounding = encoded.parameters, call.rounding
    x = -apart(call)
    if encoded.option("log", True):
        x = rounding.near(x.sign() * (1 + x.abs()).log())
    x, layers = x.unsqueeze(-1), encoded.count("layers", 2)
    for layer in range(layers):
        x = linear(x, parameters[f"linears.{layer}.weight"], parameters[f"linears.{layer}.bias"], rounding)
        if encoded.option("norm", False):
            x = _layer_norm(x, parameters[f"norms.{layer}.weight"], parameters.get(f"norms.{layer}.bias"), rounding)
        x = rounding.bent(x, x * x.sigmoid(), 1 + x.detach().abs())
    return linear(x, parameters[f"linears.{layers}.weight"], parameters[f"linears.{layers}.bias"], rounding).movedim(
        -1, 1
    )


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, rounding: Rounding) -> Tensor:
    size = x.detach().abs().amax(-1, keepdim=True).expand_as(x)
    centred = rounding.near(x - x.mean(-1, keepdim=True), 2 * size)
    unit = centred / rounding.near((centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()) * weight
    return rounding.near(unit if bias is None else unit + bias)


def log_cpb(encoded: Encoded, call: Call) -> Tensor:
    return log_cpb_of(encoded, -apart(call).unsqueeze(-1), call.rounding)


def log_cpb_of(encoded: Encoded, offset: Tensor, rounding: Rounding) -> Tensor:
    """Of differences p_query − p_key ``(batch, queries, keys, axes)``."""
    axes, parameters = offset.shape[-1], encoded.parameters
    swin = encoded.option("kind", "swin") == "swin"
    if swin:
        window = encoded.option("window", 8.0)
        windows = [float(w) for w in window] if isinstance(window, list | tuple) else [float(window)] * axes  # type: ignore[arg-type]
        offset = offset * torch.tensor([8.0 / (w - 1) for w in windows], dtype=torch.float64)
    c = offset.sign() * (1 + offset.abs()).log()
    c = rounding.near(c / math.log(8) if swin else c)
    units = linear(c, parameters["inner_weight"], parameters["inner_bias"], rounding).relu()
    out = linear(units, parameters["outer_weight"], None, rounding).movedim(-1, 1)
    return rounding.near(16 * rounding.bent(out, out.sigmoid())) if swin else out


def offsets(encoded: Encoded, call: Call, axes: int) -> tuple[Tensor, Tensor, Tensor]:
    """p_query − p_key ``(batch, queries, keys, axes)``; which queries and which keys have no place."""
    (at_q, lost_q), (at_k, lost_k) = places(call.q_pos, axes), places(call.k_pos, axes)
    offset = (at_q[:, :, None] - at_k[:, None]).double()
    if call.q_pos.is_floating_point() or call.k_pos.is_floating_point():
        offset = call.rounding.near(offset)
    return offset, lost_q[:, None, :, None], lost_k[:, None, None, :]


def _nothing_for_lost(bias: Tensor, lost_q: Tensor, lost_k: Tensor) -> Tensor:
    return torch.where(lost_q | lost_k, 0.0, bias)


def window_of(encoded: Encoded) -> list[int]:
    return list(encoded.option("window"))  # type: ignore[call-overload]


def looked_up(table: Tensor, offset: Tensor, window: list[int]) -> Tensor:
    """Numbers of a table: the edge's beyond the window, in proportion between, ``(batch, heads, queries, keys)``."""
    places_ = [(offset[..., a] + w - 1).clamp(0, 2 * w - 2) for a, w in enumerate(window)]
    total = torch.zeros(())
    for corner in product((0, 1), repeat=len(window)):
        row, share = torch.zeros(offset.shape[:-1], dtype=torch.long), torch.ones(offset.shape[:-1]).double()
        for at, up, w in zip(places_, corner, window, strict=True):
            low = at.floor()
            share = share * ((at - low) if up else 1 - (at - low))
            row = row * (2 * w - 1) + (low + up).clamp(max=2 * w - 2).long()
        total = total + table[row] * share.unsqueeze(-1)
    return total.movedim(-1, 1)


def swin(encoded: Encoded, call: Call) -> Tensor:
    window = window_of(encoded)
    offset, lost_q, lost_k = offsets(encoded, call, len(window))
    return call.rounding.near(_nothing_for_lost(looked_up(encoded.parameters["table"], offset, window), lost_q, lost_k))


def beit(encoded: Encoded, call: Call) -> Tensor:
    window, table = window_of(encoded), encoded.parameters["table"]
    offset, lost_q, lost_k = offsets(encoded, call, len(window))
    bias = looked_up(table[:-3], offset, window)
    from_none, to_none, between = (row[None, :, None, None] for row in table[-3:])
    bias = torch.where(lost_q & ~lost_k, from_none, bias)
    bias = torch.where(lost_k & ~lost_q, to_none, bias)
    return call.rounding.near(torch.where(lost_q & lost_k, between, bias))


def alibi_2d(encoded: Encoded, call: Call) -> Tensor:
    offset, lost_q, lost_k = offsets(encoded, call, encoded.count("axes", 2))
    far = offset.square().sum(-1).sqrt().unsqueeze(1)
    slopes = torch.tensor(slopes_of(encoded), dtype=torch.float64)[:, None, None]
    return call.rounding.near(_nothing_for_lost(-slopes * far, lost_q, lost_k), 4 * slopes * far)


def t5_grid(encoded: Encoded, call: Call) -> Tensor:
    """T5's buckets of the difference along each axis, of key − query, cut to whole numbers towards 0."""
    axes, rounding = encoded.count("axes", 2), call.rounding
    offset, lost_q, lost_k = offsets(encoded, call, axes)
    buckets, longest, factors = (_of_each(encoded.option(n, d), axes) for n, d in GRID_BUCKETS.items())
    total, first = torch.zeros(()), 0
    for axis in range(axes):
        apart = -offset[..., axis] * factors[axis]
        if call.q_pos.is_floating_point() or call.k_pos.is_floating_point():
            apart = rounding.near(apart)
        half, rows = int(buckets[axis]) // 2, []
        for d in apart.trunc().flatten().tolist():
            rows.append(first + (half if d > 0 else 0) + bucket(abs(d), half, int(longest[axis])))
        total = total + encoded.parameters["weight"][torch.tensor(rows).view(apart.shape)]
        first += 2 * half
    total = rounding.near(total, encoded.parameters["weight"].detach().abs().amax(0) * axes)
    bias = (total * encoded.number("bias_scale", 1.0)).movedim(-1, 1)
    return rounding.near(_nothing_for_lost(bias, lost_q, lost_k))


GRID_BUCKETS = {"num_buckets": 64, "max_distance": 256, "factor": 1.0}


def _of_each(inputs: object, axes: int) -> list[float]:
    return [float(item) for item in inputs] if isinstance(inputs, tuple) else [float(inputs)] * axes  # type: ignore[arg-type]


def decomposed(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    """What each query reads in a table an axis; the edge's rows beyond the window, in proportion between rows."""
    window, rounding = window_of(encoded), call.rounding
    offset, lost_q, lost_k = offsets(encoded, call, len(window))
    by_rows = products(call.q, encoded.parameters["table"], rounding)
    added, first = torch.zeros_like(scores), 0
    for axis, w in enumerate(window):
        at = (offset[..., axis] + w - 1).clamp(0, 2 * w - 2)
        low = at.floor()
        for row, share in ((low, 1 - (at - low)), ((low + 1).clamp(max=2 * w - 2), at - low)):
            index = (first + row).long()[:, None].expand(-1, scores.shape[1], -1, -1)
            added = added + by_rows.gather(-1, index) * share[:, None]
        first += 2 * w - 1
    size = by_rows.detach().abs().amax(-1, keepdim=True) * len(window)
    return rounding.near(scores + torch.where(lost_q | lost_k, 0.0, rounding.near(added, size)))


def grid_log_cpb(encoded: Encoded, call: Call) -> Tensor:
    offset, lost_q, lost_k = offsets(encoded, call, encoded.count("axes", 1))
    return _nothing_for_lost(log_cpb_of(encoded, offset, call.rounding), lost_q, lost_k)
