"""RIFLEx: the pair of a video's time axis that comes round within a longer video is slowed down until it does not.

    theta_k ← share · 2π / length,   all other frequencies as they are;   k counts from 1

``length`` = latent frames of the longer video. The pair k is the one whose period, 2π / theta_k in latent frames, is
nearest to the number N at which longer videos visibly repeat (`identify_k`). Only where length > N (below share · N the
pair would become faster), and on the time axis alone: ``AxialRoPE(…, scaling=(RIFLEx(…), None, None))``. The new
frequency can be slower than the next one, so that the spectrum is no longer sorted. Values in use: HunyuanVideo k 4
(N 50; base 256, 16 channels), CogVideoX-5B k 2 (N 20), Wan 2.1 k 6 (N 51; 44 channels). Users report lower quality on
Wan.

Source: Zhao et al., RIFLEx: A Free Lunch for Length Extrapolation in Video Diffusion Transformers, arXiv 2502.15894,
    eq. 8.
Checked against: thu-ml/RIFLEx, riflex_utils.py (tables and identify_k).
Departs from the source: the paper's equation has no factor 0.9, which the authors' code multiplies by; here it is
    ``share``.
"""

from __future__ import annotations

import math
from typing import Any

from posenc.arguments import LONGEST, check_number, check_whole
from posenc.frequencies.host import Formula, check_base, check_length, geometric


class RIFLEx(Formula):
    """One frequency of a time axis, slowed down to ``share`` of a rotation over a video.

    Args:
        k: the pair, from 1.
        length: latent frames of the video.
        share: of a full rotation over ``length``, above 0.

    >>> from posenc import AxialRoPE
    >>> frames = RIFLEx(4, length=66)  # HunyuanVideo's 261 frames
    >>> hunyuan = AxialRoPE(128, axes_dims=(16, 56, 56), base=256.0, scaling=(frames, None, None))
    """

    def __init__(self, k: int, *, length: int, share: float = 0.9) -> None:
        super().__init__()
        check_whole("k", k)
        check_length(length, "length")
        check_number("share", share, above=0)
        self.k, self.length, self.share = k, length, float(share)

    def forward(self, spectrum: Any) -> Any:
        theta = spectrum.theta
        pairs = theta.shape[-1]
        if self.k > pairs:
            raise ValueError(f"k must be one of the {pairs} pairs, from 1, got {self.k}")
        chosen = theta.new_tensor([float(pair == self.k - 1) for pair in range(pairs)])
        slowed = self.share * 2 * math.pi / self.length
        return spectrum._replace(theta=theta * (1 - chosen) + chosen * slowed)

    def extra_repr(self) -> str:
        return f"{self.k}, length={self.length}" + ("" if self.share == 0.9 else f", share={self.share:g}")


def identify_k(width: int, base: float, repeats_at: float) -> tuple[int, int]:
    """The pair whose period is nearest to the frame at which longer videos repeat, from 1; and that period in frames.

    Args:
        width: channels of the time axis, even.
        base: of its frequencies.
        repeats_at: latent frames after which a longer video begins to repeat.

    >>> identify_k(16, 256.0, 48), identify_k(16, 10_000.0, 20)
    ((4, 50), (2, 20))
    """
    check_whole("width", width, least=2)
    check_base(base)
    check_number("repeats_at", repeats_at, above=0, most=LONGEST)
    periods = [round(2 * math.pi / theta) for theta in geometric(width, base)]
    k = min(range(len(periods)), key=lambda pair: abs(periods[pair] - repeats_at))
    return k + 1, periods[k]
