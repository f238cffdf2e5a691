"""Exact angles, by integers of any size, and the frequencies of every scaling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache

import mpmath
import torch
from torch import Tensor

from tests.fuzz.definition.terms import Encoded, Rounding

_BITS = 320
with mpmath.workprec(_BITS + 40):
    _TURN = int(2 * mpmath.pi * mpmath.mpf(2) ** _BITS)


@lru_cache(maxsize=1 << 18)
def angle(position: float, theta: float) -> float:
    """position · theta in (−π, π], both taken as the exact numbers that they are."""
    product = Fraction(position) * Fraction(theta)
    full = (product.numerator << _BITS) // product.denominator
    rest = full % _TURN
    return float(Fraction(rest - _TURN if 2 * rest > _TURN else rest, 1 << _BITS))


def angles(positions: Tensor, theta: Tensor) -> Tensor:
    """``(*positions.shape, pairs)`` for frequencies ``(pairs,)``; exact, or differentiable where theta is learned."""
    if theta.requires_grad or theta.grad_fn is not None:
        return positions.double().unsqueeze(-1) * theta
    flat = [[angle(p, t) for t in theta.tolist()] for p in positions.flatten().tolist()]
    return torch.tensor(flat, dtype=torch.float64).view(*positions.shape, theta.shape[0])


@lru_cache(maxsize=1 << 12)
def power(base: float, numerator: int, denominator: int) -> float:
    """base^(numerator / denominator), correctly rounded."""
    with mpmath.workprec(200):
        return float(mpmath.mpf(base) ** (mpmath.mpf(numerator) / denominator))


def geometric(base: float, count: int, denominator: int, *, first: int = 0) -> Tensor:
    """base^(−2j / denominator), j = first … first + count − 1."""
    return torch.tensor([power(base, -2 * j, denominator) for j in range(first, first + count)], dtype=torch.float64)


LENGTH_DEPENDENT = {"DynamicPositionInterpolation", "DynamicNTK", "DynamicYaRN", "LongRoPE", "DynamicLongRoPE", "CLEX"}


@dataclass(frozen=True)
class Frequencies:
    """theta ``(pairs,)`` or ``(heads, pairs)``, a factor on what is rotated, and other ones for the first tokens."""

    theta: Tensor
    gain: float = 1.0
    start: int = 0
    start_theta: Tensor | None = None
    rounding: Rounding = field(default_factory=Rounding)


def chain_of(encoded: Encoded) -> list[Encoded]:
    """The scalings of a rotation, in order."""
    scaling = encoded.option("scaling")
    if scaling is None:
        return []
    return list(scaling) if isinstance(scaling, list) else [scaling]  # type: ignore[list-item]


def spans_length(encoded: Encoded) -> bool:
    """Whether the frequencies depend on how many tokens a row spans."""
    return any(
        part.kind in LENGTH_DEPENDENT and not (part.kind == "LongRoPE" and _one_set(part)) for part in chain_of(encoded)
    )


def _one_set(part: Encoded) -> bool:
    gains = part.option("short_gain") == part.option("long_gain")
    return [float(f) for f in part.option("short")] == [float(f) for f in part.option("long")] and gains  # type: ignore[attr-defined]


def frequencies(
    encoded: Encoded, length: float | None, *, base: float = 10_000.0, rounding: Rounding | None = None
) -> Frequencies:
    """Of a `RoPE` or `MRoPE` whose row spans ``length`` tokens; None: the trained length."""
    rotary = encoded.count("rotary_dim", encoded.count("head_dim"))
    theta = geometric(encoded.number("base", base), rotary // 2, rotary)
    spectrum = Frequencies(theta, rounding=rounding or Rounding())
    for part in chain_of(encoded):
        spectrum = _RULES[part.kind](part, spectrum, length)
    return spectrum


def _ratio(part: Encoded, length: float | None) -> float:
    """How many times longer than trained, at least 1."""
    return 1.0 if length is None else max(1.0, length / part.number("original_length", 1))


def _interpolated(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    return replace(was, theta=was.theta / part.number("factor", 1))


def _interpolated_by_length(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    return replace(was, theta=was.theta / _ratio(part, length))


def _spread(theta: Tensor, factor: float) -> Tensor:
    """theta_j · factor^(−2j / (d − 2))."""
    pairs = theta.shape[-1]
    return theta * torch.tensor([factor ** (-j / (pairs - 1)) for j in range(pairs)], dtype=torch.float64)


def _ntk(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    return replace(was, theta=_spread(was.theta, part.number("factor", 1)))


def _dynamic_ntk(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    ratio, factor = _ratio(part, length), part.number("factor", 1)
    if part.option("schedule", "continuous") == "powers":
        scale = 2.0 ** math.ceil(math.log2(ratio) + 1) - 1 if ratio > 1 else 1.0
    else:
        scale = max(1.0, factor * ratio - (factor - 1))
    return replace(was, theta=_spread(was.theta, scale))


def _clip(x: Tensor) -> Tensor:
    return x.clamp(0.0, 1.0)


def _by_rotations(part: Encoded, was: Frequencies, low: float, high: float) -> Frequencies:
    """Slow pairs divided by the factor, fast ones left alone, with a ramp in the full rotations of training."""
    rotations = part.number("original_length", 1) * was.theta / (2 * math.pi)
    stays = (rotations >= high).double() if low == high else _clip((rotations - low) / (high - low))
    return replace(was, theta=(1 - stays) * was.theta / part.number("factor", 1) + stays * was.theta)


def _by_parts(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    return _by_rotations(part, was, part.number("alpha", 1), part.number("beta", 32))


def _llama3(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    return _by_rotations(part, was, part.number("low_freq_factor", 1), part.number("high_freq_factor", 4))


def _index_ramp(theta: Tensor, original: float, fast: float, slow: float, *, truncate: bool) -> Tensor:
    """0 for pairs with at least ``fast`` rotations within the original length, 1 below ``slow``: a line in the index.

    theta is geometric along the pairs; ends are rounded outwards, then limited to 0 and d − 1, as in released code.
    """
    pairs = theta.shape[-1]
    logs = theta.log()
    fall = (logs[..., :1] - logs[..., -1:]) / (pairs - 1)
    low, high = ((logs[..., :1] - math.log(2 * math.pi * rotations / original)) / fall for rotations in (fast, slow))
    if truncate:
        low, high = low.floor(), high.ceil()
    low, high = low.clamp(min=0), high.clamp(max=2 * pairs - 1)
    high = torch.where(low == high, high + 0.001, high)
    return _clip((torch.arange(pairs, dtype=torch.float64) - low) / (high - low))


def _part_ntk(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    theta, factor, original = was.theta, part.number("factor", 1), part.number("original_length", 1)
    near = (1 - _index_ramp(theta, original, 1.25, 0.75, truncate=True)) * part.number("ntk_factor", 1)
    mixed = theta / factor * (1 - near) + _spread(theta, factor) * near
    remaining = (1 - _index_ramp(theta, original, 16.0, 2.0, truncate=True)) * part.number("extrapolation_factor", 1)
    return replace(was, theta=mixed * (1 - remaining) + theta * remaining)


def _sharper(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0


def _yarn_theta(part: Encoded, theta: Tensor, factor: float) -> Tensor:
    original, fast, slow = part.number("original_length", 1), part.number("beta_fast", 32), part.number("beta_slow", 1)
    if part.option("ramp", "index") == "rotations":
        stays = _clip((original * theta / (2 * math.pi) - slow) / (fast - slow))
    else:
        stays = 1 - _index_ramp(theta, original, fast, slow, truncate=bool(part.option("truncate", True)))
    stays = stays * part.number("extrapolation_factor", 1)
    return theta / factor * (1 - stays) + theta * stays


def _yarn(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    factor = part.number("factor", 1)
    if part.option("attention_factor") is not None:
        gain = part.number("attention_factor", 1)
    elif part.option("mscale") is None and part.option("mscale_all_dim") is None:
        gain = _sharper(factor, 1.0) * part.number("attn_factor", 1)
    else:
        over = part.number("mscale_all_dim", 0.0)
        gain = _sharper(factor, part.number("mscale", 1.0)) / _sharper(factor, over) * part.number("attn_factor", 1)
    return replace(was, theta=_yarn_theta(part, was.theta, factor), gain=was.gain * gain)


def _dynamic_yarn(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    factor = _ratio(part, length)
    return replace(was, theta=_yarn_theta(part, was.theta, factor), gain=was.gain * _sharper(factor, 1.0))


def _long_gain(part: Encoded) -> float:
    rule, factor, original = part.option("gain", "su"), part.number("factor", 1), part.number("original_length", 1)
    if rule == "su":
        return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return 0.1 * math.log(factor) + 1 if rule == "yarn" else float(rule)  # type: ignore[arg-type]


def _started(part: Encoded, was: Frequencies) -> Frequencies:
    tokens = part.count("start_tokens")
    return replace(was, start=tokens, start_theta=was.theta) if tokens else was


def _numbers(inputs: object) -> Tensor:
    return torch.tensor([float(f) for f in inputs], dtype=torch.float64)  # type: ignore[attr-defined]


def _long_rope(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    past = _ratio(part, length) > 1
    gain = part.option("long_gain" if past else "short_gain")
    gain = _long_gain(part) if gain is None else float(gain)  # type: ignore[arg-type]
    factors = _numbers(part.option("long" if past else "short"))
    return replace(_started(part, was), theta=was.theta / factors, gain=was.gain * gain)


def _dynamic_long_rope(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    factor = part.number("factor", 1)
    share = (min(_ratio(part, length), factor) - 1) / (factor - 1) if factor > 1 else 1.0
    factors = 1 + (_numbers(part.option("factors")) - 1) * share
    return replace(_started(part, was), theta=was.theta / factors, gain=was.gain * _long_gain(part))


def _resonance(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    waves = 2 * math.pi / was.theta
    if part.option("rounding", "float64") == "float32":
        waves = (2 * math.pi / was.theta.float()).round().double()
    waves = waves.round()
    return replace(was, theta=2 * math.pi / waves)


def _clex(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    if length is None:
        return was
    ratio = _ratio(part, length)
    until = min(part.number("max_factor", 16), ratio if part.option("continuous") else math.ceil(ratio))
    pairs, step = part.count("pairs"), part.number("step", 0.01)
    up, down = part.parameters["up_proj"], part.parameters["down_proj"]
    index = torch.arange(pairs, dtype=torch.float64)
    fall, log_theta = index / (pairs - 1), was.theta.log()
    base = log_theta if part.option("time_base") is None else -index / pairs * math.log(part.number("time_base", 1))

    def act(x: Tensor) -> Tensor:
        """Their derivatives are differences that rounding bends where tanh is near 1, or the sigmoid of SiLU."""
        if part.option("activation", "tanh") == "tanh":
            return was.rounding.bent(x, x.tanh(), host=True)
        return was.rounding.bent(x, x * x.sigmoid(), 1 + x.detach().abs(), host=True)

    def rate(t: float, w: Tensor) -> Tensor:
        seen = w + log_theta + base - fall * math.log(2 * t - 1)
        return act(seen @ up) @ down - fall * 2 / (2 * t - 1)

    w, done = torch.zeros(pairs, dtype=torch.float64), 0
    while 1 + done * step < until - 1e-9 * step:
        t = 1 + done * step
        h = min(step, until - t)
        k1 = rate(t, w)
        k2 = rate(t + h / 3, w + h / 3 * k1)
        k3 = rate(t + 2 * h / 3, w + h * (k2 - k1 / 3))
        k4 = rate(t + h, w + h * (k1 - k2 + k3))
        w, done = w + h / 8 * (k1 + 3 * k2 + 3 * k3 + k4), done + 1
    return replace(was, theta=was.theta * w.exp())


def _multi_scale(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    heads = part.count("num_heads")
    groups, pairs = part.count("num_kv_heads", heads), was.theta.shape[0]
    low, high = math.log(part.number("min_base", 1e3)), math.log(part.number("max_base", 1e5))
    places = [0.5] if groups == 1 else [g / (groups - 1) for g in range(groups)]
    bases = [math.exp(low + (high - low) * place) for place in places]
    rows = [geometric(bases[head * groups // heads], pairs, 2 * pairs) for head in range(heads)]
    return replace(was, theta=torch.stack(rows))


def _proportional(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    channels_rotated = int(part.number("fraction", 1) * 2 * was.theta.shape[-1] // 2)
    keep = torch.arange(was.theta.shape[-1]) < channels_rotated
    return replace(was, theta=torch.where(keep, was.theta, 0.0))


def _clipped(part: Encoded, was: Frequencies, length: float | None) -> Frequencies:
    pairs = was.theta.shape[-1]
    count = min(part.count("count", 20), pairs)
    place = torch.arange(pairs, dtype=torch.float64) - (pairs - count)  # within the tapered pairs, negative before
    if part.options.get("kind", "soft") == "hard":
        return replace(was, theta=torch.where(place < 0, was.theta, 0.0))
    turn = place.clamp(min=0) / max(1, count - 1) * math.pi
    return replace(was, theta=was.theta * (0.5 + 0.5 * turn.cos()))


_RULES = {
    "PositionInterpolation": _interpolated, "DynamicPositionInterpolation": _interpolated_by_length, "NTKAware": _ntk,
    "DynamicNTK": _dynamic_ntk, "NTKByParts": _by_parts, "PartNTK": _part_ntk, "YaRN": _yarn,
    "DynamicYaRN": _dynamic_yarn, "Llama3": _llama3, "LongRoPE": _long_rope, "DynamicLongRoPE": _dynamic_long_rope,
    "Resonance": _resonance, "CLEX": _clex, "MultiScale": _multi_scale, "Proportional": _proportional,
    "Clipped": _clipped,
}  # fmt: skip


def lengths_of(ends: Tensor, known: Tensor, of_keys: Tensor, of_others: Sequence[Sequence[int]]) -> list[list[float]]:
    """Tokens that the document of each token spans: its largest known position + 1; 0 for a document without keys.

    Args:
        ends: positions of the keys, ``(batch, keys)``; of several coordinates the largest.
        known: which keys the mask lets anybody see, ``(batch, keys)``.
        of_keys: documents of the keys, ``(batch, keys)``.
        of_others: documents of the tokens in question, ``[batch][tokens]``.
    """
    lengths = []
    for row, rest in enumerate(of_others):
        spans: dict[int, float] = {}
        keys = zip(ends[row].tolist(), known[row].tolist(), of_keys[row].tolist(), strict=True)
        for end, seen, document in keys:
            spans[document] = max(spans.get(document, -1), end if seen else -1)
        lengths.append([math.floor(spans.get(document, -1)) + 1.0 for document in rest])
    return lengths
