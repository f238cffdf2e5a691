"""p-RoPE: only the fastest share of the pairs is rotated.

    theta_j ← theta_j  for j < int(fraction · head_dim // 2),   0 for the others

Exponents are as for the full head (partial rotation, by contrast, spreads its frequencies over the channels that
turn), and in the half layout the resting channels are the ends of both halves, not a tail. Pairs at rest carry content
at any distance; those that turn meet new angles past the training length. fraction 0 is NoPE, 1 is RoPE. Checkpoints:
Gemma 4's layers of full attention (0.25, base 1e6), rope type "proportional".

Source: Barbero et al., Round and Round We Go! What Makes Rotary Positional Encodings Useful?, arXiv 2410.06205,
    section 6.
Checked against: transformers' proportional type.
Departs from the source: nothing; transformers' extra ``factor`` is a `PositionInterpolation` after it.
"""

from __future__ import annotations

from typing import Any

from posenc.arguments import check_number
from posenc.frequencies.host import Formula


class Proportional(Formula):
    """Zero frequencies for the slowest pairs.

    Args:
        fraction: share of the rotated pairs, 0 … 1.

    >>> from posenc import RoPE
    >>> (RoPE(64, scaling=Proportional(0.25)).spectrum().theta > 0).sum()
    tensor(8)
    """

    def __init__(self, fraction: float) -> None:
        super().__init__()
        check_number("fraction", fraction, least=0, most=1)
        self.fraction = float(fraction)

    def forward(self, spectrum: Any) -> Any:
        theta = spectrum.theta
        turning = int(self.fraction * 2 * theta.shape[-1] // 2)
        rotates = theta.new_tensor([float(pair < turning) for pair in range(theta.shape[-1])])
        return spectrum._replace(theta=theta * rotates)

    def extra_repr(self) -> str:
        return f"{self.fraction:g}"
