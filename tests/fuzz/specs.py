"""Encodings of the library with random options, and the same as the definition takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch import Tensor, nn

import posenc
from posenc.encoding import Encoding
from tests.fuzz.definition.terms import Encoded
from tests.fuzz.draw import Draw
from tests.fuzz.text_specs import grape_ap, grape_context, pope, selective_rope

ROTATIONS = {
    "RoPE", "XPos", "AxialRoPE", "MRoPE", "MixedRoPE", "LieRE", "VJEPARoPE", "ComRoPEAP", "ComRoPELD",
    "RoPEpp", "GRAPEM", "FoPE", "PoPE", "TAPE",
}  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Of one call."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    dim: int  # of x
    content: int | None = None  # head_dim before rotations, where one has changed it

    @property
    def content_dim(self) -> int:
        return self.head_dim if self.content is None else self.content


@dataclass(frozen=True)
class Spec:
    """A class by name and the options of its constructor; options may hold specs themselves."""

    kind: str
    options: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={_shown(value)}' for name, value in self.options.items())})"

    def build(self) -> nn.Module:
        return cast("nn.Module", getattr(posenc, self.kind)(**{name: _built(v) for name, v in self.options.items()}))

    def encoded(self, parameters: dict[str, Tensor]) -> Encoded:
        """As the definition takes it, with parameters under the names that the module gives them."""
        options = {}
        for name, value in self.options.items():
            inner = f"rope.{name}" if self.kind in ("MRoPE", "RoPEpp", "TAPE") else name
            options[name] = _encoded(value, parameters, inner)
        return Encoded(self.kind, options, parameters)


def _shown(value: object) -> str:
    if isinstance(value, list) and _holds_specs(value):
        return f"[{', '.join(_shown(item) for item in value)}]"
    return str(value) if isinstance(value, Spec) else repr(value)


def _holds_specs(value: list[object]) -> bool:
    return any(
        isinstance(item, Spec) or (isinstance(item, list) and (not item or _holds_specs(item))) for item in value
    )


def _built(value: object) -> object:
    if isinstance(value, Spec):
        return value.build()
    if isinstance(value, list) and _holds_specs(value):
        if all(isinstance(item, Spec) for item in value):  # a chain of scalings
            return nn.Sequential(*[item.build() for item in value if isinstance(item, Spec)])
        return [[member.build() for member in item] for item in value]
    return value


def _encoded(value: object, parameters: dict[str, Tensor], prefix: str) -> object:
    if isinstance(value, Spec):
        return value.encoded(_below(parameters, prefix))
    if isinstance(value, list) and _holds_specs(value):
        return [_encoded(item, parameters, f"{prefix}.{at}") for at, item in enumerate(value)]
    return [] if value == [] else value


def _below(parameters: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) + 1 :]: t for name, t in parameters.items() if name.startswith(prefix + ".")}


def make(spec: Spec, draw: Draw, *, strength: float = 0.5) -> Encoding:
    """The module, with every parameter moved, so that what starts at zero matters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw.whole(0, 2**31))
        module = spec.build()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_((draw.uniform(*parameter.shape) * strength).to(parameter.dtype))
    return cast("Encoding", module.eval())


# One function a class: options for the sizes of a call.


def _layout(draw: Draw) -> str:
    return draw.one(["half", "interleaved"])


def _chain(draw: Draw, sizes: Sizes, pairs: int) -> object:
    """No scaling, one, or two that fit behind one another."""
    if pairs < 2 or draw.chance(0.35):
        return None
    first = draw.one([name for name in SCALINGS if name not in ("Resonance", "Proportional", "Clipped")])
    found = [_scaling(first, draw, sizes, pairs)]
    if draw.chance(0.2) and first != "CLEX":
        found.append(
            _scaling(draw.one(["Resonance", "Proportional", "Clipped", "PositionInterpolation"]), draw, sizes, pairs)
        )
    return found[0] if len(found) == 1 and draw.chance(0.7) else found


def _scaling(kind: str, draw: Draw, sizes: Sizes, pairs: int) -> Spec:
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


def rope(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    rotary = sizes.head_dim
    options: dict[str, object] = {"head_dim": sizes.head_dim}
    if draw.chance(0.25):
        rotary = options["rotary_dim"] = 2 * draw.whole(1, sizes.head_dim // 2)  # type: ignore[assignment]
    if draw.chance(0.4):
        options["base"] = draw.one([100.0, 500_000.0, 1e6, draw.number(2, 1e5)])
    options |= {"layout": _layout(draw), "scaling": _chain(draw, sizes, rotary // 2)}
    return options


def xpos(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {"head_dim": sizes.head_dim, "layout": draw.one(["interleaved", "half"])}
    if draw.chance(0.6):
        options["scale_base"] = draw.one([8.0, 16.0, 32.0, 64.0, 128.0])
    if draw.chance(0.3):
        options["gamma"] = draw.number(0.1, 1)
    return options


def axial(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    kinds = ["rope-vit", "qwen-vl", "pixtral", "llama-4", "eva-02", "sam-2", "dinov3"]
    kinds += ["kimi-k2.5", "visionllama", "efficient-loftr", "gemma-4"]
    if axes == 3 and draw.chance(0.3):
        return {"head_dim": sizes.head_dim, "axes": 3, "convention": "v-jepa-2"}
    options: dict[str, object] = {"head_dim": sizes.head_dim, "axes": axes, "convention": draw.one(kinds)}
    if options["convention"] == "dinov3" and draw.chance(0.4):
        options |= {"min_period": draw.number(0.5, 2), "max_period": draw.number(3, 90)}
    elif draw.chance(0.3):
        options["base"] = draw.number(2, 1e4)
    elif draw.chance(0.3):
        options["frequencies"] = _frequencies(draw, axes, sizes.head_dim // axes // 2)
    if draw.chance(0.2):
        options["layout"] = _layout(draw)
    elif options["convention"] in ("rope-vit", "qwen-vl") and draw.chance(0.2):
        options["layout"] = "half-by-axis"
    if axes > 1 and draw.chance(0.2):
        options["prefix"] = draw.whole(1, 3)
    return options


def _frequencies(draw: Draw, axes: int, pairs: int, *heads: int) -> list[object]:
    """Given ones: of each head and axis, of each axis, or where there are no heads of all axes alike."""
    one = [draw.number(-2, 2) for _ in range(pairs)]
    if not heads and draw.chance(0.3):
        return list(one)
    several = [[draw.number(-2, 2) for _ in range(pairs)] for _ in range(axes)]
    if heads and draw.chance(0.5):
        return [[[draw.number(-2, 2) for _ in range(pairs)] for _ in range(axes)] for _ in range(*heads)]
    return list(several)


def mixed(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {
        "head_dim": sizes.head_dim, "num_heads": sizes.heads, "kv_heads": sizes.kv_heads, "axes": axes,
        "layout": _layout(draw),
    }  # fmt: skip
    if axes == 2 and sizes.head_dim % 4 == 0 and draw.chance(0.3):
        options |= {"directions": draw.one(["axial", "golden"]), "learned": False}
    elif draw.chance(0.3):
        given = _frequencies(draw, axes, sizes.head_dim // 2, sizes.kv_heads)
        options |= {"frequencies": given, "learned": draw.chance(0.5)}
    return options


def mrope(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    pairs = sizes.head_dim // 2
    places = pairs // axes
    sections = [pairs - (axes - 1) * places] + [places] * (axes - 1)
    options: dict[str, object] = {"head_dim": sizes.head_dim, "axes": axes, "layout": _layout(draw)}
    order = draw.weighted({"chunked": 2, "interleaved": 1, "time_last": 1})
    if order == "time_last":
        sections = sections[1:] + sections[:1]
    options |= {"sections": sections} | ({} if order == "chunked" else {order: True})
    if pairs >= 2 and draw.chance(0.4):
        kind = draw.one(["YaRN", "DynamicNTK", "Llama3", "DynamicPositionInterpolation", "LongRoPE", "NTKAware"])
        options["scaling"] = _scaling(kind, draw, sizes, pairs)
        options["scaling"].options.pop("start_tokens", None)  # type: ignore[attr-defined]
    return options


def liere(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    blocks = [b for b in (2, 4, 6, 8, 10, 12, 16) if b <= sizes.head_dim]
    return {
        "head_dim": sizes.head_dim, "num_heads": sizes.heads, "kv_heads": sizes.kv_heads, "axes": axes,
        "block": draw.one(blocks), "per_head": draw.chance(0.7), "init_scale": draw.one([0.3, 1.0, 6.28]),
    }  # fmt: skip


def comrope(draw: Draw, sizes: Sizes, axes: int, *, partition: bool) -> dict[str, object]:
    fits = [b for b in (2, 4, 6, 8) if sizes.head_dim % (b * (axes if partition else 1)) == 0]
    options: dict[str, object] = {
        "head_dim": sizes.head_dim, "num_heads": sizes.heads, "kv_heads": sizes.kv_heads, "axes": axes,
        "block": draw.one(fits), "init_std": draw.one([0.1, 1.0]),
    }  # fmt: skip
    if not partition:
        options["per_head"] = draw.chance(0.5)
    return options


def alibi(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {"num_heads": sizes.heads}
    kind = draw.weighted({"default": 4, "name": 2, "numbers": 1, "exponent": 1})
    if kind == "name":
        options["slopes"] = draw.one(["press", "geometric", "kerple"])
    if kind == "numbers":
        options["slopes"] = [draw.number(-0.2, 1) for _ in range(sizes.heads)]
    if kind == "exponent":
        options["max_exponent"] = draw.number(1, 10)
    return options


def t5(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    both = draw.chance(0.5)
    buckets = draw.one([4, 8, 12, 32]) if both else draw.one([2, 3, 5, 8, 32])
    least = max(2, buckets // (2 if both else 1) // 2 + 1)
    options: dict[str, object] = {"num_heads": sizes.heads, "num_buckets": buckets, "bidirectional": both}
    options["max_distance"] = draw.one([least, least + 3, 20 + least, 128])
    if draw.chance(0.2):
        options["bias_scale"] = draw.number(0.5, 3)
    return options


def shaw(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {"head_dim": sizes.head_dim, "max_distance": draw.one([1, 2, 5, 16, 100])}
    if draw.chance(0.3):
        return options | {"values": False}
    return options | {"value_dim": sizes.value_dim}


def transformer_xl(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {
        "dim": 2 * draw.whole(1, 8), "num_heads": sizes.heads, "head_dim": sizes.content_dim
    }  # fmt: skip
    kind = draw.weighted({"waves": 3, "clamp": 2, "table": 2})
    if kind == "clamp":
        options["clamp"] = draw.whole(1, 20)
    if kind == "table":
        options["learned_distances"] = draw.whole(1, 30)
    return options


def cope(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {
        "head_dim": sizes.content_dim, "max_position": draw.one([1, 2, 5, 16, 64]), "scaled": draw.chance(0.3)
    }  # fmt: skip
    gates = draw.weighted({"keys": 5, "separate": 2, "values": 1})
    if gates == "values" and sizes.value_dim == sizes.content_dim:
        options["gates"] = gates
    if gates == "separate":
        options |= {"gates": gates, "dim": sizes.dim, "kv_heads": sizes.kv_heads}
    if gates == "keys" and draw.chance(0.3):
        options |= {"rotated": True, "head_dim": sizes.head_dim}
    if axes == 1 and draw.chance(0.25):
        options["relative"] = draw.whole(1, 12)
    return options


def forget(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    kind = draw.weighted({"data": 4, "bias": 1, "fixed": 1})
    options: dict[str, object] = {"dim": sizes.dim, "num_heads": sizes.heads, "kind": kind}
    if kind == "fixed" or (kind == "bias" and draw.chance(0.5)):
        options["decay_time"] = (draw.number(1, 4), draw.number(5, 64))
    return options | ({"scaled": True} if draw.chance(0.25) else {})


def data_alibi(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {"dim": sizes.dim, "num_heads": sizes.heads}
    options["form"] = draw.one(["causal", "bidirectional", "rows"])
    if draw.chance(0.5):
        options["bias_init"] = draw.number(-1, 5)
    if draw.chance(0.3):
        options["post_log_scale"] = draw.number(0.2, 2)
    return options | ({"gate_dim": draw.whole(1, 8)} if options["form"] == "rows" else {})


def path(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {
        "dim": sizes.dim, "head_dim": sizes.head_dim, "kv_heads": sizes.kv_heads, "rank": draw.one([None, 1, 4, 32]),
        "conv": draw.one([1, 2, 3, 4]),
    }  # fmt: skip


def dape(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    kind = draw.one(["KERPLE", "ALiBi", "T5Bias", "FIRE"]) if axes == 1 else "ALiBi2D"
    bias = Spec(kind, KINDS[kind](draw, sizes, axes))
    return {"bias": bias, "num_heads": sizes.heads, "hidden": draw.whole(1, 12)}


def mixture(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    rotations = ["MixedRoPE", "PoPE"] if axes > 1 else ["RoPE", "RoPE", "PoPE"]
    biases = ["ALiBi2D"] if axes > 1 else ["ALiBi", "KERPLE", "T5Bias"]
    scores = ["CoPE", "ForgetGate"] if axes > 1 else ["CoPE", "Shaw", "TransformerXL", "ForgetGate", "GRAPEAP"]
    if sizes.head_dim % 2 == 0:
        scores += ["GRAPEContext"] if sizes.dim % sizes.kv_heads else ["GRAPEContext", "SelectiveRoPE"]
    members: list[list[Spec]] = []
    for _ in range(draw.whole(1, 3)):
        kinds = [draw.one(part) for part in (rotations, biases, scores) if draw.chance(0.45)]
        if sizes.head_dim % 2:
            kinds = [kind for kind in kinds if kind not in ("RoPE", "MixedRoPE")]
        members.append([_plain(spec) for spec in make_specs(draw, kinds, sizes, axes)])
    return {
        "members": members, "num_heads": sizes.heads, "adaptive": draw.chance(0.4), "dim": sizes.dim
    }  # fmt: skip


def make_specs(draw: Draw, kinds: Sequence[str], sizes: Sizes, axes: int) -> list[Spec]:
    """The encodings of one list: each as wide as queries and keys are after the rotations that act before it."""
    found: dict[int, Spec] = {}
    for turning in (True, False):
        for at, kind in enumerate(kinds):
            if (kind in ROTATIONS) == turning:
                found[at] = made = Spec(kind, KINDS[kind](draw, sizes, axes))
                sizes = widened(sizes, made)
    return [found[at] for at in range(len(kinds))]


def widened(sizes: Sizes, spec: Spec) -> Sizes:
    """The sizes after an encoding, of which PoPE makes queries and keys wider."""
    if spec.kind != "PoPE":
        return sizes
    more = cast("int", spec.options.get("rotary_dim", spec.options["head_dim"]))
    return replace(sizes, head_dim=sizes.head_dim + more, content=sizes.content_dim)


def tape(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options: dict[str, object] = {
        "head_dim": sizes.head_dim, "num_heads": sizes.heads, "dim": sizes.dim, "position_size": draw.whole(1, 6)
    }  # fmt: skip
    if draw.chance(0.3):
        options["base"] = draw.one([100.0, 500_000.0, draw.number(2, 1e5)])
    if sizes.head_dim > 2 and draw.chance(0.5):
        kinds = ["PositionInterpolation", "NTKAware", "NTKByParts", "YaRN", "Llama3", "Resonance"]
        kinds += ["MultiScale"] if sizes.heads == sizes.kv_heads else []
        options["scaling"] = _scaling(draw.one(kinds), draw, sizes, sizes.head_dim // 2)
    return options


def _plain(spec: Spec) -> Spec:
    """Without a scaling, of which a mixture takes none that depends on the length."""
    return Spec(spec.kind, {name: value for name, value in spec.options.items() if name != "scaling"})


def stick_breaking(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    rule = draw.one(["drop", "own", "vector"])
    options: dict[str, object] = {"attend_current": draw.chance(0.5), "remainder": rule}
    return options | ({"num_heads": sizes.heads, "value_dim": sizes.value_dim} if rule == "vector" else {})


def window(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {"num_heads": sizes.heads, "window": tuple(draw.whole(1, 6) for _ in range(axes))}


def t5_grid(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    buckets = [draw.one([4, 8, 12, 32]) for _ in range(axes)]
    longest = [draw.one([n // 4 + 1, n // 4 + 4, 40]) for n in buckets]
    options: dict[str, object] = {"num_heads": sizes.heads, "axes": axes, "num_buckets": buckets[0], "max_distance": 41}
    if draw.chance(0.6):
        options |= {"num_buckets": tuple(buckets), "max_distance": tuple(longest)}
    if draw.chance(0.3):
        options["factor"] = draw.one([0.5, 100.0, tuple(draw.one([1.0, 0.25, 10.0]) for _ in range(axes))])
    if draw.chance(0.2):
        options["bias_scale"] = draw.number(0.2, 3)
    return options


def decomposed(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {"head_dim": sizes.head_dim, "window": tuple(draw.whole(1, 6) for _ in range(axes))}


def log_cpb(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {
        "num_heads": sizes.heads, "axes": axes, "hidden": draw.whole(1, 16), "kind": draw.one(["swin", "paper"]),
        "window": draw.one([2.0, 8.0, 20.0]),
    }  # fmt: skip


def ssmax(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    count = "visible" if axes > 1 else draw.one(["visible", "visible", "position"])
    return {"num_heads": sizes.heads, "bias": draw.chance(0.4), "count": count, "scale": draw.one([0.43, 1.0, -0.3])}


def kernel(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    kind = draw.one(["KERPLE", "KERPLE", "ALiBi", "FIRE"]) if axes == 1 else "ALiBi2D"
    options = {"num_heads": sizes.heads, "kind": "power"} if kind == "KERPLE" else KINDS[kind](draw, sizes, axes)
    return {"bias": Spec(kind, options), "num_heads": sizes.heads}


def rope_pp(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    options = _plain(Spec("RoPE", rope(draw, sizes, axes))).options
    return options | {"num_heads": sizes.heads, "imaginary": draw.one(["odd", "half", "all"])}


def fope(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {
        "head_dim": sizes.head_dim, "num_heads": sizes.heads, "kv_heads": sizes.kv_heads,
        "original_length": draw.one([7, 16, 64, 4096]), "base": draw.one([10_000.0, draw.number(2, 1e5)]),
        "rest": draw.one(["pass", "doubled"]), "per_head": draw.chance(0.6), "separate": draw.chance(0.6),
        "learned": draw.chance(0.5), "layout": _layout(draw),
    }  # fmt: skip


def grape_m(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {
        "head_dim": sizes.head_dim, "num_heads": sizes.heads, "kv_heads": sizes.kv_heads,
        "per_head": draw.chance(0.5), "layout": _layout(draw),
    }  # fmt: skip


def grape_a(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    return {
        "head_dim": sizes.head_dim, "num_heads": sizes.heads, "gate": draw.one(["key", "query", "both"]),
        "normalized": draw.chance(0.7),
    }  # fmt: skip


def _moving(draw: Draw, sizes: Sizes) -> dict[str, object]:
    rotation = _plain(Spec("RoPE", rope(draw, sizes, 1)))
    return {"rotation": rotation, "window": draw.one([1, 2, 5, 12, 40])}


def dual_chunk(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    size = draw.one([2, 3, 8, 12, 40])
    found = {"rotation": _moving(draw, sizes)["rotation"], "size": size, "local": draw.whole(1, size - 1)}
    return found | ({"gain": draw.number(0.8, 1.2)} if draw.chance(0.3) else {})


def string(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    shift = draw.one([1, 2, 8, 20])
    return {"rotation": _moving(draw, sizes)["rotation"], "shift": shift, "local": draw.whole(0, shift)}


def lm_infinite(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    found = _moving(draw, sizes) | {"sinks": draw.one([None, 1, 3])}
    return found | ({"limit": draw.whole(1, 50)} if draw.chance(0.3) else {})


Maker = Callable[[Draw, Sizes, int], dict[str, object]]
KINDS: dict[str, Maker] = {
    "RoPE": rope, "XPos": xpos, "AxialRoPE": axial, "MRoPE": mrope, "MixedRoPE": mixed, "LieRE": liere,
    "VJEPARoPE": lambda d, s, a: {"head_dim": s.head_dim, "released": d.chance(0.5)},
    "ComRoPEAP": lambda d, s, a: comrope(d, s, a, partition=True),
    "ComRoPELD": lambda d, s, a: comrope(d, s, a, partition=False),
    "ALiBi": alibi, "T5Bias": t5, "KERPLE": lambda d, s, a: {"num_heads": s.heads, "kind": d.one(["log", "power"])},
    "Sandwich": lambda d, s, a: {"num_heads": s.heads, "dim": 2 * d.whole(1, 12), "start": d.whole(0, 2)},
    "FIRE": lambda d, s, a: {
        "num_heads": s.heads, "hidden": d.whole(1, 33), "threshold": d.one([1.0, 8.0, 30.0, 512.0])
    },
    # A norm of one unit is 0, and so are gradients before it: what rounding leaves of them is nothing to be judged.
    "DistanceMLP": lambda d, s, a: {
        "num_heads": s.heads, "hidden": d.whole(2, 12), "layers": d.whole(1, 2), "log": d.chance(0.7),
        "norm": d.chance(0.3),
    },
    "LogCPB": log_cpb, "SwinBias": window, "BEiTBias": window, "T5GridBias": t5_grid, "DecomposedRelative": decomposed,
    "ALiBi2D": lambda d, s, a: {"num_heads": s.heads, "axes": a},
    "Shaw": shaw, "TransformerXL": transformer_xl, "CoPE": cope, "ForgetGate": forget, "PaTH": path, "DAPE": dape,
    "DataDependentALiBi": data_alibi, "Mixture": mixture, "StickBreaking": stick_breaking,
    "AttentionSink": lambda d, s, a: {
        "num_heads": s.heads, "learned": d.chance(0.7), "logit": d.one([0.0, 2.0, -30.0])
    },
    "SSMax": ssmax,
    "LogN": lambda d, s, a: {
        "original_length": d.one([2, 7, 512]), "strength": d.one([None, 0.5]),
        "count": d.one(["visible", "position"]),
    },
    "PowerTemperature": lambda d, s, a: {"step": d.one([1, 3, 64]), "power": d.one([0.1, 0.5])},
    "TokenRelativeBias": lambda d, s, a: {
        "dim": s.dim, "num_heads": s.heads, "extent": d.one([1, 3, 9]), "relative_dim": d.whole(1, 5), "init_std": 1.0
    },
    "KERPLEWeight": kernel, "RoPEpp": rope_pp, "FoPE": fope, "PoPE": pope, "TAPE": tape,
    "GRAPEM": grape_m, "GRAPEA": grape_a, "GRAPEAP": grape_ap, "GRAPEContext": grape_context,
    "SelectiveRoPE": selective_rope,
    "ReRoPE": lambda d, s, a: _moving(d, s),
    "LeakyReRoPE": lambda d, s, a: _moving(d, s) | {"factor": d.one([1.0, 4.0, d.number(1, 20)])},
    "SelfExtend": lambda d, s, a: _moving(d, s) | {"group": d.one([1, 2, 3, 8])},
    "DualChunk": dual_chunk, "STRING": string, "LMInfinite": lm_infinite,
    "StreamingLLM": lambda d, s, a: _moving(d, s) | {"sinks": d.one([0, 1, 4])},
    "StepTemperature": lambda d, s, a: {
        "step": d.one([1, 3, 64]), "strength": d.one([0.1, 1.0]), "offset": d.whole(0, 1)
    },
}  # fmt: skip
