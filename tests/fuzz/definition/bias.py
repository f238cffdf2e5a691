"""Biases of positions of one coordinate: what is added to the scores of query i and key j, ``(batch, heads, i, j)``."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from tests.fuzz.definition.angles import angles, geometric
from tests.fuzz.definition.rotary import FRACTION, waves
from tests.fuzz.definition.terms import Call, Encoded, Rounding, linear


def apart(call: Call) -> Tensor:
    """p_key − p_query, ``(batch, queries, keys)``, float64; differences of fractions are rounded."""
    distance = (call.k_pos[:, None, :] - call.q_pos[:, :, None]).double()
    if call.k_pos.is_floating_point() or call.q_pos.is_floating_point():
        distance = call.rounding.near(distance)
    return distance


def slopes_of(encoded: Encoded) -> list[float]:
    """ALiBi's slopes: 2^(−8h/n) for a power of two; others take every second slope of twice as many behind those."""
    given, heads = encoded.option("slopes", "press"), encoded.count("num_heads")
    most = encoded.number("max_exponent", 8.0)
    if not isinstance(given, str):
        return [float(slope) for slope in given]  # type: ignore[attr-defined]
    if given == "geometric":
        return [2.0 ** (-most * (h + 1) / heads) for h in range(heads)]
    whole = 1
    while 2 * whole <= heads:
        whole *= 2
    found = [2.0 ** (-most * (h + 1) / whole) for h in range(whole)]
    found += [2.0 ** (-most * (2 * h + 1) / (2 * whole)) for h in range(heads - whole)]
    return [max(slope, 0.01) for slope in found] if given == "kerple" else found


def alibi(encoded: Encoded, call: Call) -> Tensor:
    slopes = torch.tensor(slopes_of(encoded), dtype=torch.float64)[:, None, None]
    return call.rounding.near(-slopes * apart(call).abs().unsqueeze(1))


def bucket(distance: float, buckets: int, max_distance: int) -> int:
    """T5's bucket of a distance ≥ 0 in one direction, in whole numbers: no logarithm is ever rounded."""
    n, exact = math.floor(distance), buckets // 2
    if n < exact:
        return n
    found, wide = exact, buckets - exact
    ratio, step = Fraction(max_distance, exact), Fraction(n, exact)
    while found < buckets - 1 and step**wide >= ratio ** (found + 1 - exact):
        found += 1
    return found


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
    far = apart(call).abs().unsqueeze(1)
    power = encoded.option("kind", "log") == "power"
    p = _bounded(encoded.parameters["p"], 0.01, 2.0 if power else math.inf)[:, None, None]
    a = _bounded(encoded.parameters["a"], 0.01, math.inf)[:, None, None]
    if not power:
        return call.rounding.near(-p * (1 + a * far).log())
    logs = torch.where(far > 0, far, 1.0).log()
    value = torch.where(far > 0, -a * (p * logs).exp(), 0.0)
    return call.rounding.near(value, value.detach().abs() * (1 + (p * logs).detach().abs()))


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
