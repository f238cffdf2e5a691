"""Position interpolation: positions are divided by a factor, so that a longer context keeps to trained angles.

    theta_j ← theta_j / factor                                        fixed
    theta_j ← theta_j / max(1, length / original_length)              dynamic

factor = context length / training length, ``length`` = tokens of the row's own keys in the call, or declared.
Neighbours differ by smaller angles than ever in training, so a short fine-tuning is part of the method. Checkpoints:
LongChat, Vicuna-16k, and everything of rope type "linear".

Source: Chen et al., Extending Context Window of Large Language Models via Position Interpolation, arXiv 2306.15595,
    eq. 4. Dynamic: LlamaDynamicScaledRotaryEmbedding (ntk=False) of the YaRN authors, arXiv 2309.00071, section 3.3.
Checked against: transformers' linear type; the YaRN authors' dynamic class.
Departs from the source: frequencies are divided instead of positions, which is the same angle.
"""

from __future__ import annotations

from typing import Any

from posenc.frequencies.host import Formula, check_factor, check_length


class PositionInterpolation(Formula):
    """Divide all frequencies by one factor: position interpolation.

    Args:
        factor: context length divided by training length, at least 1.

    >>> from posenc import RoPE
    >>> RoPE(64, scaling=PositionInterpolation(4.0)).spectrum().theta[0]
    tensor(0.2500, dtype=torch.float64)
    """

    def __init__(self, factor: float) -> None:
        super().__init__()
        check_factor(factor)
        self.factor = float(factor)

    def forward(self, spectrum: Any) -> Any:
        return spectrum._replace(theta=spectrum.theta / self.factor)

    def extra_repr(self) -> str:
        return f"{self.factor:g}"


class DynamicPositionInterpolation(Formula):
    """All frequencies divided by the context length over the training length; unchanged up to the training length.

    Args:
        original_length: tokens that the model was trained at.

    >>> from posenc import RoPE
    >>> RoPE(64, scaling=DynamicPositionInterpolation(original_length=1024)).spectrum(2048).theta[0]
    tensor(0.5000, dtype=torch.float64)
    """

    length_dependent = True

    def __init__(self, *, original_length: int) -> None:
        super().__init__()
        check_length(original_length)
        self.original_length = original_length

    def forward(self, spectrum: Any) -> Any:
        return spectrum._replace(theta=spectrum.theta / spectrum.times_longer(self.original_length))

    def extra_repr(self) -> str:
        return f"original_length={self.original_length}"
