"""NTK-by-parts: pairs that make many full rotations in training stay, pairs that never complete one are interpolated.

    turns_j = original_length · theta_j / 2π,   g_j = clip((turns_j − alpha) / (beta − alpha), 0, 1)
    theta_j ← (1 − g_j) · theta_j / factor + g_j · theta_j                            NTKByParts, the paper's
    theta_j ← blend of theta_j / factor, theta_j · factor^(−2j/(d−2)) and theta_j     PartNTK, the first released code

No gain: YaRN is this with another ramp and sharper attention. Past factor × original_length the interpolated pairs meet
new angles as well. No known checkpoint uses either; Llama 3.1 uses the paper's form with alpha 1 and beta 4 (`Llama3`).

Source: Peng et al., YaRN, arXiv 2309.00071, eq. 17 to 20 (section 3.2).
Checked against: transformers' llama3 function at alpha and beta, which is the same formula; for PartNTK the YaRN
    authors' LlamaPartNTKScaledRotaryEmbedding.
Departs from the source: nothing; the released PartNTK is not the paper's formula, so both are here.
"""

from __future__ import annotations

from typing import Any

from posenc.arguments import check_number
from posenc.frequencies.host import Array, Formula, check_factor, check_length
from posenc.frequencies.llama3 import by_turns
from posenc.frequencies.ntk import with_larger_base
from posenc.frequencies.yarn import by_index

_LINEAR_TO_NTK = (1.25, 0.75)  # turns between which the released code goes from linear to NTK-aware frequencies
_NTK_TO_PLAIN = (16.0, 2.0)  # and from those to plain ones


class NTKByParts(Formula):
    """Interpolation by the number of full rotations in training, as the paper defines it.

    Args:
        factor: context length divided by training length, at least 1.
        original_length: tokens that the model was trained at.
        alpha: turns below which a pair is interpolated in full.
        beta: turns above which a pair stays as it is; above ``alpha``.

    >>> from posenc import RoPE
    >>> RoPE(64, scaling=NTKByParts(4.0, original_length=2048)).spectrum().theta[0]
    tensor(1., dtype=torch.float64)
    """

    def __init__(self, factor: float, *, original_length: int, alpha: float = 1.0, beta: float = 32.0) -> None:
        super().__init__()
        check_factor(factor)
        check_length(original_length)
        check_number("alpha", alpha, above=0)
        check_number("beta", beta)
        if beta <= alpha:
            raise ValueError(f"beta must be a finite number above alpha = {alpha}, got {beta!r}")
        self.factor, self.original_length = float(factor), original_length
        self.alpha, self.beta = float(alpha), float(beta)

    def forward(self, spectrum: Any) -> Any:
        theta = spectrum.theta
        stays = by_turns(theta, self.original_length, self.alpha, self.beta)
        return spectrum._replace(theta=(1 - stays) * theta / self.factor + stays * theta)

    def extra_repr(self) -> str:
        shown = "" if (self.alpha, self.beta) == (1.0, 32.0) else f", alpha={self.alpha:g}, beta={self.beta:g}"
        return f"{self.factor:g}, original_length={self.original_length}{shown}"


class PartNTK(Formula):
    """The first released NTK-by-parts: slow pairs linear, middle ones NTK-aware, fast ones plain, blended by index.

    Args:
        factor: context length divided by training length, at least 1.
        original_length: tokens that the model was trained at.
        ntk_factor: share of NTK-aware frequencies against linear ones, 0 … 1.
        extrapolation_factor: share of plain frequencies, 0 … 1.

    >>> from posenc import RoPE
    >>> RoPE(64, scaling=PartNTK(4.0, original_length=2048)).spectrum().theta[0]
    tensor(1., dtype=torch.float64)
    """

    def __init__(
        self, factor: float, *, original_length: int, ntk_factor: float = 1.0, extrapolation_factor: float = 1.0
    ) -> None:
        super().__init__()
        check_factor(factor)
        check_length(original_length)
        for name, value in (("ntk_factor", ntk_factor), ("extrapolation_factor", extrapolation_factor)):
            check_number(name, value, least=0, most=1)
        self.factor, self.original_length = float(factor), original_length
        self.ntk_factor, self.extrapolation_factor = float(ntk_factor), float(extrapolation_factor)

    def forward(self, spectrum: Any) -> Any:
        theta = part_ntk(
            spectrum.theta, self.factor, self.original_length, ntk_factor=self.ntk_factor,
            extrapolation_factor=self.extrapolation_factor,
        )  # fmt: skip
        return spectrum._replace(theta=theta)

    def extra_repr(self) -> str:
        return f"{self.factor:g}, original_length={self.original_length}"


def part_ntk(
    theta: Array,
    factor: float,
    original_length: int,
    *,
    ntk_factor: float = 1.0,
    extrapolation_factor: float = 1.0,
    times: float = 1.0,
    last: int | None = None,
    scaling: str = "PartNTK",
) -> Array:
    """Slow pairs linear, middle ones NTK-aware, fast ones plain, blended by index.

    Args:
        theta: ``(..., pairs)``.
        factor, original_length, ntk_factor, extrapolation_factor: as for `PartNTK`.
        times: factor on the turns between which it blends.
        last: the index at which ramps end at the latest.
        scaling: the scaling's name, for errors.
    """

    def stays(turns: tuple[float, float]) -> Array:
        fast, slow = (times * number for number in turns)
        return 1 - by_index(theta, original_length, fast, slow, truncate=True, last=last, scaling=scaling)

    linear, aware = theta / factor, with_larger_base(theta, factor)
    share = stays(_LINEAR_TO_NTK) * ntk_factor
    mixed = linear * (1 - share) + aware * share
    share = stays(_NTK_TO_PLAIN) * extrapolation_factor
    return mixed * (1 - share) + theta * share
