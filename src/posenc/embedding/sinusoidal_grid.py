"""Sinusoidal embedding of a grid: each coordinate gets the waves of a share of the channels.

    theta_i = base^(−i / pairs)          i = 0 … pairs − 1; denominator pairs − 1 in family="simplevit"
    s_a, c_a = sin p_a·theta, cos p_a·theta                                for each axis a, `pairs` channels each
    e(p) = s_1 | c_1 | s_0 | c_0                                           "mae", "simplevit": the last axis first
    e(p) = s_0 | s_1 | c_0 | c_1                                           "timm"
    e(p) = s_0, c_0 woven | s_1, c_1 woven                                 "interleaved"
    e(p) = p_0 | p_1 | s_0 | s_1 | c_0 | c_1                               "perceiver": the coordinates themselves first
    e(p) = s_0 | c_0 | s_2 | c_2 | s_1 | c_1                               "cogvideox": time has ¼, the others ⅜

p_a coordinate a in tokens, theta radians per token; two axes are row and column. pairs = dim / (2·axes), rounded up in
"interleaved", which cuts off what is too much. In "perceiver" theta runs from π to π·resolution_a / 2 in equal steps,
for coordinates from −1 to 1: `positions.signed` with ``corners=True``. Tokens without a place get nothing: MAE's zero
row of the class token. Defined everywhere, but a model meets new sums past the trained size. e(p)·e(q) depends on p − q
alone, but for the coordinates themselves.
Source: Chen et al., MoCo v3, arXiv 2104.02057, section 5, and He et al., MAE, arXiv 2111.06377, by the code of MAE
    ("mae"); Beyer et al., Better plain ViT baselines, arXiv 2205.01580, section 2, by big_vision's ("simplevit");
    timm's build_sincos2d_pos_embed ("timm"); the package positional-encodings ("interleaved"); Jaegle et al.,
    Perceiver, arXiv 2103.03206, section 3.2 ("perceiver"); CogVideoX-2B by diffusers' get_3d_sincos_pos_embed
    ("cogvideox"). Stable Diffusion 3 and PixArt have "mae" over `positions.latents`.
Checked against: MAE, vit-pytorch's SimpleViT, timm 1.0.31 (also interleave=True: "mae" with its halves swapped),
    positional-encodings 6.0.3 with one, two and three axes; transformers' PerceiverFourierPositionEncoding; diffusers
    0.42's PatchEmbed and get_3d_sincos_pos_embed; mpmath.
Departs from the source: "mae" and "timm" have two axes there; more go on in the same order, as in vit-pytorch's
    SimpleViT of videos. Coordinates are the caller's, so no grid need be square, whole or in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from posenc.arguments import MOST_AXES, check_whole, shown
from posenc.embedding._join import Combine, by_axis, check_combine, with_waves
from posenc.encoding import EmbeddingEncoding
from posenc.entry import Entry
from posenc.frequencies.host import check_base, geometric
from posenc.frequencies.phase import Frequencies, angles, cos_sin, working_dtype
from posenc.positions import checking as position
from posenc.positions.validation import numbers

Family = Literal["mae", "simplevit", "interleaved", "timm", "perceiver", "cogvideox"]


class SinusoidalGrid(EmbeddingEncoding):
    """Sinusoidal embedding of coordinates.

    Args:
        dim: width of the encoding, and of x where it is added; a multiple of 2 · axes, but for ``family="interleaved"``
            any, and for ``"perceiver"`` axes more than a multiple.
        axes: coordinates of a position.
        family: which code's channels and frequencies: ``"mae"`` (also MoCo v3), ``"simplevit"`` (also big_vision;
            at least 4 · axes channels), ``"timm"`` (the default order of its build_sincos2d_pos_embed),
            ``"interleaved"`` (the package positional-encodings), ``"perceiver"``, or ``"cogvideox"`` (three axes; dim
            is a multiple of 16).
        base: wavelengths run from 2π to about 2π · base tokens; default 10,000. "perceiver" has none.
        resolution: of "perceiver" alone: tokens along each axis, one number or one an axis; the shortest waves are
            2 · 2 / resolution long, two tokens.
        combine: ``"add"`` to x, or ``"concat"`` after x's channels, as Perceiver does.

    Raises:
        ValueError: for a width that does not fit the axes, an unknown family, a base not above 1, a resolution that
            is missing in "perceiver", not positive, or given elsewhere.

    >>> from posenc.positions import grid
    >>> SinusoidalGrid(8)(torch.zeros(1, 4, 8), grid(2, 2))[0, :, [0, 4]]  # sin of the column, sin of the row
    tensor([[0.0000, 0.0000],
            [0.8415, 0.0000],
            [0.0000, 0.8415],
            [0.8415, 0.8415]])
    """

    def __init__(
        self,
        dim: int,
        *,
        axes: int = 2,
        family: Family = "mae",
        base: float | None = None,
        resolution: float | Sequence[float] | None = None,
        combine: Combine = "add",
    ) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_whole("axes", axes, most=MOST_AXES)
        if family not in get_args(Family):
            raise ValueError(f"family must be one of {get_args(Family)}, got {family!r}")
        check_combine(combine)
        _check_dim(dim, axes, family)
        self.dim, self.axes, self.family, self.combine = dim, axes, family, combine
        self.base: float | None = None
        self.resolution: tuple[float, ...] | None = None
        if family == "perceiver":
            self.resolution = _resolution(resolution, base, axes)
            self._frequencies = Frequencies([_bands(along, dim // (2 * axes)) for along in self.resolution])
            return
        if resolution is not None:
            raise ValueError(f"resolution belongs to family='perceiver', got {shown(resolution)} for {family!r}")
        self.base = 10_000.0 if base is None else base
        check_base(self.base)
        if family == "cogvideox":
            self._by_axis = [Frequencies(geometric(width, self.base)) for width in _cogvideox_widths(dim)]
            return
        pairs = -(-dim // (2 * axes))
        below = 2 * (pairs - 1) if family == "simplevit" else 2 * pairs
        self._frequencies = Frequencies(geometric(2 * pairs, self.base, denominator=below))

    def encode(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """The encoding alone, ``(*batch, tokens, dim)``, float32 or float64."""
        at = by_axis(positions, self.axes)
        if self.family == "cogvideox":
            wide, waves = working_dtype(dtype, at.device), []
            for axis in (0, 2, 1):  # the column before the row
                cos, sin = cos_sin(angles(at[..., axis], self._by_axis[axis], wide), dtype)
                waves += [sin, cos]
            return torch.cat(waves, -1).masked_fill(position.has_no_position(positions, self.axes).unsqueeze(-1), 0.0)
        angle = angles(at, self._frequencies, working_dtype(dtype, at.device))  # (*batch, tokens, axes, pairs)
        cos, sin = cos_sin(angle, dtype)
        channels = _arranged(sin, cos, self.family)[..., : self.dim]
        if self.family == "perceiver":
            channels = torch.cat([at.to(dtype), channels], -1)
        return channels.masked_fill(position.has_no_position(positions, self.axes).unsqueeze(-1), 0.0)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        return with_waves(x, positions, self.encode, dim=self.dim, axes=self.axes, combine=self.combine)

    def extra_repr(self) -> str:
        scale = f"resolution={self.resolution}" if self.base is None else f"base={self.base:g}"
        joined = "" if self.combine == "add" else f", combine={self.combine!r}"
        return f"{self.dim}, axes={self.axes}, family={self.family!r}, {scale}{joined}"


def _resolution(resolution: float | Sequence[float] | None, base: float | None, axes: int) -> tuple[float, ...]:
    """Perceiver's tokens along each axis, checked."""
    if resolution is None or base is not None:
        raise ValueError(
            f"family='perceiver' takes a resolution and no base, got {shown(resolution)} and {shown(base)}"
        )
    values = numbers("resolution", resolution, axes)
    if min(values) <= 0:
        raise ValueError(f"resolution must be above 0, got {shown(resolution)}")
    return values


def _bands(resolution: float, bands: int) -> list[float]:
    """Radians per unit from π to π · resolution / 2, in equal steps."""
    step = (resolution / 2 - 1) / max(1, bands - 1)
    return [math.pi * (1 + band * step) for band in range(bands)]


def _check_dim(dim: int, axes: int, family: Family) -> None:
    """Raise a ValueError unless the family divides ``dim`` channels among the axes."""
    if family == "interleaved":
        if dim < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        return
    if family == "perceiver":
        if dim < 3 * axes or dim % (2 * axes) != axes:
            raise ValueError(f"dim must be {axes} * (2 * bands + 1) for 'perceiver' with {axes} axes, got {dim}")
        return
    if family == "cogvideox":
        if axes != 3 or dim % 16:
            raise ValueError(f"dim must be a multiple of 16 and axes 3 for 'cogvideox', got {dim} and {axes}")
        return
    smallest = 4 * axes if family == "simplevit" else 2 * axes  # the spacing divides by pairs − 1
    if dim < smallest or dim % (2 * axes):
        raise ValueError(
            f"dim must be a multiple of 2 * axes = {2 * axes}, at least {smallest}, for family {family!r}, got {dim}: "
            "family='interleaved' takes any"
        )


def _cogvideox_widths(dim: int) -> tuple[int, int, int]:
    """Channels of time, row and column."""
    return dim // 4, 3 * dim // 8, 3 * dim // 8


def _arranged(sin: Tensor, cos: Tensor, family: Family) -> Tensor:
    """Waves ``(..., axes, pairs)`` in the order of a family's channels, ``(..., channels)``."""
    if family == "interleaved":
        return torch.stack([sin, cos], -1).flatten(-3)
    if family in ("timm", "perceiver"):
        return torch.stack([sin, cos], -3).flatten(-3)
    return torch.stack([sin, cos], -2).flip(-3).flatten(-3)


ENTRY = Entry(
    name="sinusoidal_grid",
    encoding=SinusoidalGrid,
    title="Sinusoidal embedding of a grid, 2D sin-cos",
    formula="x_t ← x_t + [sin p_a·theta_i, cos p_a·theta_i] of each axis a,  theta_i = base^(−2·axes·i/dim)",
    source="Chen et al., arXiv 2104.02057, section 5; Beyer et al., arXiv 2205.01580, section 2",
    parameters="none",
    cost="one addition per token, once",
    past_training="sums of waves never seen in training",
    reads="positions",
    extension="coordinates rescaled to the training range",
    used_in="MAE (arXiv 2111.06377); DiT (arXiv 2212.09748); Stable Diffusion 3 (arXiv 2403.03206); CogVideoX-2B "
    "(arXiv 2408.06072)",
    avoid="where logits must depend on the offset between two patches alone",
)
