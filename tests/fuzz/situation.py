"""One random call: sizes, encodings, tensors with their strides and magnitudes, positions, and who sees whom."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from posenc.encoding import Encoding
from tests.fuzz import placing
from tests.fuzz.definition.spectrum import spans_length
from tests.fuzz.definition.terms import Encoded
from tests.fuzz.draw import Draw
from tests.fuzz.spec import Sizes, Spec, make
from tests.fuzz.specs import make_specs

ROTARY = {1: ["RoPE"] * 5 + ["XPos", "AxialRoPE", "MixedRoPE", "LieRE", "ComRoPEAP", "ComRoPELD"]}
ROTARY[1] += ["RoPEpp", "GRAPEM", "FoPE", "PoPE", "PoPE", "TAPE"]
ROTARY[2] = ["AxialRoPE", "AxialRoPE", "MRoPE", "MixedRoPE", "LieRE", "ComRoPEAP", "ComRoPELD", "PoPE"]
ROTARY[3] = [*ROTARY[2], "VJEPARoPE", "MRoPE"]
BIAS = {
    1: [
        *["ALiBi", "ALiBi", "T5Bias", "KERPLE", "Sandwich", "FIRE", "DistanceMLP", "LogCPB", "SwinBias", "BEiTBias"],
        "T5GridBias",
    ],
    2: ["SwinBias", "BEiTBias", "ALiBi2D", "LogCPB", "T5GridBias"],
    3: ["SwinBias", "BEiTBias", "ALiBi2D", "LogCPB", "T5GridBias"],
}
SCORE = {1: ["Shaw", "TransformerXL", "CoPE", "CoPE", "ForgetGate", "ForgetGate", "DataDependentALiBi", "PaTH", "DAPE"]}
SCORE[1] += ["Mixture", "SSMax", "LogN", "StepTemperature", "PowerTemperature", "TokenRelativeBias"]
SCORE[1] += ["DecomposedRelative", "KERPLEWeight", "GRAPEA", "SelectiveRoPE", "GRAPEContext", "GRAPEAP"]
MOVED = ["ReRoPE", "LeakyReRoPE", "SelfExtend", "DualChunk", "STRING", "LMInfinite", "StreamingLLM"]
SCORE[2] = ["CoPE", "ForgetGate", "DataDependentALiBi", "PaTH", "DAPE", "Mixture", "SSMax", "DecomposedRelative"]
SCORE[2] += ["SelectiveRoPE", "GRAPEContext"]
SCORE[3] = SCORE[2]
WEIGHT = ["StickBreaking", "AttentionSink"]
GRID = {*ROTARY[3], *BIAS[3], "DAPE", "DecomposedRelative"}
LEARNED_ANGLES = {"GRAPEM", "MixedRoPE", "LieRE", "ComRoPEAP", "ComRoPELD", "SelectiveRoPE", "GRAPEContext"}
DTYPES = {torch.float64: 36, torch.float32: 40, torch.bfloat16: 12, torch.float16: 12}
EDGES = [63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513]
FAR_EDGES = [1023, 1024, 1025]
FARTHEST_EDGES = [4095, 4096, 4097]


@dataclass
class Situation:
    """A call of `attention`. Its tensors have the dtype of the call; options are keywords as a caller gives them."""

    seed: int
    sizes: Sizes
    axes: int
    specs: list[Spec]
    encodings: list[Encoding]
    dtype: torch.dtype
    q: Tensor
    k: Tensor
    v: Tensor
    x: Tensor
    options: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        shapes = f"q {tuple(self.q.shape)} k {tuple(self.k.shape)} v {tuple(self.v.shape)} x {tuple(self.x.shape)}"
        options = ", ".join(f"{name}={_short(value)}" for name, value in self.options.items() if value is not None)
        specs = "\n    ".join(map(str, self.specs)) or "NoPE"
        return (
            f"seed {self.seed}: {str(self.dtype).removeprefix('torch.')} {shapes}; {options}"
            f"; {'; '.join(self.notes)}\n    {specs}"
        )

    @property
    def parameters(self) -> dict[str, Tensor]:
        """All parameters of all encodings, by number of the encoding and name."""
        return {f"{at}.{name}": p for at, e in enumerate(self.encodings) for name, p in e.named_parameters()}

    def encoded(self, leaves: dict[str, Tensor]) -> list[Encoded]:
        """The encodings as the definition takes them, on given float64 parameters."""
        found = []
        for at, spec in enumerate(self.specs):
            prefix = f"{at}."
            found.append(spec.encoded({n[len(prefix) :]: t for n, t in leaves.items() if n.startswith(prefix)}))
        return found

    @property
    def length_dependent(self) -> bool:
        return any(spans_length(e) for e in self.encoded({n: p.detach().double() for n, p in self.parameters.items()}))


def _short(value: object) -> str:
    if isinstance(value, Tensor):
        flat = value.flatten().tolist()
        return f"{str(value.dtype).removeprefix('torch.')}{tuple(value.shape)}{flat if len(flat) <= 24 else ''}"
    return repr(value) if not isinstance(value, tuple) else f"({', '.join(_short(part) for part in value)})"


def draw_kinds(draw: Draw, axes: int) -> list[str]:
    """One to three kinds, at times none, in any order; at most one in the place of softmax."""
    count, kinds = draw.weighted({0: 6, 1: 38, 2: 34, 3: 22}), list[str]()
    while len(kinds) < count:
        place = draw.weighted({"rotary": 40, "bias": 26, "score": 28, "weight": 8})
        if place == "weight":
            kinds += [] if set(WEIGHT) & set(kinds) else [draw.one(WEIGHT)]
        else:
            kinds.append(draw.one({"rotary": ROTARY, "bias": BIAS, "score": SCORE}[place][axes]))
    if axes == 1 and draw.chance(0.08):  # which stands in the place of all rotations
        beside = {*ROTARY[1], "Shaw", "CoPE", "PaTH", "DecomposedRelative", "Mixture", "GRAPEA", "KERPLEWeight"}
        beside |= {"SelectiveRoPE", "GRAPEContext"}
        kinds = [draw.one(MOVED), *(kind for kind in kinds if kind not in beside)]
    return kinds


def head_dims(kinds: list[str], axes: int) -> list[int]:
    """Widths of a head that all kinds can do with."""
    if axes > 1:
        return [4, 8, 12, 16] if axes == 2 else [6, 12, 18, 24]
    if any(kind in {*ROTARY[1], *MOVED, "SelectiveRoPE", "GRAPEContext"} - {"PoPE"} for kind in kinds):
        return [2, 4, 4, 6, 8, 8, 10, 12, 16]
    return [1, 2, 3, 4, 5, 6, 7, 8, 8, 16]


def draw_sizes(draw: Draw, kinds: list[str], axes: int, *, heads: int | None = None) -> Sizes:
    heads = draw.one([1, 2, 2, 3, 4, 4, 6]) if heads is None else heads
    kv_heads = draw.one([n for n in range(1, heads + 1) if heads % n == 0])
    head_dim = draw.one(head_dims(kinds, axes))
    value_dim = head_dim if draw.chance(0.7) else draw.one([1, 2, 3, 5, 8, 12])
    dim = draw.one([1, 3, 4, 8])
    if "SelectiveRoPE" in kinds:  # a share of one number has the length one, whatever it is
        dim = kv_heads * draw.one([2, 3, 4])
    return Sizes(heads, kv_heads, head_dim, value_dim, dim)


def draw_lengths(draw: Draw) -> tuple[int, int]:
    """Queries and keys: short ones mostly, at times at the edges of blocks, where one head must do."""
    far = draw.weighted({"short": 90, "edge": 8, "far": 1, "farthest": 1})
    if far == "short":
        keys = draw.one([1, 2, 3, draw.whole(1, 12), draw.whole(1, 40), draw.whole(1, 40)])
    else:
        keys = draw.one({"edge": EDGES, "far": FAR_EDGES, "farthest": FARTHEST_EDGES}[far])
    kind = draw.weighted({"all": 54, "one": 8, "last": 28, "more": 10})
    if kind == "all" and far != "farthest":
        return keys, keys
    if kind == "one":
        return 1, keys
    if kind == "more" and far == "short":
        return keys + draw.whole(1, 20), keys
    if kind == "more" and far == "edge":
        return keys, draw.whole(1, keys)
    most = keys if far == "short" else 130 if far == "edge" else 66
    return draw.whole(1, min(keys, most)), keys


def with_strides(draw: Draw, x: Tensor) -> tuple[Tensor, str]:
    """The same numbers ``(batch, heads, tokens, width)`` in another arrangement of memory."""
    kind = draw.weighted({"contiguous": 40, "transposed": 30, "odd": 10, "spread": 10, "batch": 5, "heads": 5})
    if kind == "transposed":
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    elif kind == "odd":
        wide = x.new_zeros(*x.shape[:-1], x.shape[-1] + 1)
        wide[..., 1:] = x
        x = wide[..., 1:]
    elif kind == "spread":
        wide = x.new_zeros(*x.shape[:-1], 2 * x.shape[-1])
        wide[..., ::2] = x
        x = wide[..., ::2]
    elif kind == "batch":
        x = x[:1].expand(x.shape)
    elif kind == "heads":
        x = x[:, :1].expand(x.shape)
    return x, kind


def draw_tensor(draw: Draw, dtype: torch.dtype, *shape: int, huge: bool = True) -> tuple[Tensor, str]:
    """Normal numbers of some magnitude."""
    tiny = 1e-3 if dtype == torch.float16 else 1e-20
    size = draw.weighted({1.0: 84, 0.0: 3, tiny: 4, 30.0: 6, 1e4: 3 if huge else 0})
    return (draw.normal(*shape) * size).to(dtype), "" if size == 1.0 else f" of size {size:g}"


def draw_situation(seed: int, *, plain: bool = False, lengths: tuple[int, int] | None = None) -> Situation:
    """A call from a seed.

    Args:
        seed: brings the same call back.
        plain: positions and visibility at their defaults, one magnitude: for modes that lay batches out themselves.
        lengths: queries and keys.
    """
    draw = Draw(seed)
    axes = draw.weighted({1: 80, 2: 13, 3: 7})
    queries, keys = draw_lengths(draw) if lengths is None else lengths
    while True:
        kinds = draw_kinds(draw, axes)
        sizes = draw_sizes(draw, kinds, axes, heads=1 if keys > 600 else draw.whole(1, 2) if keys > 60 else None)
        specs = make_specs(draw, kinds, sizes, axes)
        if axes > 1 and not set(kinds) & GRID:  # nobody would read coordinates
            continue
        if not (keys > 600 and {"T5Bias", "Sandwich", "DAPE", "Mixture"} & set(kinds)):
            break
    dtype, strength = draw.weighted(DTYPES), draw.one([0.0, 0.5, 0.5, 2.0])
    encodings = [make(spec, draw, strength=strength) for spec in specs]
    if dtype == torch.float64 or (dtype != torch.float32 and draw.chance(0.5)):
        kept = LEARNED_ANGLES if dtype == torch.float16 else set()  # whose gradients sum positions
        encodings = [e if s.kind in kept else e.to(dtype) for e, s in zip(encodings, specs, strict=True)]
    batch = 1 if keys > 60 else draw.one([1, 1, 2, 2, 3])
    notes, tensors = [f"strength {strength:g}"], []
    shapes = ((sizes.heads, queries, sizes.head_dim), (sizes.kv_heads, keys, sizes.head_dim))
    for name, shape in (*zip("qk", shapes, strict=True), ("v", (sizes.kv_heads, keys, sizes.value_dim))):
        tensor, size = (draw.normal(batch, *shape).to(dtype), "") if plain else draw_tensor(draw, dtype, batch, *shape)
        tensor, strides = with_strides(draw, tensor)
        tensors.append(tensor)
        notes += [f"{name} {strides}{size}"] if strides != "contiguous" or size else []
    x = draw.normal(batch, keys, sizes.dim).to(dtype)
    made = Situation(seed, sizes, axes, specs, encodings, dtype, *tensors, x, notes=notes)
    if not plain:
        made.options = placing.draw_options(draw, made)
    return made
