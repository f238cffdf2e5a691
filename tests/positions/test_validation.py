"""Whatever a builder of positions is given is taken, or refused by a ValueError that names the argument."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable

import numpy
import pytest
import torch

from posenc import positions
from posenc.diffusion import latents
from posenc.positions import Audio, Image, Text, Video, grid

Call = tuple[str, Callable[..., object], dict[str, object]]
WRONG: tuple[object, ...] = (
    3, 0, -1, 2.5, 2**31, 10**18, 10**400, None, True, "x", b"x", [], [None], [[1]], {}, object(), math.nan, math.inf,
    1j, torch.ones(()), torch.ones(2), torch.ones(2, dtype=torch.bool), torch.ones(2, 2, dtype=torch.complex64),
    torch.zeros(0), torch.zeros(0, 2), torch.zeros(2, 0).long(), torch.ones(2, 2, 2, 2), numpy.ones(2),
)  # fmt: skip
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


CALLS: list[Call] = [
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
    ("check", lambda **given: positions.check("positions", **given),
     {"positions": ROW, "tokens": 4, "batch": 1, "axes": 1}),
    ("check", lambda **given: positions.check("positions", **given),
     {"positions": grid(2, 3), "tokens": 6, "batch": 1, "axes": 2}),
    ("check_dtype", lambda **given: positions.check_dtype("positions", **given), {"positions": ROW}),
    call("nowhere", positions=ROW, axes=1),
    call("nowhere", positions=grid(2, 3), axes=2),
    call("span", positions=ROW),
    call("wide", positions=ROW),
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
    "from_token_ids": ("merge",), "nowhere": ("axes",), "check": ("axes",),
}  # fmt: skip


def cases() -> list[object]:
    return [
        pytest.param(run, valid, argument, ALSO_NAMED.get(f"{name}-{argument}", argument), id=f"{name}-{argument}")
        for name, run, valid in CALLS
        for argument in valid
    ]


def counts() -> list[object]:
    expected = {f"{name}-{argument}" for name, arguments in COUNTS.items() for argument in arguments}
    return [case for case in cases() if case.id in expected]


@pytest.mark.parametrize(("run", "valid", "argument", "also_named"), cases())
def test_whatever_is_given_is_taken_or_refused_by_name(run, valid, argument, also_named):
    run(**valid)
    for value in WRONG:
        try:
            run(**{**valid, argument: value})
        except ValueError as error:
            assert re.search(rf"\b({argument}|{also_named})\b", str(error)), f"{value!r}: {error}"  # noqa: PT017


def test_every_builder_and_every_argument_is_there():
    public = {
        name: thing
        for name, thing in vars(positions).items()
        if callable(thing) and thing.__module__ != "typing" and thing is not positions.Skipped  # what one gives back
    }
    public["latents"] = latents
    tried: dict[str, set[str]] = {name: {"name"} for name in ("check", "check_dtype")}
    for name, _, valid in CALLS:
        tried.setdefault(name, set()).update(valid)
    assert {name: set(inspect.signature(thing).parameters) for name, thing in public.items()} == tried


@pytest.mark.parametrize(("run", "valid", "argument", "also_named"), counts())
@pytest.mark.parametrize("count", [2**31, 10**18])
def test_counts_that_no_memory_holds_are_refused(run, valid, argument, also_named, count):
    with pytest.raises(ValueError, match=rf"\b({argument}|{also_named})\b"):
        run(**{**valid, argument: count})


def test_counts_of_numpy_and_of_tensors():
    three, pair = numpy.int64(3), torch.tensor([2, 3])
    assert torch.equal(grid(*pair), grid(2, 3))
    assert torch.equal(grid(three, numpy.int32(2)), grid(3, 2))
    assert torch.equal(positions.after(three, three), torch.arange(3, 6))
    assert torch.equal(positions.centred(grid(2, 3), pair), positions.centred(grid(2, 3), (2, 3)))
    assert torch.equal(
        positions.cropped(grid(2, 3), pair, numpy.float32(0.5)), positions.cropped(grid(2, 3), (2, 3), 0.5)
    )
    assert torch.equal(positions.seconds(three, torch.tensor(2.0)), positions.seconds(3, 2.0))
    parts = [Image(*pair), Video(three, 1, 1, torch.tensor(0.5), between=numpy.array([1, 2]))]
    expected = positions.stream([Image(2, 3), Video(3, 1, 1, 0.5, between=(1, 2))], family="qwen3-vl")
    assert torch.equal(positions.stream(parts, family="qwen3-vl"), expected)


class Builds(torch.nn.Module):
    """What a model may build of the sizes of its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        here = positions.after(0, x.shape[1])
        positions.check("here", here, x.shape[1], x.shape[0])
        there = positions.wide(positions.from_mask(x[..., 0] > 0))
        lost = positions.nowhere(positions.on_all_axes(there, 2), axes=2)
        return x + (here + positions.span(there) + lost)[..., None]


def test_sizes_stay_open_where_they_are_traced():
    tokens, x = torch.export.Dim("tokens"), torch.randn(2, 9, 3)
    exported = torch.export.export(Builds(), (x,), dynamic_shapes=({1: tokens},)).module()
    compiled = torch.compile(Builds(), fullgraph=True, backend="eager", dynamic=True)
    for result in (exported, compiled):
        for length in (9, 13):
            x = torch.randn(2, length, 3)
            assert torch.equal(result(x), Builds()(x))
