"""Sinusoidal embedding of a grid: each coordinate gets the waves of a share of the channels.

    theta_i = base^(−i / pairs)          i = 0 … pairs − 1; denominator pairs − 1 in family="simplevit"
    s_a, c_a = sin p_a·theta, cos p_a·theta                                for each axis a, `pairs` channels each
    e(p) = s_1 | c_1 | s_0 | c_0                                           "mae", "simplevit": the last axis first
    e(p) = s_0 | s_1 | c_0 | c_1                                           "timm"
    e(p) = s_0, c_0 woven | s_1, c_1 woven                                 "interleaved"

p_a coordinate a in tokens, theta radians per token; two axes are row and column. pairs = dim / (2·axes), rounded up in
"interleaved", which cuts off what is too much. Tokens without a place get nothing added: MAE's zero row of the class
token. Defined everywhere, but a model meets new sums past the trained size. e(p)·e(q) depends on p − q alone.
Source: Chen et al., MoCo v3, arXiv 2104.02057, section 5, and He et al., MAE, arXiv 2111.06377, by the code of MAE
    ("mae"); Beyer et al., Better plain ViT baselines, arXiv 2205.01580, section 2, by big_vision's ("simplevit");
    timm's build_sincos2d_pos_embed ("timm"); the package positional-encodings ("interleaved").
Checked against: MAE, vit-pytorch's SimpleViT, timm 1.0.31 (also interleave=True: "mae" with its halves swapped),
    positional-encodings 6.0.3 with one, two and three axes; mpmath.
Departs from the source: "mae" and "timm" have two axes there; more go on in the same order, as in vit-pytorch's
    SimpleViT of videos. Coordinates are the caller's, so no grid need be square, whole or in order.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from posenc import positions as position
from posenc.arguments import MOST_AXES, check_whole
from posenc.embedding._join import join
from posenc.encoding import EmbeddingEncoding
from posenc.frequencies.phase import Frequencies, angles, waves, working
from posenc.frequencies.spectrum import check_base, geometric

Family = Literal["mae", "simplevit", "interleaved", "timm"]


class SinusoidalGrid(EmbeddingEncoding):
    """Sinusoidal embedding of coordinates.

    Args:
        dim: width of x; a multiple of 2 · axes, but for ``family="interleaved"`` any.
        axes: coordinates of a position.
        family: which code's channels and frequencies: ``"mae"`` (also MoCo v3), ``"simplevit"`` (also big_vision;
            at least 4 · axes channels), ``"timm"`` (the default order of its build_sincos2d_pos_embed), or
            ``"interleaved"`` (the package positional-encodings).
        base: wavelengths run from 2π to about 2π · base tokens.

    Raises:
        ValueError: for a width that does not fit the axes, an unknown family, a base not above 1.

    >>> from posenc.positions import grid
    >>> SinusoidalGrid(8)(torch.zeros(1, 4, 8), grid(2, 2))[0, :, [0, 4]]  # sin of the column, sin of the row
    tensor([[0.0000, 0.0000],
            [0.8415, 0.0000],
            [0.0000, 0.8415],
            [0.8415, 0.8415]])
    """

    def __init__(self, dim: int, *, axes: int = 2, family: Family = "mae", base: float = 10_000.0) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_whole("axes", axes, most=MOST_AXES)
        if family not in get_args(Family):
            raise ValueError(f"family must be one of {get_args(Family)}, got {family!r}")
        check_base(base)
        _check_dim(dim, axes, family)
        self.dim, self.axes, self.family, self.base = dim, axes, family, base
        pairs = -(-dim // (2 * axes))
        below = 2 * (pairs - 1) if family == "simplevit" else 2 * pairs
        self._frequencies = Frequencies(geometric(2 * pairs, base, denominator=below))

    def encode(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """The encoding alone, ``(*batch, tokens, dim)``, float32 or float64."""
        position.check_dtype("positions", positions)
        if self.axes > 1 and (positions.ndim < 2 or positions.shape[-1] != self.axes):
            raise ValueError(f"positions must be (*batch, tokens, {self.axes}), got {tuple(positions.shape)}")
        at = positions.unsqueeze(-1) if self.axes == 1 else positions
        angle = angles(at, self._frequencies, working(dtype, at.device))  # (*batch, tokens, axes, pairs)
        cos, sin = waves(angle, dtype)
        return _arranged(sin, cos, self.family)[..., : self.dim].masked_fill(
            position.nowhere(positions, self.axes).unsqueeze(-1), 0.0
        )

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        if x.ndim != 3 or x.shape[-1] != self.dim:
            raise ValueError(f"x must be (batch, tokens, {self.dim}), got {tuple(x.shape)}")
        position.check("positions", positions, tokens=x.shape[1], batch=x.shape[0], axes=self.axes)
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        return join(x, self.encode(positions.to(x.device), dtype), "add")

    def extra_repr(self) -> str:
        return f"{self.dim}, axes={self.axes}, family={self.family!r}, base={self.base:g}"


def _check_dim(dim: int, axes: int, family: Family) -> None:
    """Raise a ValueError unless the family divides ``dim`` channels among the axes."""
    if family == "interleaved":
        if dim < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        return
    smallest = 4 * axes if family == "simplevit" else 2 * axes  # the spacing divides by pairs − 1
    if dim < smallest or dim % (2 * axes):
        raise ValueError(
            f"dim must be a multiple of 2 * axes = {2 * axes}, at least {smallest}, for family {family!r}, got {dim}: "
            "family='interleaved' takes any"
        )


def _arranged(sin: Tensor, cos: Tensor, family: Family) -> Tensor:
    """Waves ``(..., axes, pairs)`` in the order of a family's channels, ``(..., channels)``."""
    if family == "interleaved":
        return torch.stack([sin, cos], -1).flatten(-3)
    if family == "timm":
        return torch.stack([sin, cos], -3).flatten(-3)
    return torch.stack([sin, cos], -2).flip(-3).flatten(-3)
