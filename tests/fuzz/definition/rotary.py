"""Rotations of queries and keys by positions on one axis, and rotations by remapped distances."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.fuzz.definition.frequencies import Frequencies, angles, frequencies, geometric, lengths_of, spans_length
from tests.fuzz.definition.terms import Call, Encoded, Rounding, products

FRACTION = 1e-4  # the frequency whose rounding in float64 is that of 64 bits of a turn
COS_ERROR = 3.0  # of cos and sin that the library makes, in units of rounding


def channels(pairs: int, layout: str) -> list[tuple[int, int]]:
    """The two channels of each pair."""
    return [(2 * j, 2 * j + 1) if layout == "interleaved" else (j, j + pairs) for j in range(pairs)]


def rotated_pairs(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    """Pairs of ``x`` (batch, heads, tokens, width) rotated by cos and sin (batch, heads | 1, tokens, pairs)."""
    columns: list[Tensor] = list(x.unbind(-1))
    for j, (first, second) in enumerate(channels(cos.shape[-1], layout)):
        a, b, c, s = x[..., first], x[..., second], cos[..., j], sin[..., j]
        columns[first], columns[second] = a * c - b * s, b * c + a * s
    return torch.stack(columns, -1)


def waves(
    angle: Tensor, rounding: Rounding, turned_by: Tensor | None = None, units: float = COS_ERROR
) -> tuple[Tensor, Tensor]:
    """cos and sin, each as wrong as rounding may make it, by so many units.

    ``turned_by`` is |position| · (|theta| + `FRACTION`): frequencies are rounded to float64 where they are scaled or
    learned, and to 64 bits of a turn, whatever the dtype of the call, so far positions turn by a little more or less.
    """
    if turned_by is not None:
        angle = rounding.of_host(angle, turned_by)
    error = torch.full_like(angle.detach(), units)
    return rounding.near(angle.cos(), error), rounding.near(angle.sin(), error)


def heads_of(theta: Tensor, heads: int) -> Tensor:
    """Rows of ``(all heads, pairs)`` for a tensor of so many heads: query heads share the row of their key head."""
    return theta[[head * theta.shape[0] // heads for head in range(heads)]]


def rope(encoded: Encoded, call: Call, *, base: float = 10_000.0) -> Call:
    """RoPE; a length-dependent one spans the declared length, or what each token's document spans."""
    lengths: tuple[list[list[float]] | None, list[list[float]] | None] = (None, None)
    if spans_length(encoded):
        if call.length is not None:
            lengths = tuple([[float(call.length)] * t.shape[1]] * t.shape[0] for t in (call.q_pos, call.k_pos))  # type: ignore[assignment]
        else:
            of_keys = (call.k_pos, call.known, call.of_keys)
            lengths = tuple(lengths_of(*of_keys, of.tolist()) for of in (call.of_queries, call.of_keys))  # type: ignore[assignment]
    built: dict[float | None, Frequencies] = {}
    for length in {None, *(n for rows in lengths if rows is not None for row in rows for n in row)}:
        built[length] = frequencies(encoded, length, base=base, rounding=call.rounding)
    layout, rounding = str(encoded.option("layout", "half")), call.rounding
    q = _rotated(call.q, call.q_pos, lengths[0], built, layout, rounding)
    k = _rotated(call.k, call.k_pos, lengths[1], built, layout, rounding)
    return replace(call, q=q, k=k)


def _rotated(
    x: Tensor,
    positions: Tensor,
    lengths: Sequence[Sequence[float]] | None,
    built: dict[float | None, Frequencies],
    layout: str,
    rounding: Rounding,
) -> Tensor:
    if lengths is None:
        return rounding.stored(_by(x, positions, built[None], layout, rounding))
    spans = torch.tensor(lengths, dtype=torch.float64)[:, None, :, None]
    out = x
    for length in sorted({n for row in lengths for n in row}):
        out = torch.where(spans == length, _by(x, positions, built[length], layout, rounding), out)
    return rounding.stored(out)


def _by(x: Tensor, positions: Tensor, spectrum: Frequencies, layout: str, rounding: Rounding) -> Tensor:
    """``x`` under one set of frequencies."""
    cos, sin = _waves_of(positions, spectrum.theta, x.shape[1], rounding)
    cos, sin = cos * spectrum.gain, sin * spectrum.gain
    if spectrum.start_theta is not None:
        early = (positions < spectrum.start)[:, None, :, None]
        start_waves = _waves_of(positions, spectrum.start_theta, x.shape[1], rounding)
        cos, sin = torch.where(early, start_waves[0], cos), torch.where(early, start_waves[1], sin)
    return rotated_pairs(x, cos, sin, layout)


def _waves_of(positions: Tensor, theta: Tensor, heads: int, rounding: Rounding) -> tuple[Tensor, Tensor]:
    """cos and sin ``(batch, heads | 1, tokens, pairs)``."""
    rows = [theta] if theta.ndim == 1 else list(heads_of(theta, heads))
    angle = torch.stack([angles(positions, row) for row in rows], 1)
    far = positions.double().abs()[:, None, :, None] * (torch.stack(rows).detach()[:, None, :] + FRACTION)
    return waves(angle, rounding, far)


def xpos(encoded: Encoded, call: Call) -> Call:
    """xPos as a rotation and a decay of each pair, which stand in the place of all rotations of a list."""
    width = encoded.count("head_dim")
    theta = geometric(encoded.number("base", 10_000.0), width // 2, width)
    layout, rounding = str(encoded.option("layout", "interleaved")), call.rounding
    parts = []
    for x, positions in ((call.q, call.q_pos), (call.k, call.k_pos)):
        cos, sin = _waves_of(positions, theta, x.shape[1], rounding)
        parts.append(rounding.stored(rotated_pairs(x, cos, sin, layout)))
    return _decayed(encoded, replace(call, q=parts[0], k=parts[1]))


def _decayed(encoded: Encoded, call: Call) -> Call:
    """xPos' decay zeta^((p_i − p_j) / scale_base) of each pair, split between query and key around any middle."""
    width, gamma = encoded.count("head_dim"), encoded.number("gamma", 0.4)
    zeta = torch.tensor([(2 * j / width + gamma) / (1 + gamma) for j in range(width // 2)], dtype=torch.float64)
    fall = torch.zeros(width, dtype=torch.float64)
    for (first, second), slope in zip(
        channels(width // 2, str(encoded.option("layout", "interleaved"))), zeta.log().tolist(), strict=True
    ):
        fall[first] = fall[second] = slope / encoded.number("scale_base", 512.0)
    both = torch.cat([call.q_pos, call.k_pos], 1).double()
    middle = (both.amax(1, keepdim=True) + both.amin(1, keepdim=True)) / 2
    parts = []
    for x, positions, sign in ((call.q, call.q_pos, 1.0), (call.k, call.k_pos, -1.0)):
        power = sign * (positions.double() - middle)[:, None, :, None] * fall
        factor = call.rounding.near(power.exp(), power.exp() * (1 + power.abs()))
        parts.append(call.rounding.stored(x * factor))
    return replace(call, q=parts[0], k=parts[1])


def rope_pp(encoded: Encoded, call: Call) -> Call:
    """RoPE++: queries of imaginary heads a quarter rotation behind, (a, b) → (b, −a), then RoPE."""
    kind, heads = encoded.option("imaginary", "odd"), call.q.shape[1]
    width, layout = encoded.count("rotary_dim", encoded.count("head_dim")), str(encoded.option("layout", "half"))
    behind = list(call.q.unbind(-1))
    for first, second in channels(width // 2, layout):
        behind[first], behind[second] = behind[second], -behind[first]
    chosen = [kind == "all" or (h % 2 == 1 if kind == "odd" else h >= heads // 2) for h in range(heads)]
    q = torch.where(torch.tensor(chosen)[:, None, None], torch.stack(behind, -1), call.q)
    return rope(encoded, replace(call, q=q))


def grape_m(encoded: Encoded, call: Call) -> Call:
    """GRAPE-M: learned frequencies, as logarithms, and the other way round."""
    theta = (encoded.parameters["log_theta"] / encoded.number("log_scale", 16.0)).exp()
    parts = []
    for x, positions in ((call.q, call.q_pos), (call.k, call.k_pos)):
        rows = heads_of(theta, x.shape[1]) if len(theta) > 1 else theta
        angle = -positions.double()[:, None, :, None] * rows[:, None]
        far = positions.double().abs()[:, None, :, None] * (rows.detach()[:, None] + FRACTION)
        cos, sin = waves(angle, call.rounding, far)
        parts.append(call.rounding.stored(rotated_pairs(x, cos, sin, str(encoded.option("layout", "half")))))
    return replace(call, q=parts[0], k=parts[1])


def fope(encoded: Encoded, call: Call) -> Call:
    """FoPE: series of the waves that training has seen in full; pairs without one rest."""
    width, parameters = encoded.count("head_dim"), encoded.parameters
    theta = geometric(encoded.number("base", 10_000.0), width // 2, width)
    theta = theta[theta >= 2 * math.pi / encoded.count("original_length")]
    of_cos = parameters["cos_coef"]
    tables = (of_cos, parameters.get("sin_coef", of_cos))
    parts = []
    for x, positions in ((call.q, call.q_pos), (call.k, call.k_pos)):
        angle = angles(positions, theta)[:, None]
        far = positions.double().abs()[:, None, :, None] * (theta + FRACTION)
        series = []
        for wave, table, rest in zip(waves(angle, call.rounding, far), tables, (1.0, 0.0), strict=True):
            rows = heads_of(table, x.shape[1]) if len(table) > 1 else table
            built = call.rounding.near(wave @ rows, torch.ones_like(wave) @ rows.detach().abs())
            series.append(F.pad(built, (0, width // 2 - built.shape[-1]), value=rest))
        if encoded.option("rest") == "doubled":
            series[1] = torch.cat([series[1][..., : of_cos.shape[-1]], 1.0 + series[1][..., of_cos.shape[-1] :]], -1)
        parts.append(call.rounding.stored(rotated_pairs(x, *series, str(encoded.option("layout", "half")))))
    return replace(call, q=parts[0], k=parts[1])


# Ranges of a method: positions of queries and of keys, and which pairs lie in it, (batch, queries, keys).
Range = tuple[Tensor, Tensor, Tensor]
Ranges = Callable[[Encoded, Tensor, Tensor, Tensor], list[Range]]


def moved(encoded: Encoded, call: Call) -> tuple[Tensor, Tensor]:
    """The products that stand in the place of q·k, times the scale and capped; and which pairs are in some range."""
    inner: Encoded = encoded.option("rotation")  # type: ignore[assignment]
    q_pos, k_pos = call.q_pos, call.k_pos
    if q_pos.is_floating_point() or k_pos.is_floating_point():
        q_pos, k_pos = q_pos.double(), k_pos.double()
    apart = q_pos[:, :, None] - k_pos[:, None, :]
    total, held = torch.zeros(()), torch.zeros(apart.shape, dtype=torch.bool)
    for of_queries, of_keys, here in MOVED[encoded.kind](encoded, q_pos, k_pos, apart):
        scaled_call = rope(inner, replace(call, q_pos=of_queries, k_pos=of_keys))
        gain = encoded.number("gain", 1.0)
        scaled_call = replace(scaled_call, q=scaled_call.q * gain, k=scaled_call.k * gain)
        products_ = products(scaled_call.q, call.for_queries(scaled_call.k), call.rounding) * call.scale
        total = torch.where(here[:, None], scaled_call.capped(products_), total)
        held = held | here
    return total, held[:, None]


def rerope(encoded: Encoded, q_pos: Tensor, k_pos: Tensor, apart: Tensor) -> list[Range]:
    window = encoded.count("window")
    far = (torch.full_like(q_pos, window), torch.zeros_like(k_pos), apart >= window)
    return [(q_pos, k_pos, apart < window), far]


def leaky(encoded: Encoded, q_pos: Tensor, k_pos: Tensor, apart: Tensor) -> list[Range]:
    window, factor = encoded.count("window"), encoded.number("factor", 16.0)
    far = (q_pos.double() / factor + (window - window / factor), k_pos.double() / factor, apart >= window)
    return [(q_pos, k_pos, apart < window), far]


def self_extend(encoded: Encoded, q_pos: Tensor, k_pos: Tensor, apart: Tensor) -> list[Range]:
    window, group = encoded.count("window"), encoded.count("group")
    full = q_pos.div(group, rounding_mode="floor") + (window - window // group)
    return [(q_pos, k_pos, apart < window), (full, k_pos.div(group, rounding_mode="floor"), apart >= window)]


def dual_chunk(encoded: Encoded, q_pos: Tensor, k_pos: Tensor, apart: Tensor) -> list[Range]:
    size = encoded.count("size")
    chunk = size - encoded.count("local")
    number = q_pos.div(chunk, rounding_mode="floor")[:, :, None] - k_pos.div(chunk, rounding_mode="floor")[:, None]
    queries, keys = q_pos.remainder(chunk), k_pos.remainder(chunk)
    last = torch.full_like(q_pos, min(2 * chunk - 1, size))
    return [
        (queries, keys, number < 1),
        ((queries + chunk).clamp(max=size), keys, number == 1),
        (last, keys, number > 1),
    ]


def string(encoded: Encoded, q_pos: Tensor, k_pos: Tensor, apart: Tensor) -> list[Range]:
    shift, local = encoded.count("shift"), encoded.count("local")
    return [(q_pos, k_pos, apart < shift), (q_pos - (shift - local), k_pos, apart >= shift)]


def lm_infinite(encoded: Encoded, q_pos: Tensor, k_pos: Tensor, apart: Tensor) -> list[Range]:
    window = encoded.count("window")
    limit = window if encoded.option("limit") is None else encoded.count("limit")
    far = apart >= window
    if encoded.option("sinks") is not None:
        far = far & (k_pos < encoded.count("sinks"))[:, None]
    return [(q_pos, k_pos, apart < window), (torch.full_like(q_pos, limit), torch.zeros_like(k_pos), far)]


def streaming(encoded: Encoded, q_pos: Tensor, k_pos: Tensor, apart: Tensor) -> list[Range]:
    window, sinks = encoded.count("window"), encoded.count("sinks")
    far = (apart >= window) & (k_pos < sinks)[:, None]
    return [(q_pos, k_pos, apart < window), (q_pos.clamp(max=sinks + window - 1), k_pos, far)]


MOVED: dict[str, Ranges] = {
    "ReRoPE": rerope, "LeakyReRoPE": leaky, "SelfExtend": self_extend, "DualChunk": dual_chunk, "STRING": string,
    "LMInfinite": lm_infinite, "StreamingLLM": streaming,
}  # fmt: skip
