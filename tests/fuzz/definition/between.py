"""Encodings that read the tokens between a key and its query: phases that these add up, and GRAPE-AP's path."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.fuzz.definition.angles import angles, geometric
from tests.fuzz.definition.bias import slopes_of
from tests.fuzz.definition.path import predecessors
from tests.fuzz.definition.rotary import FRACTION, turned, waves
from tests.fuzz.definition.score import decays
from tests.fuzz.definition.terms import Call, Encoded, linear, products


def selective_rope(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    """Queries and keys turned by the temperature times the sum of what tokens up to them say."""
    steps = _silent_unused(_steps(encoded, call), call)
    sums, sizes = _sums(steps)
    learned = encoded.parameters.get("temperature")
    temperature = torch.tensor(_temperatures(encoded), dtype=torch.float64) if learned is None else learned
    angle = call.rounding.of_host(sums * temperature, sizes * temperature.detach().abs())
    return _in_their_place(scores, angle, call)


def grape_context(encoded: Encoded, scores: Tensor, call: Call) -> Tensor:
    """Queries and keys turned back by learned frequencies times the steps of all tokens before them."""
    assert call.x is not None
    parameters, rounding = encoded.parameters, call.rounding
    asked = linear(call.x, parameters["weight"], parameters["bias"], rounding) / encoded.number("omega_scale", 16.0)
    steps = rounding.near(rounding.bent(asked, asked.sigmoid())).transpose(1, 2)[..., None]  # (batch, phases, keys, 1)
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
        made = linear(call.x, encoded.parameters["weight"], None, rounding)
        p = made.unflatten(-1, (-1, width)).transpose(1, 2)
    mean = rounding.near(p.square().mean(-1, keepdim=True) + rounding.least)
    unit = rounding.near(p / rounding.near(mean.sqrt()))
    radian = torch.ones(width // 2, dtype=torch.float64)
    far = call.k_pos.double().abs()[:, None, :, None] * (radian + FRACTION)
    cos, sin = waves(-angles(call.k_pos, radian)[:, None], rounding, far)
    asked = products(p[:, :, call.own], turned(unit, cos, sin, "half"), rounding) / width
    gates = rounding.near(rounding.bent(asked, F.logsigmoid(asked)))
    slopes = torch.tensor(slopes_of(Encoded("ALiBi", {"num_heads": scores.shape[1]})), dtype=torch.float64)
    return rounding.near(scores + slopes[:, None, None] * decays(gates, call.sees, call))


def _steps(encoded: Encoded, call: Call) -> Tensor:
    """How far each token turns all that follows, before the temperature, ``(batch, kv_heads, keys, pairs)``."""
    assert call.x is not None
    parameters, rounding, kv_heads = encoded.parameters, call.rounding, encoded.count("kv_heads")
    shares = call.x.unflatten(-1, (kv_heads, -1))
    length = rounding.near((rounding.near(shares.square().sum(-1, keepdim=True)) + 1e-6).sqrt())
    shares = rounding.near(shares / length)
    said = _said(encoded, shares, call)
    if encoded.option("taps", 4) is None:
        phi = rounding.near(said - _before(said, call), said.detach().abs() + _before(said, call).detach().abs())
    else:
        taps = parameters["taps"].unflatten(-1, (kv_heads, -1)).unsqueeze(-2)  # (taps, kv_heads, 1, pairs)
        phi, back, size = torch.zeros(()), said, torch.zeros(())
        for step, tap in enumerate(taps):
            back = _before(back, call) if step else back
            phi, size = phi + tap * back, size + (tap * back).detach().abs()
        phi = rounding.near(phi, size)
        if encoded.option("activation", False):
            phi = rounding.near(rounding.bent(phi, phi * phi.sigmoid(), 1 + phi.detach().abs()))
    if encoded.option("bias", False):
        phi = rounding.near(phi + parameters["bias"].exp().unsqueeze(-2))
    return phi if encoded.option("gate") is None else rounding.near(phi * _gate(encoded, shares, call))


def _said(encoded: Encoded, shares: Tensor, call: Call) -> Tensor:
    """What tokens say by their shares ``(batch, keys, kv_heads, share)``, as ``(batch, kv_heads, keys, pairs)``."""
    up, rounding = encoded.parameters["up"], call.rounding
    if encoded.option("rank", 16) is not None:
        low = linear(shares.flatten(2), encoded.parameters["down"], None, rounding)
        return linear(low, up, None, rounding).unflatten(-1, (shares.shape[2], -1)).transpose(1, 2)
    columns = rounding.near(up / rounding.near(up.norm(dim=1, keepdim=True).clamp(min=1e-12)))
    of_heads = rounding.near(columns * encoded.parameters["lengths"][:, None, None])  # (kv_heads, share, pairs)
    return products(shares.transpose(1, 2), of_heads.mT, rounding)


def _gate(encoded: Encoded, shares: Tensor, call: Call) -> Tensor:
    """Between 0 and 1, ``(batch, kv_heads, keys, 1 | pairs)``."""
    parameters, rounding, seen = encoded.parameters, call.rounding, shares.flatten(2)
    if encoded.option("gate") == "pair":
        seen = linear(seen, parameters["gate_down"], None, rounding)
    asked = linear(seen, parameters["gate_up"], parameters["gate_bias"], rounding)
    gates = rounding.near(rounding.bent(asked, asked.sigmoid()))
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
    """Scores with products of queries and keys that are turned by angles ``(batch, kv_heads | 1, keys, pairs)``.

    A query before the first key, as there are where it is not among them, has not turned.
    """
    rounding, rows = call.rounding, angle.shape[1]
    begun = (call.own >= 0)[:, None]
    of_queries = torch.where(begun, angle[:, :, call.own.clamp(min=0)], 0.0)
    parts = []
    for x, at in ((call.q, of_queries), (call.k, angle)):
        of_heads = at[:, [head * rows // x.shape[1] for head in range(x.shape[1])]]
        cos, sin = waves(of_heads, rounding)
        parts.append(rounding.stored(turned(x, cos, sin, "half")))
    after = replace(call, q=parts[0], k=parts[1])
    bare = call.scale * products(call.q, call.for_queries(call.k), rounding)
    found = call.scale * products(after.q, after.for_queries(after.k), rounding)
    return rounding.near(scores + (after.capped(found) - call.capped(bare)), bare.detach().abs())
