"""Llama-3 scaling: long wavelengths are interpolated, short ones left alone, with a ramp between.

    turns_j = original_length · theta_j / 2π
    g_j     = clip((turns_j − low_freq_factor) / (high_freq_factor − low_freq_factor), 0, 1)
    theta_j ← (1 − g_j) · theta_j / factor + g_j · theta_j

turns_j is how often pair j goes round within the training length. The form is NTK-by-parts with other bounds; there is
no gain. Checkpoints: Llama 3.1 (factor 8, original length 8192) and 3.2 (factor 32). Past factor × original_length the
interpolated pairs meet new angles as well.

Source: llama-models, apply_scaling, of Grattafiori et al., The Llama 3 Herd of Models, arXiv 2407.21783, section 3.4.2.
    The ramp: Peng et al., YaRN, arXiv 2309.00071, eq. 17 to 20.
Checked against: llama-models and transformers' llama3 type, which agree bit for bit.
Departs from the source: llama-models hard-codes 8, 1, 4 and 8192; equal bounds, a division 0/0 there, are a step here.
"""

from __future__ import annotations

import math
from typing import Any

from posenc.arguments import check_number
from posenc.frequencies.host import Array, Formula, check_factor, check_length


class Llama3(Formula):
    """Slow the pairs of channels that rotate seldom within the training length, as Llama 3.1 does.

    Args:
        factor: context length divided by training length, at least 1.
        original_length: tokens that the model was trained at.
        low_freq_factor: rotations within it below which a pair is interpolated in full.
        high_freq_factor: rotations from which a pair stays as it is; not below ``low_freq_factor``.

    >>> from posenc import RoPE
    >>> theta = RoPE(128, base=500_000.0, scaling=Llama3(8.0, original_length=8192)).spectrum().theta
    >>> theta.shape
    torch.Size([64])
    """

    def __init__(
        self,
        factor: float,
        *,
        original_length: int,
        low_freq_factor: float = 1.0,
        high_freq_factor: float = 4.0,
    ) -> None:
        super().__init__()
        check_factor(factor)
        check_length(original_length)
        check_number("low_freq_factor", low_freq_factor, above=0)
        check_number("high_freq_factor", high_freq_factor)
        if high_freq_factor < low_freq_factor:
            raise ValueError(
                f"high_freq_factor must be at least low_freq_factor = {low_freq_factor}, got {high_freq_factor!r}"
            )
        self.factor, self.original_length = float(factor), original_length
        self.low_freq_factor, self.high_freq_factor = float(low_freq_factor), float(high_freq_factor)

    def forward(self, spectrum: Any) -> Any:
        theta = spectrum.theta
        stays = by_turns(theta, self.original_length, self.low_freq_factor, self.high_freq_factor)
        return spectrum._replace(theta=(1 - stays) * theta / self.factor + stays * theta)

    def extra_repr(self) -> str:
        bounds = (self.low_freq_factor, self.high_freq_factor)
        shown = "" if bounds == (1.0, 4.0) else f", low_freq_factor={bounds[0]:g}, high_freq_factor={bounds[1]:g}"
        return f"{self.factor:g}, original_length={self.original_length}{shown}"


def by_turns(theta: Array, original_length: int, low: float, high: float) -> Array:
    """How much of each pair stays, 0 … 1: a ramp in its number of full rotations within the training length."""
    turns = original_length * theta / (2 * math.pi)
    if low == high:
        return (turns >= high).double()
    return ((turns - low) / (high - low)).clamp(0.0, 1.0)
