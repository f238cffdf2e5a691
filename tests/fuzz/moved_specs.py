"""Random options of remapped distances; one function a class, for the sizes of a call."""

from __future__ import annotations

from tests.fuzz.draw import Draw
from tests.fuzz.rotation_specs import rope
from tests.fuzz.spec import Sizes, Spec, plain


def moving(draw: Draw, sizes: Sizes) -> dict[str, object]:
    rotation = plain(Spec("RoPE", rope(draw, sizes, 1)))
    return {"rotation": rotation, "window": draw.one([1, 2, 5, 12, 40])}


def dual_chunk(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    size = draw.one([2, 3, 8, 12, 40])
    found = {"rotation": moving(draw, sizes)["rotation"], "size": size, "local": draw.whole(1, size - 1)}
    return found | ({"gain": draw.number(0.8, 1.2)} if draw.chance(0.3) else {})


def string(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    shift = draw.one([1, 2, 8, 20])
    return {"rotation": moving(draw, sizes)["rotation"], "shift": shift, "local": draw.whole(0, shift)}


def lm_infinite(draw: Draw, sizes: Sizes, axes: int) -> dict[str, object]:
    found = moving(draw, sizes) | {"sinks": draw.one([None, 1, 3])}
    return found | ({"limit": draw.whole(1, 50)} if draw.chance(0.3) else {})
