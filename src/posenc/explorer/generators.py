"""Axes of image and video generators as the page shows them: channels, base, and how far training reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from posenc.diffusion import rotation
from posenc.frequencies import identify_k


class Axis(NamedTuple):
    """One axis of a model.

    Attributes:
        title: as the page names it.
        model: its name in `posenc.diffusion.rotation`.
        place: of the axis.
        unit: what a coordinate counts.
        trained: its coordinates in training.
        repeats_at: the coordinate at which the pair comes round that RIFLEx slows; 0: none known.
    """

    title: str
    model: str
    place: int
    unit: str
    trained: int
    repeats_at: int = 0


# Extents: FLUX.1 and Qwen-Image, DyPE's code (1,024 and 1,328 pixels over 16); HunyuanVideo and CogVideoX, RIFLEx's
# code (129 and 49 frames); Wan, its authors (81 frames, Wan-Video/Wan2.1#54).
AXES = (
    Axis("FLUX.1: rows or columns", "flux-1", 1, "patches", 64),
    Axis("Qwen-Image: rows or columns", "qwen-image", 1, "patches", 83),
    Axis("HunyuanVideo: frames", "hunyuan-video", 0, "latent frames", 33, 50),
    Axis("CogVideoX: frames", "cogvideox", 0, "latent frames", 13, 20),
    Axis("Wan: frames", "wan", 0, "latent frames", 21, 51),
)


def axes_of_generators() -> list[dict[str, Any]]:
    """Plain values for the page."""
    return [_axis(axis) for axis in AXES]


def _axis(axis: Axis) -> dict[str, Any]:
    rope = rotation(axis.model)
    assert rope.axes_dims is not None
    base = rope.base[axis.place] if isinstance(rope.base, Sequence) else rope.base
    assert base is not None
    width = rope.axes_dims[axis.place]
    pair = identify_k(width, base, axis.repeats_at)[0] if axis.repeats_at else 1
    return {"title": axis.title, "channels": width, "base": base, "unit": axis.unit, "trained": axis.trained, "k": pair}
