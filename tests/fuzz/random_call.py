"""One random call: sizes, encodings, tensors with their strides and magnitudes, positions, and visibility."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from posenc.encoding import Encoding
from tests.fuzz.definition.frequencies import spans_length
from tests.fuzz.definition.grid_rotary import NO_POSITION
from tests.fuzz.definition.terms import Encoded
from tests.fuzz.draw import Draw, Sizes, Spec, make
from tests.fuzz.encodings import make_specs

BY_INDEX = {"PaTH", "SelectiveRoPE", "RePo", "GRAPEContext"}  # read the order of the text, no positions
FAR = [100, 1_000, 100_000, 2_000_000, 2**31 - 60]


def kinds_of(call: RandomCall) -> set[str]:
    """Names of all encodings, those inside others included."""
    kinds: set[str] = set()

    def collect(value: object) -> None:
        if hasattr(value, "kind"):
            kinds.add(value.kind)
            for inner in value.options.values():  # type: ignore[attr-defined]
                collect(inner)
        elif isinstance(value, list):
            for item in value:
                collect(item)

    collect(list(call.specs))
    return kinds


def draw_options(draw: Draw, call: RandomCall) -> dict[str, object]:
    """Keywords of `attention`: everything but x, token_states and backend."""
    kinds = kinds_of(call)
    in_order = bool(kinds & BY_INDEX)
    q_pos, k_pos = draw_positions(draw, call, kinds)
    order = draw.weighted({"causal": 62, "both": 20, "positions": 18})
    if order == "positions" and (call.axes > 1 or in_order):
        order = "causal"
    if order == "causal" and call.q.shape[2] > call.k.shape[2] and draw.chance(0.9):
        order = "both" if call.axes > 1 or in_order or draw.chance(0.5) else "positions"
    causal: object = {"causal": True, "both": False, "positions": "positions"}[order]
    options: dict[str, object] = {"q_pos": q_pos, "k_pos": k_pos, "causal": causal}
    options["mask"] = draw_mask(draw, call, kinds)
    options["segments"] = draw_segments(draw, call, in_order=in_order)
    keys = call.k.shape[2]
    if draw.chance(0.3):
        options["window"] = draw.choice([1, 2, 3, draw.integer(1, keys), keys, 10 * keys])
    if draw.chance(0.25):
        options["scale"] = draw.choice([1.0, 0.3, 0.0, -0.5, 5.0, 1])
    if draw.chance(0.12):
        options["softcap"] = draw.choice([50.0, 5.0, 0.5, 30])
    if draw.chance(0.25):
        options["length"] = draw.choice([1, 5, 16, 64, 2048, draw.integer(1, 100)])
    return {name: value for name, value in options.items() if value is not None}


def draw_positions(draw: Draw, call: RandomCall, kinds: set[str]) -> tuple[Tensor | None, Tensor | None]:
    """Positions of queries and keys; None where the default is meant."""
    batch, queries, keys = call.q.shape[0], call.q.shape[2], call.k.shape[2]
    if call.axes > 1:
        q_pos, k_pos = draw_places(draw, call)
        return q_pos, k_pos
    if draw.chance(0.45):
        return None, None
    rows = batch if draw.chance(0.4) else 1
    k_pos = torch.stack([_line(draw, keys, kinds) for _ in range(rows)])
    if queries <= keys and draw.chance(0.7):
        q_pos = k_pos[:, keys - queries :]
    else:
        q_pos = torch.stack([_line(draw, queries, kinds) for _ in range(rows)])
    q_pos, k_pos = _in_kind(draw, kinds, q_pos, k_pos)
    if rows == 1 and draw.chance(0.7):
        q_pos, k_pos = q_pos[0], k_pos[0]
    if queries == keys and torch.equal(q_pos, k_pos):
        which = draw.weighted({"both": 4, "same": 2, "q": 1, "k": 1})
        if which == "same":
            return k_pos, k_pos
        return (q_pos if which != "k" else None), (k_pos if which != "q" else None)
    return q_pos, k_pos


def _line(draw: Draw, tokens: int, kinds: set[str]) -> Tensor:
    """Whole positions of one row."""
    count = torch.arange(tokens)
    kind = draw.weighted({"offset": 3, "far": 3, "gaps": 3, "shuffled": 3, "negative": 2, "any": 2, "equal": 1})
    if "XPos" in kinds and kind in ("shuffled", "any", "negative"):
        kind = "offset"
    if kind == "offset":
        return count + draw.integer(0, 50)
    if kind == "far":  # a definition by exponentials of matrices loses digits far out
        near = bool(kinds & {"LieRE", "ComRoPEAP", "ComRoPELD"})
        return count + draw.choice(FAR[:2] if near else FAR)
    if kind == "gaps":
        return draw.integers(0, 5, tokens).cumsum(0)
    if kind == "shuffled":
        return draw.permutation(tokens) + draw.integer(0, 9)
    if kind == "negative":
        return count - draw.integer(1, 60)
    if kind == "any":
        return draw.integers(-40, 40, tokens)
    return torch.full((tokens,), draw.integer(0, 9))


def _in_kind(draw: Draw, kinds: set[str], q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
    """As int64, int32, or as fractions in float64 or float32, where no table wants whole numbers."""
    whole_only = kinds & {"Shaw", "CoPE", "TransformerXL", "TokenRelativeBias"}
    kind = draw.weighted({"int64": 6, "int32": 1, "float64": 0 if whole_only else 2, "float32": 0 if whole_only else 2})
    if kind == "int32":
        return q_pos.int(), k_pos.int()
    if kind == "int64":
        return q_pos, k_pos
    step = draw.choice([0.25, 0.1, 1.0])
    dtype = torch.float64 if kind == "float64" else torch.float32
    return (q_pos * step).to(dtype), (k_pos * step).to(dtype)


def draw_places(draw: Draw, call: RandomCall) -> tuple[Tensor, Tensor]:
    """Coordinates of tokens of a picture, some of them without a place."""
    batch, queries, keys, axes = call.q.shape[0], call.q.shape[2], call.k.shape[2], call.axes
    rows = batch if draw.chance(0.4) else 1
    side, least = draw.choice([2, 4, 8]), draw.choice([0, 0, -3])

    def places(tokens: int) -> Tensor:
        positions = draw.integers(least, least + side, rows, tokens, axes)
        if lost:
            at = draw.integers(0, 3, rows, tokens) == 0
            positions[..., 0] = torch.where(at, NO_POSITION, positions[..., 0])
        return positions

    lost = draw.chance(0.3)
    k_pos = places(keys)
    q_pos = k_pos[:, keys - queries :] if queries <= keys and draw.chance(0.7) else places(queries)
    kind = draw.weighted({"int64": 6, "int32": 1, "float64": 2, "float32": 2})
    if kind == "int32":
        q_pos, k_pos = q_pos.int(), k_pos.int()
    elif kind != "int64":
        step, dtype = draw.choice([0.25, 0.1, 1.0]), torch.float64 if kind == "float64" else torch.float32
        q_pos, k_pos = (torch.where(p == NO_POSITION, NO_POSITION, p * step).to(dtype) for p in (q_pos, k_pos))
    if rows == 1 and draw.chance(0.7):
        q_pos, k_pos = q_pos[0], k_pos[0]
    return q_pos, k_pos


def draw_mask(draw: Draw, call: RandomCall, kinds: set[str]) -> Tensor | None:
    """Who may look at whom, in any of the shapes that a mask may have.

    Where a text is read for neighbours, a token is hidden from all or none; by PaTH none between others.
    """
    per_key = bool(kinds & (BY_INDEX - {"RePo", "GRAPEContext"}))
    batch, heads, queries = call.q.shape[:3]
    keys = call.k.shape[2]
    kind = draw.weighted({"none": 50, "padding": 16, "pairs": 16, "rows": 8, "heads": 10})
    if per_key and kind != "none":
        kind = "padding"
    if kind == "none":
        return None
    if kind == "padding":
        real = draw.integers(0 if draw.chance(0.1) else 1, keys, batch)[:, None]
        index = torch.arange(keys)
        mask = index >= keys - real if draw.chance(0.6) else index < real
        if "PaTH" not in kinds and draw.chance(0.2):
            mask = draw.uniform(batch, keys) < 0.7
        return mask[:, None, :] if draw.chance(0.5) else mask[:, None, None, :]
    shape = {"pairs": (queries, keys), "rows": (batch, queries, keys), "heads": (batch, heads, queries, keys)}[kind]
    shape = tuple(1 if at < len(shape) - 1 and draw.chance(0.15) else n for at, n in enumerate(shape))
    mask = draw.uniform(*shape) < draw.choice([0.1, 0.5, 0.8, 0.97])
    if draw.chance(0.3):
        mask[..., draw.integer(0, shape[-2] - 1), :] = False
    if draw.chance(0.2):
        mask[..., draw.integer(0, keys - 1)] = False
    return mask


def draw_segments(draw: Draw, call: RandomCall, *, in_order: bool) -> Tensor | tuple[Tensor, Tensor] | None:
    """Documents, in runs or scattered, for all rows or row by row; a pair where queries are not among the keys."""
    batch, queries, keys = call.q.shape[0], call.q.shape[2], call.k.shape[2]
    if draw.chance(0.68):
        return None
    rows, count = draw.choice([1, batch]), draw.integer(1, 4)

    def documents(tokens: int) -> Tensor:
        numbers = draw.integers(0, count - 1, rows, tokens)
        if in_order or draw.chance(0.7):
            numbers = numbers.sort(-1).values
        elif draw.chance(0.5):
            numbers = numbers * 7 - 3
        return numbers.int() if draw.chance(0.15) else numbers

    of_keys = documents(keys)
    if queries > keys or (not in_order and draw.chance(0.2)):
        pair = documents(queries), of_keys
        if in_order:  # a token is of one document, as a query and as a key
            before = pair[0][:, : queries - keys].clamp(max=of_keys[:, :1])
            pair = torch.cat([before.to(of_keys.dtype), of_keys], 1), of_keys
        return (pair[0][0], pair[1][0]) if rows == 1 and draw.chance(0.5) else pair
    return of_keys[0] if rows == 1 and draw.chance(0.6) else of_keys


ROTARY = {1: ["RoPE"] * 5 + ["AxialRoPE", "MixedRoPE", "LieRE", "ComRoPEAP", "ComRoPELD"]}
ROTARY[1] += ["RoPEpp", "GRAPEM", "FoPE", "PoPE", "PoPE"]
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
SCORE[1] += ["DecomposedRelative", "GRAPEA", "SelectiveRoPE", "RePo", "GRAPEContext", "GRAPEAP"]
MOVED = ["ReRoPE", "LeakyReRoPE", "SelfExtend", "DualChunk", "STRING", "LMInfinite", "StreamingLLM", "XPos", "XPos"]
SCORE[2] = ["CoPE", "ForgetGate", "DataDependentALiBi", "PaTH", "DAPE", "Mixture", "SSMax", "DecomposedRelative"]
SCORE[2] += ["SelectiveRoPE", "RePo", "GRAPEContext"]
SCORE[3] = SCORE[2]
WEIGHT = ["StickBreaking", "AttentionSink"]
GRID = {*ROTARY[3], *BIAS[3], "DAPE", "DecomposedRelative"}
LEARNED_ANGLES = {"GRAPEM", "MixedRoPE", "LieRE", "ComRoPEAP", "ComRoPELD", "SelectiveRoPE", "RePo", "GRAPEContext"}
MULTIPLIED = {"FoPE", "SSMax", "LogN", "StepTemperature", "PowerTemperature"}  # queries times up to 10
DTYPES = {torch.float64: 36, torch.float32: 40, torch.bfloat16: 12, torch.float16: 12}
EDGES = [63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513]
FAR_EDGES = [1023, 1024, 1025]
FARTHEST_EDGES = [4095, 4096, 4097]


@dataclass
class RandomCall:
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
        members = []
        for at, spec in enumerate(self.specs):
            prefix = f"{at}."
            members.append(spec.encoded({n[len(prefix) :]: t for n, t in leaves.items() if n.startswith(prefix)}))
        return members

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
            kinds += [] if set(WEIGHT) & set(kinds) else [draw.choice(WEIGHT)]
        else:
            kinds.append(draw.choice({"rotary": ROTARY, "bias": BIAS, "score": SCORE}[place][axes]))
    if axes == 1 and draw.chance(0.1):  # which stands in the place of all rotations
        incompatible = {*ROTARY[1], "Shaw", "CoPE", "PaTH", "DecomposedRelative", "Mixture", "GRAPEA"}
        incompatible |= {"SelectiveRoPE", "RePo", "GRAPEContext"}
        kinds = [draw.choice(MOVED), *(kind for kind in kinds if kind not in incompatible)]
    return kinds


def head_dims(kinds: list[str], axes: int) -> list[int]:
    """Widths of a head that all kinds can do with."""
    if axes > 1:
        return [4, 8, 12, 16] if axes == 2 else [6, 12, 18, 24]
    if any(kind in {*ROTARY[1], *MOVED, "SelectiveRoPE", "RePo", "GRAPEContext"} - {"PoPE"} for kind in kinds):
        return [2, 4, 4, 6, 8, 8, 10, 12, 16]
    return [1, 2, 3, 4, 5, 6, 7, 8, 8, 16]


def draw_sizes(draw: Draw, kinds: list[str], axes: int, *, heads: int | None = None) -> Sizes:
    heads = draw.choice([1, 2, 2, 3, 4, 4, 6]) if heads is None else heads
    num_kv_heads = draw.choice([n for n in range(1, heads + 1) if heads % n == 0])
    head_dim = draw.choice(head_dims(kinds, axes))
    value_dim = head_dim if draw.chance(0.7) else draw.choice([1, 2, 3, 5, 8, 12])
    dim = draw.choice([1, 3, 4, 8])
    if "SelectiveRoPE" in kinds:  # a share of one number has the length one, whatever it is
        dim = num_kv_heads * draw.choice([2, 3, 4])
    return Sizes(heads, num_kv_heads, head_dim, value_dim, dim)


def draw_lengths(draw: Draw) -> tuple[int, int]:
    """Queries and keys: short ones mostly, at times at the edges of blocks, where one head must do."""
    far = draw.weighted({"short": 90, "edge": 8, "far": 1, "farthest": 1})
    if far == "short":
        keys = draw.choice([1, 2, 3, draw.integer(1, 12), draw.integer(1, 40), draw.integer(1, 40)])
    else:
        keys = draw.choice({"edge": EDGES, "far": FAR_EDGES, "farthest": FARTHEST_EDGES}[far])
    kind = draw.weighted({"all": 54, "one": 8, "last": 28, "more": 10})
    if kind == "all" and far != "farthest":
        return keys, keys
    if kind == "one":
        return 1, keys
    if kind == "more" and far == "short":
        return keys + draw.integer(1, 20), keys
    if kind == "more" and far == "edge":
        return keys, draw.integer(1, keys)
    most = keys if far == "short" else 130 if far == "edge" else 66
    return draw.integer(1, min(keys, most)), keys


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


def draw_call(
    seed: int,
    *,
    plain: bool = False,
    lengths: tuple[int, int] | None = None,
    kinds: list[str] | None = None,
    axes: int | None = None,
) -> RandomCall:
    """A call from a seed.

    Args:
        seed: brings the same call back.
        plain: positions and visibility at their defaults, one magnitude: for modes that lay batches out themselves.
        lengths: queries and keys.
        kinds: names of the encodings; layers can hold such a call, as values are as wide as keys.
        axes: coordinates of a position.
    """
    draw, given = Draw(seed), kinds
    drawn_axes = draw.weighted({1: 80, 2: 13, 3: 7})
    axes = drawn_axes if axes is None else axes
    queries, keys = draw_lengths(draw) if lengths is None else lengths
    while True:
        kinds = draw_kinds(draw, axes) if given is None else given
        sizes = draw_sizes(draw, kinds, axes, heads=1 if keys > 600 else draw.integer(1, 2) if keys > 60 else None)
        if given is not None and sizes.value_dim != sizes.head_dim:
            continue
        specs = make_specs(draw, kinds, sizes, axes)
        if axes > 1 and not set(kinds) & GRID:  # nobody would read coordinates
            continue
        if not (keys > 600 and {"T5Bias", "Sandwich", "DAPE", "Mixture"} & set(kinds)):
            break
    dtype, strength = draw.weighted(DTYPES), draw.choice([0.0, 0.5, 0.5, 2.0])
    encodings = [make(spec, draw, strength=strength) for spec in specs]
    if dtype == torch.float64 or (dtype != torch.float32 and draw.chance(0.5)):
        remaining = LEARNED_ANGLES if dtype == torch.float16 else set()  # whose gradients sum positions
        encodings = [e if s.kind in remaining else e.to(dtype) for e, s in zip(encodings, specs, strict=True)]
    batch = 1 if keys > 60 else draw.choice([1, 1, 2, 2, 3])
    notes, tensors = [f"strength {strength:g}"], []
    huge = dtype != torch.float16 or not set(kinds) & MULTIPLIED
    shapes = ((sizes.heads, queries, sizes.head_dim), (sizes.num_kv_heads, keys, sizes.head_dim))
    for name, shape in (*zip("qk", shapes, strict=True), ("v", (sizes.num_kv_heads, keys, sizes.value_dim))):
        tensor, size = (
            (draw.normal(batch, *shape).to(dtype), "") if plain else draw_tensor(draw, dtype, batch, *shape, huge=huge)
        )
        tensor, strides = with_strides(draw, tensor)
        tensors.append(tensor)
        notes += [f"{name} {strides}{size}"] if strides != "contiguous" or size else []
    x = draw.normal(batch, keys, sizes.dim).to(dtype)
    built = RandomCall(seed, sizes, axes, specs, encodings, dtype, *tensors, x, notes=notes)
    if not plain:
        built.options = draw_options(draw, built)
    return built
