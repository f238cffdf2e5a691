"""Scalings that follow each call of a model: DyPE by the size of the picture and the timestep, RIFLEx by the length.

A scaling for `attach` is a `Scaling` (or None) for each axis, or a function that returns these: of the sizes along each
axis, or of the sizes and the noise level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from torch import nn

from posenc.arguments import check_whole, shown
from posenc.frequencies import DyPE, PositionInterpolation, RIFLEx
from posenc.frequencies.dype import Method

Scalings = Sequence[nn.Module | None]
Scaling = nn.Module | Scalings | Callable[..., Scalings | None] | None


def dype(
    original_length: int = 64, *, method: Method = "yarn", dynamic: bool = True
) -> Callable[[tuple[int, ...], float], Scalings]:
    """DyPE on rows and columns, by the size of the picture and the timestep: a scaling for `attach`.

    Args:
        original_length: patches along the side of a picture of training: FLUX.1 64, Qwen-Image 83.
        method, dynamic: see `DyPE`.

    >>> dype()((1, 128, 64), 0.5)
    (None, DyPE(128, original_length=64, timestep=0.5), DyPE(64, original_length=64, timestep=0.5))
    """
    DyPE(original_length, original_length=original_length, method=method, dynamic=dynamic)  # refuses what it must

    def of_call(sizes: tuple[int, ...], timestep: float) -> Scalings:
        steps = {"original_length": original_length, "timestep": timestep, "method": method, "dynamic": dynamic}
        by_axis = [cast(nn.Module, DyPE(size, **cast(Any, steps))) for size in sizes[1:3]]
        return (None, *by_axis, *[None] * (len(sizes) - 3))

    return of_call


def riflex(k: int, *, repeats_at: int, share: float = 0.9) -> Callable[[tuple[int, ...]], Scalings | None]:
    """RIFLEx on the frames, by the length of the video: a scaling for `attach`; shorter videos keep their frequencies.

    Args:
        k: the pair that is slowed down, from 1: HunyuanVideo 4, CogVideoX-5B 2, Wan 2.1 6.
        repeats_at: its period in latent frames, up to which nothing changes: HunyuanVideo 50, CogVideoX-5B 20, Wan 51;
            `identify_k` has them.
        share: see `RIFLEx`.

    >>> riflex(6, repeats_at=51)((66, 30, 52))
    (RIFLEx(6, length=66), None, None)
    >>> riflex(6, repeats_at=51)((21, 30, 52)) is None
    True
    """
    RIFLEx(k, length=1, share=share)  # refuses what it must
    check_whole("repeats_at", repeats_at)

    def of_call(sizes: tuple[int, ...]) -> Scalings | None:
        if sizes[0] <= repeats_at:
            return None
        return (cast(nn.Module, RIFLEx(k, length=sizes[0], share=share)), *[None] * (len(sizes) - 1))

    return of_call


def divisors(scaling: Scaling) -> tuple[float, float, float]:
    """By what a model whose frequencies cannot be scaled divides frames, rows and columns.

    Raises:
        ValueError: for anything but `PositionInterpolation` or None for each of three axes.
    """
    by_axis = (scaling,) * 3 if scaling is None or isinstance(scaling, nn.Module) else scaling
    if callable(by_axis) or len(by_axis) != 3:
        raise ValueError(
            f"scaling must be one PositionInterpolation or None for each of 3 axes of this model, got {shown(scaling)}"
        )
    factors = []
    for each in by_axis:
        if each is not None and not isinstance(each, PositionInterpolation):
            raise ValueError(
                "scaling must be PositionInterpolation or None for each axis of this model, whose frequencies are "
                f"learned or grow (LTX, Mochi), got {shown(each)}"
            )
        factors.append(1.0 if each is None else float(cast(Any, each).factor))
    return factors[0], factors[1], factors[2]
