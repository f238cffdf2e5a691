"""Sinusoidal position embedding: fixed waves of geometric wavelengths, added to the token embeddings.

    theta_j = base^(−2j / dim)                spacing="paper"
    theta_j = base^(−j / (dim/2 − 1))         spacing="tensor2tensor"
    e(p) = sin p·theta_0, cos p·theta_0, sin p·theta_1, cos p·theta_1, …       layout="interleaved"
    e(p) = sin p·theta_0, sin p·theta_1, … | cos p·theta_0, cos p·theta_1, …   layout="half"

p positions in tokens, theta radians per token. Defined at every position, but past the training length a model
meets sums it has never seen and fails. e(p)·e(q) depends on p − q alone.
Source: Vaswani et al., Attention Is All You Need, arXiv 1706.03762, section 3.5. The authors' own code
    (tensor2tensor get_timing_signal_1d) uses the "half" layout and the second spacing, and so do fairseq,
    M2M-100 and Whisper; Marian and Pegasus use "half" with the paper's spacing.
Checked against: transformers' distilbert, marian and m2m_100; mpmath.
Departs from the source: nothing; odd widths follow the codes: the paper's spacing has one more sine than cosine,
    tensor2tensor's leaves the last channel zero.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from posenc.arguments import check_number, check_whole
from posenc.embedding._join import Combine, check_combine, with_waves
from posenc.encoding import EmbeddingEncoding
from posenc.entry import Entry
from posenc.frequencies.host import check_base, geometric
from posenc.frequencies.phase import Frequencies, angles, cos_sin, working_dtype
from posenc.positions import checking as position

Layout = Literal["interleaved", "half"]
Spacing = Literal["paper", "tensor2tensor"]


class Sinusoidal(EmbeddingEncoding):
    """Add sine and cosine waves of the position to token embeddings, as the first transformer does.

    Args:
        dim: channels of the encoding; for ``combine="add"`` the width of x.
        base: wavelengths run from 2π to about 2π · base tokens.
        layout: ``"interleaved"`` as the paper writes it, or ``"half"`` as most implementations do.
        spacing: ``"paper"``, or ``"tensor2tensor"`` (exponents reach base exactly; needs dim ≥ 4).
        dropout: probability on the result, while training.
        combine: ``"add"`` to x, or ``"concat"`` after x's channels.

    Raises:
        ValueError: for a dim too small, a base not above 1, an unknown layout, spacing or combine.

    >>> Sinusoidal(8)(torch.zeros(1, 2, 8), torch.tensor([0, 1]))[0, :, :2]
    tensor([[0.0000, 1.0000],
            [0.8415, 0.5403]])
    """

    def __init__(
        self,
        dim: int,
        *,
        base: float = 10_000.0,
        layout: Layout = "interleaved",
        spacing: Spacing = "paper",
        dropout: float = 0.0,
        combine: Combine = "add",
    ) -> None:
        super().__init__()
        smallest = 4 if spacing == "tensor2tensor" else 1
        if layout not in get_args(Layout):
            raise ValueError(f"layout must be one of {get_args(Layout)}, got {layout!r}")
        if spacing not in get_args(Spacing):
            raise ValueError(f"spacing must be one of {get_args(Spacing)}, got {spacing!r}")
        check_whole("dim", dim)
        check_number("dropout", dropout, least=0, most=1)
        if dim < smallest:
            raise ValueError(f"dim must be at least {smallest} for spacing {spacing!r}, got {dim}")
        check_base(base)
        check_combine(combine)
        self.dim, self.base, self.layout, self.spacing, self.combine = dim, base, layout, spacing, combine
        self.dropout = nn.Dropout(dropout)
        if spacing == "paper":
            self._frequencies = Frequencies(geometric(dim, base))
        else:
            pairs = dim // 2
            self._frequencies = Frequencies(geometric(2 * pairs, base, denominator=2 * (pairs - 1)))

    def encode(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """The encoding alone, ``(*batch, tokens, dim)``, float32 or float64."""
        position.check_dtype("positions", positions)
        cos, sin = cos_sin(angles(positions, self._frequencies, working_dtype(dtype, positions.device)), dtype)
        if self.spacing == "paper":
            cos = cos[..., : self.dim // 2]
        channels = torch.cat([sin, cos], -1) if self.layout == "half" else _interleave(sin, cos)
        return nn.functional.pad(channels, (0, self.dim - channels.shape[-1]))

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        out: Tensor = self.dropout(with_waves(x, positions, self.encode, dim=self.dim, combine=self.combine))
        return out

    def extra_repr(self) -> str:
        form = f"layout={self.layout!r}, spacing={self.spacing!r}, combine={self.combine!r}"
        return f"{self.dim}, base={self.base:g}, {form}"


def _interleave(sin: Tensor, cos: Tensor) -> Tensor:
    """sin_0, cos_0, sin_1, cos_1, …; an extra sine comes last."""
    pairs = cos.shape[-1]
    woven = torch.stack([sin[..., :pairs], cos], -1).flatten(-2)
    return torch.cat([woven, sin[..., pairs:]], -1)


ENTRY = Entry(
    name="sinusoidal",
    encoding=Sinusoidal,
    title="Sinusoidal position embedding",
    formula="x_t ← x_t + [sin p·theta_j, cos p·theta_j],  theta_j = base^(−2j/dim)",
    source="Vaswani et al., arXiv 1706.03762, section 3.5",
    parameters="none",
    cost="one addition per token, once",
    past_training="sums of waves never seen in training",
    reads="positions",
    extension="none that leaves a trained model as it is: training at the new length",
    used_in="the Transformer (arXiv 1706.03762); Whisper's encoder (arXiv 2212.04356)",
    avoid="for sequences longer than in training, or where logits must depend on distances alone",
)
