"""Random scalings of RoPE's frequencies."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.draw import Draw
from tests.fuzz.spec import Sizes, Spec


def layout(draw: Draw) -> str:
    return draw.one(["half", "interleaved"])


def chain(draw: Draw, sizes: Sizes, pairs: int) -> object:
    """No scaling, one, or two that fit behind one another."""
    if pairs < 2 or draw.chance(0.35):
        return None
    first = draw.one([name for name in SCALINGS if name not in ("Resonance", "Proportional", "Clipped")])
    found = [scaling_of(first, draw, sizes, pairs)]
    if draw.chance(0.2) and first != "CLEX":
        found.append(
            scaling_of(draw.one(["Resonance", "Proportional", "Clipped", "PositionInterpolation"]), draw, sizes, pairs)
        )
    return found[0] if len(found) == 1 and draw.chance(0.7) else found


def scaling_of(kind: str, draw: Draw, sizes: Sizes, pairs: int) -> Spec:
    return Spec(kind, SCALINGS[kind](draw, sizes, pairs))


def _factor(draw: Draw) -> float:
    return draw.one([1.0, 1.5, 2.0, 4.0, 8.0, draw.number(1, 16)])


def _original(draw: Draw) -> int:
    return draw.one([2, 4, 7, 16, 64, 1024, draw.whole(2, 40)])


def _yarn(draw: Draw, sizes: Sizes, pairs: int) -> dict[str, object]:
    options: dict[str, object] = {"factor": _factor(draw), "original_length": _original(draw)}
    if draw.chance(0.3):
        options["ramp"] = "rotations"
    if draw.chance(0.2):
        options["truncate"] = False
    gain = draw.weighted({"rule": 6, "given": 1, "deepseek": 1, "authors": 1})
    if gain == "given":
        options["attention_factor"] = draw.number(0.5, 2)
    if gain == "deepseek":
        options |= {"mscale": draw.number(0, 1), "mscale_all_dim": draw.number(0, 1)}
    if gain == "authors":
        options |= {"extrapolation_factor": draw.number(0, 1), "attn_factor": draw.number(0.5, 2)}
    if draw.chance(0.2):
        options |= {"beta_fast": draw.number(2, 40), "beta_slow": draw.number(0.1, 1.9)}
    return options


def _long_rope(draw: Draw, sizes: Sizes, pairs: int) -> dict[str, object]:
    found: dict[str, object] = {
        "short": [draw.number(1, 2) for _ in range(pairs)],
        "long": [draw.number(1, 8) for _ in range(pairs)],
        "original_length": _original(draw),
        "factor": _factor(draw),
    }
    if draw.chance(0.3):
        found["start_tokens"] = draw.whole(0, 6)
    if draw.chance(0.3):
        found["gain"] = draw.one(["yarn", 1.1])
    if draw.chance(0.2):
        found |= {"short_gain": draw.number(0.8, 1.2), "long_gain": draw.number(0.8, 1.2)}
    return found


def _clex(draw: Draw, sizes: Sizes, pairs: int) -> dict[str, object]:
    options: dict[str, object] = {
        "pairs": pairs, "original_length": _original(draw), "max_factor": draw.whole(1, 4),
        "step": draw.one([0.1, 0.25, 0.3, 0.5]),
    }  # fmt: skip
    if draw.chance(0.3):
        options["continuous"] = True
    if draw.chance(0.3):
        options["time_base"] = 10_000.0
    return options


Options = Callable[[Draw, Sizes, int], dict[str, object]]
SCALINGS: dict[str, Options] = {
    "PositionInterpolation": lambda d, s, p: {"factor": _factor(d)},
    "DynamicPositionInterpolation": lambda d, s, p: {"original_length": _original(d)},
    "NTKAware": lambda d, s, p: {"factor": _factor(d)},
    "DynamicNTK": lambda d, s, p: (
        {"original_length": _original(d)} | d.one([{}, {"factor": _factor(d)}, {"schedule": "powers"}])
    ),  # type: ignore[list-item]
    "NTKByParts": lambda d, s, p: {"factor": _factor(d), "original_length": _original(d)},
    "PartNTK": lambda d, s, p: {"factor": _factor(d), "original_length": _original(d)},
    "YaRN": _yarn,
    "DynamicYaRN": lambda d, s, p: {"original_length": _original(d), "ramp": d.one(["index", "rotations"])},
    "Llama3": lambda d, s, p: {"factor": _factor(d), "original_length": _original(d)},
    "LongRoPE": _long_rope,
    "DynamicLongRoPE": lambda d, s, p: {
        "factors": [d.number(1, 8) for _ in range(p)],
        "original_length": _original(d),
        "factor": _factor(d),
        "start_tokens": d.one([0, 0, 3]),
    },
    "Resonance": lambda d, s, p: {},
    "CLEX": _clex,
    "MultiScale": lambda d, s, p: {"num_heads": s.heads, "kv_heads": s.kv_heads},
    "Proportional": lambda d, s, p: {"fraction": d.number(0, 1)},
    "Clipped": lambda d, s, p: {"count": d.whole(1, p + 2), "kind": d.one(["soft", "hard"])},
}
