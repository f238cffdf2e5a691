"""Random options of rotary encodings and of the scalings of their frequencies; one function a class."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.draw import Draw, Sizes, Spec, without_scaling


def layout(draw: Draw) -> str:
    return draw.choice(["half", "interleaved"])


def chain(draw: Draw, sizes: Sizes, pairs: int) -> object:
    """No scaling, one, or two that fit behind one another."""
    if pairs < 2 or draw.chance(0.35):
        return None
    first = draw.choice([name for name in SCALINGS if name not in ("Resonance", "Proportional", "Clipped")])
    scalings = [scaling_of(first, draw, sizes, pairs)]
    if draw.chance(0.2) and first != "CLEX":
        scalings.append(
            scaling_of(
                draw.choice(["Resonance", "Proportional", "Clipped", "PositionInterpolation"]), draw, sizes, pairs
            )
        )
    return scalings[0] if len(scalings) == 1 and draw.chance(0.7) else scalings


def scaling_of(kind: str, draw: Draw, sizes: Sizes, pairs: int) -> Spec:
    return Spec(kind, SCALINGS[kind](draw, sizes, pairs))


def _factor(draw: Draw) -> float:
    return draw.choice([1.0, 1.5, 2.0, 4.0, 8.0, draw.number(1, 16)])


def _original(draw: Draw) -> int:
    return draw.choice([2, 4, 7, 16, 64, 1024, draw.integer(2, 40)])


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
    options: dict[str, object] = {
        "short": [draw.number(1, 2) for _ in range(pairs)],
        "long": [draw.number(1, 8) for _ in range(pairs)],
        "original_length": _original(draw),
        "factor": _factor(draw),
    }
    if draw.chance(0.3):
        options["start_tokens"] = draw.integer(0, 6)
    if draw.chance(0.3):
        options["gain"] = draw.choice(["yarn", 1.1])
    if draw.chance(0.2):
        options |= {"short_gain": draw.number(0.8, 1.2), "long_gain": draw.number(0.8, 1.2)}
    return options


def _clex(draw: Draw, sizes: Sizes, pairs: int) -> dict[str, object]:
    options: dict[str, object] = {
        "pairs": pairs, "original_length": _original(draw), "max_factor": draw.integer(1, 4),
        "step": draw.choice([0.1, 0.25, 0.3, 0.5]),
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
        {"original_length": _original(d)} | d.choice([{}, {"factor": _factor(d)}, {"schedule": "powers"}])
    ),  # type: ignore[list-item]
    "NTKByParts": lambda d, s, p: {"factor": _factor(d), "original_length": _original(d)},
    "PartNTK": lambda d, s, p: {"factor": _factor(d), "original_length": _original(d)},
    "YaRN": _yarn,
    "DynamicYaRN": lambda d, s, p: {"original_length": _original(d), "ramp": d.choice(["index", "rotations"])},
    "Llama3": lambda d, s, p: {"factor": _factor(d), "original_length": _original(d)},
    "LongRoPE": _long_rope,
    "DynamicLongRoPE": lambda d, s, p: {
        "factors": [d.number(1, 8) for _ in range(p)],
        "original_length": _original(d),
        "factor": _factor(d),
        "start_tokens": d.choice([0, 0, 3]),
    },
    "Resonance": lambda d, s, p: {},
    "CLEX": _clex,
    "MultiScale": lambda d, s, p: {"num_heads": s.heads, "num_kv_heads": s.num_kv_heads},
    "Proportional": lambda d, s, p: {"fraction": d.number(0, 1)},
    "Clipped": lambda d, s, p: {"count": d.integer(1, p + 2), "kind": d.choice(["soft", "hard"])},
}


def rope(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    rotary = sizes.head_dim
    options: dict[str, object] = {"head_dim": sizes.head_dim}
    if draw.chance(0.25):
        rotary = options["rotary_dim"] = 2 * draw.integer(1, sizes.head_dim // 2)  # type: ignore[assignment]
    if draw.chance(0.4):
        options["base"] = draw.choice([100.0, 500_000.0, 1e6, draw.number(2, 1e5)])
    options |= {"layout": layout(draw), "scaling": chain(draw, sizes, rotary // 2)}
    return options


def xpos(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {"head_dim": sizes.head_dim, "layout": draw.choice(["interleaved", "half"])}
    if draw.chance(0.6):
        options["scale_base"] = draw.choice([8.0, 16.0, 32.0, 64.0, 128.0])
    if draw.chance(0.3):
        options["gamma"] = draw.number(0.1, 1)
    return options


def axial(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    kinds = ["rope-vit", "qwen-vl", "pixtral", "llama-4", "eva-02", "sam-2", "dinov3"]
    kinds += ["kimi-k2.5", "visionllama", "efficient-loftr", "gemma-4"]
    if axes == 3 and draw.chance(0.3):
        return {"head_dim": sizes.head_dim, "axes": 3, "convention": "v-jepa-2"}
    options: dict[str, object] = {"head_dim": sizes.head_dim, "axes": axes, "convention": draw.choice(kinds)}
    if options["convention"] == "dinov3" and draw.chance(0.4):
        options |= {"min_period": draw.number(0.5, 2), "max_period": draw.number(3, 90)}
    elif draw.chance(0.3):
        options["base"] = draw.number(2, 1e4)
    elif draw.chance(0.3):
        options["frequencies"] = _frequencies(draw, axes, sizes.head_dim // axes // 2)
    if draw.chance(0.2):
        options["layout"] = layout(draw)
    elif options["convention"] in ("rope-vit", "qwen-vl") and draw.chance(0.2):
        options["layout"] = "half-by-axis"
    if axes > 1 and draw.chance(0.2):
        options["prefix"] = draw.integer(1, 3)
    return options


def _frequencies(draw: Draw, axes: int, pairs: int, *heads: int) -> list[object]:
    """Explicit frequencies: per head and axis, per axis, or without heads the same for all axes."""
    first = [draw.number(-2, 2) for _ in range(pairs)]
    if not heads and draw.chance(0.3):
        return list(first)
    several = [[draw.number(-2, 2) for _ in range(pairs)] for _ in range(axes)]
    if heads and draw.chance(0.5):
        return [[[draw.number(-2, 2) for _ in range(pairs)] for _ in range(axes)] for _ in range(*heads)]
    return list(several)


def mixed(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {
        "head_dim": sizes.head_dim, "num_heads": sizes.heads, "num_kv_heads": sizes.num_kv_heads, "axes": axes,
        "layout": layout(draw),
    }  # fmt: skip
    if axes == 2 and sizes.head_dim % 4 == 0 and draw.chance(0.3):
        options |= {"directions": draw.choice(["axial", "golden"]), "learned": False}
    elif draw.chance(0.3):
        inputs = _frequencies(draw, axes, sizes.head_dim // 2, sizes.num_kv_heads)
        options |= {"frequencies": inputs, "learned": draw.chance(0.5)}
    return options


def mrope(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    pairs = sizes.head_dim // 2
    places = pairs // axes
    sections = [pairs - (axes - 1) * places] + [places] * (axes - 1)
    options: dict[str, object] = {"head_dim": sizes.head_dim, "axes": axes, "layout": layout(draw)}
    order = draw.weighted({"chunked": 2, "interleaved": 1, "time_last": 1})
    if order == "time_last":
        sections = sections[1:] + sections[:1]
    options |= {"sections": sections} | ({} if order == "chunked" else {order: True})
    if pairs >= 2 and draw.chance(0.4):
        kind = draw.choice(["YaRN", "DynamicNTK", "Llama3", "DynamicPositionInterpolation", "LongRoPE", "NTKAware"])
        options["scaling"] = scaling_of(kind, draw, sizes, pairs)
        options["scaling"].options.pop("start_tokens", None)  # type: ignore[attr-defined]
    return options


def liere(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    blocks = [b for b in (2, 4, 6, 8, 10, 12, 16) if b <= sizes.head_dim]
    return {
        "head_dim": sizes.head_dim, "num_heads": sizes.heads, "num_kv_heads": sizes.num_kv_heads, "axes": axes,
        "block": draw.choice(blocks), "per_head": draw.chance(0.7), "init_scale": draw.choice([0.3, 1.0, 6.28]),
    }  # fmt: skip


def comrope(draw: Draw, sizes: Sizes, axes: int, *, partition: bool) -> dict[str, object]:
    fits = [b for b in (2, 4, 6, 8) if sizes.head_dim % (b * (axes if partition else 1)) == 0]
    options: dict[str, object] = {
        "head_dim": sizes.head_dim, "num_heads": sizes.heads, "num_kv_heads": sizes.num_kv_heads, "axes": axes,
        "block": draw.choice(fits), "init_std": draw.choice([0.1, 1.0]),
    }  # fmt: skip
    if not partition:
        options["per_head"] = draw.chance(0.5)
    return options


def rope_pp(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options = without_scaling(Spec("RoPE", rope(draw, sizes, axes))).options
    return options | {"num_heads": sizes.heads, "imaginary": draw.choice(["odd", "half", "all"])}


def fope(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {
        "head_dim": sizes.head_dim, "num_heads": sizes.heads, "num_kv_heads": sizes.num_kv_heads,
        "original_length": draw.choice([7, 16, 64, 4096]), "base": draw.choice([10_000.0, draw.number(2, 1e5)]),
        "rest": draw.choice(["pass", "doubled"]), "per_head": draw.chance(0.6), "separate": draw.chance(0.6),
        "learned": draw.chance(0.5), "layout": layout(draw),
    }  # fmt: skip


def grape_m(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {
        "head_dim": sizes.head_dim, "num_heads": sizes.heads, "num_kv_heads": sizes.num_kv_heads,
        "per_head": draw.chance(0.5), "layout": layout(draw),
    }  # fmt: skip
