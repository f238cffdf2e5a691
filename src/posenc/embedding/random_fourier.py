"""Random Fourier features: waves of the coordinates in random directions, drawn once and kept.

    u_j = 2π · Σ_a p_a · f[a, j],   f ~ scale · N(0, 1)                                j = 0 … dim/2 − 1
    e(p) = sin u_0 … sin u_(dim/2 − 1) | cos u_0 … cos u_(dim/2 − 1)

p coordinates, axis 0 slowest, f cycles per unit. SAM's go from −1 to 1 over a picture: `positions.signed` of grids, and
of points in pixels by the size in pixels. e(p)·e(q) = Σ_j cos 2π (p − q)·f_j depends on p − q alone and, with many
waves, is near a Gaussian of the distance, 1/(2π · scale) wide. Tokens without a place get nothing added. Defined
everywhere; past the trained range, as in it, what is near looks alike.
Source: Tancik et al., Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains, arXiv
    2006.10739, section 6.1, "Gaussian"; SAM, arXiv 2304.02643, appendix A.
Checked against: transformers' SamPositionalEmbedding, of a grid and of points.
Departs from the source: coordinates are the caller's, and rows come before columns: `from_official` reads SAM's (x, y).
    Labels of points (foreground, corner of a box) are vectors of their own, which SAM adds, and no positions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from posenc.arguments import MOST_AXES, check_flag, check_number, check_table, check_whole
from posenc.embedding._join import by_axis, with_waves
from posenc.encoding import EmbeddingEncoding
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.frequencies.phase import TensorFrequencies, angles, cos_sin, working_dtype
from posenc.positions import checking as position


class RandomFourier(EmbeddingEncoding):
    """Random Fourier features of coordinates, as SAM's prompt encoder has them.

    Args:
        dim: width of x, even.
        axes: coordinates of a position.
        scale: standard deviation of the frequencies, turns per unit of a coordinate, above 0.
        learned: whether training changes the frequencies; they are in the state_dict either way.
        device, dtype: of the parameters, as in torch.nn.

    The frequencies are the parameter ``frequencies`` (axes, dim / 2).

    Raises:
        ValueError: for an odd width, less than one axis, a scale that is not positive.

    >>> from posenc.positions import grid, signed
    >>> features = RandomFourier(256)
    >>> features.encode(signed(grid(64, 64), (64, 64))).shape
    torch.Size([4096, 256])
    """

    def __init__(
        self,
        dim: int,
        *,
        axes: int = 2,
        scale: float = 1.0,
        learned: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_whole("axes", axes, most=MOST_AXES)
        check_number("scale", scale, above=0)
        learned = check_flag("learned", learned)
        if dim % 2:
            raise ValueError(f"dim must be even, got {dim}: each wave has a sine and a cosine")
        check_table("dim and axes", dim, axes)
        self.dim, self.axes, self.scale, self.learned = dim, axes, scale, learned
        self.frequencies = nn.Parameter(torch.empty(axes, dim // 2), requires_grad=learned)
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Draw the frequencies anew: normal."""
        nn.init.normal_(self.frequencies, std=self.scale)

    @torch.no_grad()
    def from_official(self, positional_embedding: Tensor) -> RandomFourier:
        """Take over SAM's matrix ``(axes, dim / 2)``, whose rows are for (x, y): ours are for (row, column)."""
        if positional_embedding.shape != self.frequencies.shape:
            shape, got = tuple(self.frequencies.shape), tuple(positional_embedding.shape)
            raise ValueError(f"positional_embedding must be {shape}, got {got}")
        self.frequencies.copy_(positional_embedding.flip(0))
        return self

    def encode(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """The encoding alone, ``(*batch, tokens, dim)``, float32 or float64."""
        places = position.wide(by_axis(positions, self.axes))
        lost = position.has_no_position(positions, self.axes).unsqueeze(-1)
        places = places.masked_fill(lost, 0)
        wide = working_dtype(dtype, places.device)
        on = torch.device("cpu") if places.device.type == "mps" else self.frequencies.device  # which has no float64
        theta = self.frequencies.to(on, torch.float64) * (2 * math.pi)
        angle, *more = (
            angles(along, TensorFrequencies(theta_axis), wide)
            for along, theta_axis in zip(places.unbind(-1), theta.unbind(0), strict=True)
        )
        for other in more:
            angle = angle + other
        cos, sin = cos_sin(angle, dtype)
        return torch.cat([sin, cos], -1).masked_fill(lost, 0.0)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        return with_waves(x, positions, self.encode, dim=self.dim, axes=self.axes)

    def extra_repr(self) -> str:
        return f"{self.dim}, axes={self.axes}, scale={self.scale:g}{', learned=True' if self.learned else ''}"


ENTRY = Entry(
    name="random_fourier",
    encoding=RandomFourier,
    title="Random Fourier features, as in SAM's prompt encoder",
    formula="x_t ← x_t + [sin 2π·p·f, cos 2π·p·f],  f ~ scale·N(0, 1), drawn once",
    source="Tancik et al., arXiv 2006.10739, section 6.1",
    parameters="axes × dim/2, drawn once, learned on request",
    cost="one addition per token, once",
    past_training="sums of waves never seen in training",
    reads="positions",
    extension="coordinates rescaled to the training range",
    used_in="SAM (arXiv 2304.02643)",
    avoid="for text: it is made for points with real coordinates in a known range",
)
