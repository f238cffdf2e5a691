"""Every public callable and wrong arguments: each is taken, or refused by a ValueError that names the argument.

Rows are constructors of encodings and scalings, builders of positions, layers and their caches, each with arguments
that it takes; one at a time is then replaced by every wrong value. What `attention` says: tests/fuzz/refusals.py.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator

import numpy
import pytest
import torch

import posenc
from posenc import Encoding, RoPE, positions
from posenc.arguments import check_flag, check_heads, check_kv_heads, check_number, check_table
from posenc.bias import KERPLE
from posenc.diffusion import latents
from posenc.frequencies import Scaling
from posenc.frequencies.host import Formula
from posenc.layers import FoXPro, KVCache, SelfAttention
from posenc.positions import Audio, Image, Text, Video, checking, grid
from tests.samples import expect_taken_or_named

Call = tuple[str, Callable[..., object], dict[str, object]]
WRONG: tuple[object, ...] = (
    3, 0, -1, 2.5, 2**31, 10**18, 10**30, None, True, "x", b"x", [], (), [None], [True], [math.nan], [[1]], {},
    object(), math.nan, math.inf, torch.ones(2), torch.ones(2, dtype=torch.bool), torch.ones(2, 2, 2, 2),
)  # fmt: skip
OF_BUILDERS = (
    1j, torch.ones(()), torch.ones(2, 2, dtype=torch.complex64), torch.zeros(0), torch.zeros(0, 2),
    torch.zeros(2, 0).long(), numpy.ones(2),
)  # fmt: skip
OF_LAYERS = (torch.ones(7, 5), torch.ones(2, 5, 16, 1), torch.tensor([5, 6]))
NO_NUMBER: list[object] = ["8", True, math.nan, math.inf, -math.inf, [8], 1j, 10**400]
NO_FLAG: list[object] = [None, "no", 2, 0.5, [], math.nan, torch.ones(2), torch.ones(()), numpy.ones(2)]


# Constructors of encodings and scalings

VALID: dict[str, dict[str, object]] = {
    "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "dim": 16, "value_dim": 16, "max_length": 8, "max_position": 4,
    "max_distance": 64, "axes": 2, "window": (3, 3), "size": (3, 3), "pairs": 8, "original_length": 64, "factor": 2.0,
    "factors": [1.0] * 8, "short": [1.0] * 8, "long": [2.0] * 8, "fraction": 0.5, "sections": (4, 4), "hidden": 8,
    "path_dim": 8, "k": 1, "length": 64, "rotation": RoPE(16), "shift": 256,
}  # fmt: skip
ODD: dict[str, dict[str, object]] = {  # what else a constructor needs so that an argument counts
    "AxialRoPE.min_period": {"min_period": 1.0, "max_period": 100.0, "convention": "dinov3"},
    "AxialRoPE.max_period": {"min_period": 1.0, "max_period": 100.0, "convention": "dinov3"},
    "CoPE.dim": {"gates": "separate"},
    "CoPE.num_kv_heads": {"gates": "separate"},
    "ForgetGate.gate_dim": {"kind": "rows"},
    "MHRoPE": {"num_kv_heads": 2, "heads": (1, 1)},
    "MixedRoPE": {"num_kv_heads": 2},
    "Mixture": {"adaptive": True},
    "StickBreaking": {"remainder": "vector"},
    "T5Bias": {"max_distance": 128},
    "TransformerXL.clamp": {},
    "YaRN.mscale_all_dim": {"mscale": 1.0},
    "YaRN.mscale": {"mscale_all_dim": 1.0},
}
SMALL = {"offset", "prefix", "start", "start_tokens", "padding_idx", "STRING.local", "StreamingLLM.sinks"}  # may be 0
WIDTHS = {"dim", "head_dim", "value_dim", "hidden", "rank", "gate_dim", "rotary_dim", "num_heads", "num_kv_heads",
          "axes", "block", "layers", "num_buckets", "conv", "pairs"}  # fmt: skip


def classes() -> list[type]:
    places = {posenc.encoding.Encoding, Scaling, *posenc.encoding.HOOK_POINTS.values()}
    packages = (posenc.embedding, posenc.rotary, posenc.bias, posenc.score, posenc.weight, posenc.frequencies)
    public = {name: getattr(package, name) for package in packages for name in package.__all__}
    results = [c for c in public.values() if inspect.isclass(c) and issubclass(c, Encoding | Scaling)]
    formulas = tuple(c for c in dict.fromkeys(results) if issubclass(c, Formula))  # whose constructors are inherited
    return [c for c in dict.fromkeys(results) if c not in places and (c in formulas or "__init__" in vars(c))]


def numbers() -> list[tuple[type, str, str]]:
    """Each constructor with each argument that is a number, and its annotation."""
    results = []
    for kind in classes():
        for name, parameter in inspect.signature(kind).parameters.items():
            words = {word.strip() for word in str(parameter.annotation).split("|")}
            if words & {"int", "float"} and not name.startswith("device"):
                results.append((kind, name, "int" if "int" in words else "float"))
    return results


def valid_arguments(kind: type, name: str) -> dict[str, object]:
    """Arguments with which the constructor is content."""
    parameters = inspect.signature(kind).parameters
    built = {n: VALID[n] for n, p in parameters.items() if p.default is p.empty and n in VALID}
    if "bias" in parameters and kind.__name__ == "DAPE":
        built["bias"] = KERPLE(4)
    if "members" in parameters:
        built["members"] = [RoPE(16), []]
    if kind.__name__ == "StickBreaking":
        built |= {"num_heads": 4, "value_dim": 8}
    if kind.__name__ in ("CoPE", "Mixture"):
        built |= {n: VALID[n] for n in ("dim", "num_kv_heads") if n in parameters}
    if kind.__name__ in ("VJEPARoPE",):
        built["head_dim"] = 48
    if kind.__name__ == "MRoPE":
        built |= {"axes": 2, "sections": (4, 4)}
    if kind.__name__ in ("ComRoPEAP", "ComRoPELD"):
        built |= {"block": 4}
    return built | ODD.get(kind.__name__, {}) | ODD.get(f"{kind.__name__}.{name}", {})


def bad(kind: type, name: str, sort: str) -> list[object]:
    optional = "None" in str(inspect.signature(kind).parameters[name].annotation)
    several = "Sequence" in str(inspect.signature(kind).parameters[name].annotation)
    result = [value for value in NO_NUMBER if not (several and isinstance(value, list))] + ([] if optional else [None])
    if sort == "int":
        result += (
            [2.5, -1, 10**18]
            + ([] if SMALL & {name, f"{kind.__name__}.{name}"} else [0])
            + ([2**31] if name in WIDTHS else [])
        )
    return result


# Builders of positions

GRID, ROW = {"coordinates": grid(2, 3), "sizes": (2, 3)}, torch.arange(4)
IDS = {
    "input_ids": torch.tensor([[7, 7, 1, 1, 7, 2, 2]]), "image_token": 1, "video_token": 2,
    "image_grid_thw": [[1, 2, 4]], "video_grid_thw": [[2, 2, 2]], "seconds_per_grid": [1.0],
    "mask": torch.ones(1, 7), "segments": torch.zeros(1, 7), "merge": 2,
}  # fmt: skip
STREAM = {"family": "qwen2.5-vl", "tokens_per_second": 2.0, "after": "side"}


def call(name: str, **valid: object) -> Call:
    """A builder by its name with arguments that it takes."""
    return name, latents if name == "latents" else getattr(positions, name), valid


def of_part(kind: Callable[..., object], family: str, **valid: object) -> Call:
    """A part of a stream with fields that it takes; they are looked at where the stream is made."""
    return kind.__name__, lambda **fields: positions.stream([kind(**fields)], family=family), valid


def circled(circle: positions.Circle) -> object:
    """A picture on a circle, whose fields are looked at here."""
    return positions.multimodal([Image(2, 2)], design="circlerope", circle=circle)


BUILDERS: list[Call] = [
    call("padded", rows=[ROW, ROW[:2]], side="left"),
    call("packed", documents=[ROW, ROW[:2]]),
    ("grid", lambda sizes: positions.grid(2, sizes), {"sizes": 3}),
    ("block_order", lambda sizes, **given: positions.block_order(2, sizes, **given),
     {"sizes": 4, "block": 2, "partial": False}),
    call("windows", **GRID, window=2),
    call("centred", **GRID),
    call("signed", **GRID, per="min", corners=True),
    call("spaced", **GRID, trained=2),
    call("rescaled", **GRID, onto=2),
    call("aligned", **GRID, onto=2, offset=0.1),
    call("nearest", **GRID, onto=2),
    call("cropped", coordinates=grid(2, 3), offset=(1, 2), scale=0.5),
    call("with_prefix", positions=grid(2, 3), count=2, at="centre"),
    call("with_suffix", positions=grid(2, 3), count=2, at="centre"),
    call("seconds", frames=3, rate=2.0, start=0.5, dtype=torch.float64),
    call("video", frames=2, height=2, width=3, times=ROW[:2]),
    call("on_all_axes", positions=ROW, axes=2),
    call("stream", parts=[Text(2), Image(1, 2)], **STREAM),
    call("multimodal", parts=[Text(2), Image(1, 2)], design="mrope-i", reset=True, stride=0.5),
    call("multimodal", parts=[Text(2), Image(1, 2)], design="mm-rope", scale=(4.0, 8, 8), stride=[1]),
    call("multimodal", parts=[Text(2), Image(1, 2)], design="v2pe", span=1.0),
    call("multimodal", parts=[Text(2), Image(1, 2)], design="circlerope", circle=positions.Circle()),
    ("Circle", lambda **fields: circled(positions.Circle(**fields)),
     {"radius": 5.0, "alpha": 0.5, "centred": True, "plane": 0.5, "positive": 0.0}),
    call("latents", parts=[Text(2), Image(1, 2)], model="flux-1"),
    call("latents", parts=[Video(2, 2, 2)], model="cosmos", fps=24.0),
    call("latents", parts=[Image(2, 2)], model="sd3", trained=64, table=192),
    call("latents", parts=[Image(2, 2)], model="pixart", scale=2.0),
    call("latents", parts=[Video(2, 2, 2)], model="framepack", frames=[0, 1]),
    call("latents", parts=[Text(2), Image(2, 2), Video(2, 2, 2)], model="minimax-h3", keyframes=("first",)),
    of_part(Text, "qwen2-vl", tokens=3),
    of_part(Audio, "qwen2.5-omni", tokens=3),
    of_part(Image, "qwen2-vl", height=2, width=2),
    of_part(Video, "qwen2.5-vl", frames=2, height=2, width=2, seconds_per_grid=0.5, between=0),
    of_part(Video, "qwen3-vl", frames=3, height=2, width=2, between=(2, 3)),
    call("from_token_ids", **IDS, **STREAM),
    ("from_token_ids", positions.from_token_ids, {**IDS, "video_grid_thw": [[1, 2, 2], [1, 2, 2]], "family": "qwen3-vl",
                                                  "seconds_per_grid": [1.0, 1.0]}),
    call("following", positions=grid(2, 3), tokens=2),
    call("from_mask", mask=torch.ones(2, 3)),
    call("from_segments", segments=torch.tensor([0, 0, 1])),
    call("from_cu_seqlens", cu_seqlens=torch.tensor([0, 3, 5]), total=6),
    call("segments_from_cu_seqlens", cu_seqlens=torch.tensor([0, 3, 5]), total=6),
    call("after", past=torch.tensor([5, 2]), tokens=2),
    call("after", past=5, tokens=2),
    call("zigzag", length=8, rank=0, world=2),
    call("abacus", input_ids=ROW, digit_tokens=[1, 2], shift=3),
    call("randomised", tokens=3, max_length=8, batch=2, generator=torch.Generator()),
    call("skipped", tokens=3, max_length=8, text_length=6, batch=2, generator=torch.Generator()),
    call("perturbed", **GRID, intensity=0.5, offset=0.1, still=1, still_axes=(0,), generator=torch.Generator()),
    call("augmented", coordinates=grid(2, 3), shift=0.1, jitter=2.0, rescale=2.0, generator=torch.Generator()),
    ("check", lambda **given: checking.check("positions", **given),
     {"positions": ROW, "tokens": 4, "batch": 1, "axes": 1}),
    ("check", lambda **given: checking.check("positions", **given),
     {"positions": grid(2, 3), "tokens": 6, "batch": 1, "axes": 2}),
    ("check_dtype", lambda **given: checking.check_dtype("positions", **given), {"positions": ROW}),
    ("has_no_position", checking.has_no_position, {"positions": ROW, "axes": 1}),
    ("has_no_position", checking.has_no_position, {"positions": grid(2, 3), "axes": 2}),
    ("span", checking.span, {"positions": ROW}),
    ("wide", checking.wide, {"positions": ROW}),
]  # fmt: skip
ALSO_NAMED = {  # of two arguments that do not fit each other, the one that may be named
    "from_token_ids-image_token": "image_grid_thw", "from_token_ids-video_token": "video_grid_thw",
    "from_token_ids-video_grid_thw": "seconds_per_grid", "perturbed-coordinates": "still", "check-axes": "positions",
    "block_order-partial": "sizes", "multimodal-design": "scale|span|circle|stride|reset",
}  # fmt: skip
COUNTS = {
    "grid": ("sizes",), "block_order": ("sizes",), "seconds": ("frames",), "video": ("frames", "height", "width"),
    "on_all_axes": ("axes",), "Text": ("tokens",), "Audio": ("tokens",), "Image": ("height", "width"),
    "Video": ("frames", "height", "width", "between"), "following": ("tokens",), "from_cu_seqlens": ("total",),
    "segments_from_cu_seqlens": ("total",), "after": ("tokens",), "zigzag": ("length", "world"),
    "randomised": ("max_length", "batch"), "skipped": ("batch",), "with_prefix": ("count",), "with_suffix": ("count",),
    "from_token_ids": ("merge",), "has_no_position": ("axes",), "check": ("axes",),
}  # fmt: skip


# Layers and their caches

LAYERS = (SelfAttention, FoXPro)
EDITS = {"crop": "tokens", "select": "rows", "repeat": "times", "shift": "by"}


def of_layer(*, cached: bool) -> Callable[..., object]:
    """One call of a layer, with an empty cache or none."""

    def run(**given: object) -> object:
        layer, here = SelfAttention(16, 4, encodings=[RoPE(4)]), {"cache": KVCache()} if cached else {}
        with torch.no_grad():
            return layer(**{"x": torch.randn(2, 5, 16), **here, **given})

    return run


def edited(method: str) -> Callable[..., object]:
    """A cache of five tokens in two rows, and what is done to it."""

    def run(**given: object) -> object:
        layer, cache = SelfAttention(16, 4, encodings=[RoPE(4)]), KVCache()
        with torch.no_grad():
            layer(torch.randn(2, 5, 16), cache=cache)
        return getattr(cache, method)(*given.values())

    return run


def rows() -> Iterator[tuple[str, Callable[..., object], dict[str, object], str, tuple[object, ...]]]:
    """Each callable with its name, arguments that it takes, one that is replaced, and wrong values beside `WRONG`."""
    numbered = {(kind, name) for kind, name, _ in numbers()}  # see test_a_bad_number_is_named
    for kind in classes():
        for name in inspect.signature(kind).parameters:
            if (kind, name) not in numbered and name not in ("device", "dtype", "kwargs", "args"):
                yield kind.__name__, kind, valid_arguments(kind, name), name, ()
    for builder, run, valid in BUILDERS:
        for name in valid:
            yield builder, run, valid, name, OF_BUILDERS
    for kind in LAYERS:
        for name in inspect.signature(kind).parameters:
            yield kind.__name__, kind, {"dim": 16, "num_heads": 4}, name, OF_LAYERS
    for cached in (False, True):
        for name in list(inspect.signature(SelfAttention.forward).parameters)[1:]:
            yield f"a call, cached {cached}", of_layer(cached=cached), {}, name, OF_LAYERS
    for name in ("capacity", "window", "sinks", "slack"):
        yield "KVCache", KVCache, {}, name, OF_LAYERS
    for method, name in EDITS.items():
        yield f"KVCache.{method}", edited(method), {}, name, OF_LAYERS


ROWS = [pytest.param(*row, id=f"{row[0]}-{row[3]}") for row in rows()]


@pytest.mark.parametrize(("name", "run", "valid", "argument", "more"), ROWS)
def test_whatever_is_given_is_taken_or_refused_by_name(name, run, valid, argument, more):
    if valid:
        run(**valid)
    values = (*WRONG, *more)
    expect_taken_or_named(run, valid, argument, values, also=ALSO_NAMED.get(f"{name}-{argument}", ""))
    if run in classes():
        with pytest.raises(ValueError, match=argument):  # no argument takes any text
            run(**{**valid, argument: "x"})


@pytest.mark.parametrize(("kind", "name", "sort"), [pytest.param(*n, id=f"{n[0].__name__}-{n[1]}") for n in numbers()])
def test_a_bad_number_is_named(kind, name, sort):
    content = valid_arguments(kind, name)
    for value in bad(kind, name, sort):
        with pytest.raises(ValueError, match=name):
            kind(**(content | {name: value}))


@pytest.mark.parametrize(
    ("name", "run", "valid", "argument", "more"),
    [row for row in ROWS if row.values[3] in COUNTS.get(row.values[0], ())],
)
def test_counts_that_no_memory_holds_are_refused(name, run, valid, argument, more):
    for count in (2**31, 10**18):
        with pytest.raises(ValueError, match=rf"\b({argument}|{ALSO_NAMED.get(f'{name}-{argument}', argument)})\b"):
            run(**{**valid, argument: count})


@pytest.mark.parametrize(("kind", "name"), [
    (kind, name) for kind in classes() for name, p in inspect.signature(kind).parameters.items()
    if p.annotation == "bool"
])  # fmt: skip
def test_a_flag_is_true_or_false(kind, name):
    content = valid_arguments(kind, name)
    for value in NO_FLAG:
        with pytest.raises(ValueError, match=rf"\b{name}\b"):
            kind(**(content | {name: value}))


def test_every_callable_and_every_argument_is_there():
    assert len(classes()) > 40
    assert len(numbers()) > 120
    public = {
        name: thing
        for name in positions.__all__
        if callable(thing := getattr(positions, name)) and thing is not positions.Skipped  # what one gives back
    }
    public["latents"] = latents
    tried: dict[str, set[str]] = {name: {"name"} for name in ("check", "check_dtype")}
    for name, _, valid in BUILDERS:
        tried.setdefault(name, set()).update(valid)
    taken = {name: set(inspect.signature(thing).parameters) for name, thing in public.items()}
    assert taken == {name: arguments for name, arguments in tried.items() if name in taken}


@pytest.mark.parametrize(("sizes", "call"), [
    ("max_length and dim", lambda: posenc.Learned(2**16, max_length=2**20)),
    ("max_length and dim", lambda: posenc.embedding.Abacus(2**16, max_length=2**20)),
    ("size and dim", lambda: posenc.LearnedGrid(1024, size=(2**13, 2**13))),
    ("max_distance and head_dim", lambda: posenc.score.Shaw(128, max_distance=2**30)),
    ("max_position and head_dim", lambda: posenc.score.CoPE(128, max_position=2**30)),
    ("relative and head_dim", lambda: posenc.score.CoPE(128, max_position=4, relative=2**30)),
    ("num_kv_heads, head_dim and dim",
     lambda: posenc.score.CoPE(2**14, max_position=4, gates="separate", dim=2**14, num_kv_heads=99)),
    ("num_kv_heads, head_dim and rank", lambda: posenc.score.PaTH(2**14, head_dim=2**14, num_kv_heads=64, rank=None)),
    ("num_heads and head_dim", lambda: posenc.score.TransformerXL(2**16, num_heads=4, head_dim=2**17)),
    ("window and num_heads", lambda: posenc.bias.SwinBias(64, window=(2**14, 2**14))),
    ("window and num_heads", lambda: posenc.bias.BEiTBias(64, window=(2**14, 2**14))),
    ("layers and hidden", lambda: posenc.bias.DistanceMLP(4, hidden=2**16, layers=64)),
    ("num_kv_heads, head_dim and block", lambda: posenc.rotary.ComRoPEAP(2**16, num_heads=512, block=2**10)),
    ("num_kv_heads, head_dim and block", lambda: posenc.rotary.LieRE(2**16, num_heads=512)),
])  # fmt: skip
def test_tables_that_no_memory_holds(sizes, call):
    with pytest.raises(ValueError, match=sizes):
        call()


def test_what_is_accepted():
    check_heads("n", 96)
    assert check_kv_heads(8, None) == 8
    assert check_kv_heads(8, 2) == 2
    check_number("n", 0.5, above=0, most=1)
    check_number("n", 3)
    check_table("n", 2**33)
    for truth in (True, 1, numpy.True_, numpy.int64(1), numpy.array(True)):
        assert check_flag("n", truth) is True
    for untruth in (False, 0, numpy.False_, numpy.float32(0)):
        assert check_flag("n", untruth) is False
