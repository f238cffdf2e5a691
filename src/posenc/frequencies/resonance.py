"""Resonance RoPE: every wavelength is rounded to a whole number of tokens.

    wavelength_j = round(2π / theta_j),   theta_j ← 2π / wavelength_j

Ties go to the even number, and a pair that is not rotated (p-RoPE) keeps doing so. A pair whose wavelength is below the
training length then repeats exactly the phases of training at any position; slower pairs gain nothing. It composes:
after NTK-aware scaling or YaRN, whose gain it keeps. With small bases two fast pairs may share a wavelength.

Source: Wang et al., Resonance RoPE, arXiv 2403.00071, section 4 (algorithm 1).
Checked against: the authors' ResonanceRotaryEmbedding, and their classes on NTK-aware and YaRN frequencies.
Departs from the source: the released code rounds in float32, which is off by up to 3 tokens for wavelengths above 3e5;
    rounding="float32" does the same. Its classes for linear scaling and dynamic YaRN cannot run; compose scalings here.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from posenc.entry import Entry
from posenc.frequencies.spectrum import Scaling, Spectrum

Rounding = Literal["float64", "float32"]


class Resonance(Scaling):
    """Wavelengths of whole tokens.

    Args:
        rounding: precision in which a wavelength is computed before it is rounded; ``"float32"`` as the released code.

    >>> from posenc import RoPE
    >>> theta = RoPE(64, scaling=Resonance()).spectrum().theta
    >>> (2 * torch.pi / theta)[:4].round(decimals=9)
    tensor([ 6.,  8., 11., 15.], dtype=torch.float64)
    """

    def __init__(self, *, rounding: Rounding = "float64") -> None:
        super().__init__()
        if rounding not in get_args(Rounding):
            raise ValueError(f"rounding must be one of {get_args(Rounding)}, got {rounding!r}")
        self.rounding = rounding

    def forward(self, spectrum: Spectrum) -> Spectrum:
        theta = spectrum.theta
        if self.rounding == "float32":
            wavelength = (2 * math.pi / theta.float()).round().to(theta.dtype)
        else:
            wavelength = (2 * math.pi / theta).round()
        return spectrum._replace(theta=2 * math.pi / wavelength.clamp(min=1.0))

    def extra_repr(self) -> str:
        return "" if self.rounding == "float64" else f"rounding={self.rounding!r}"


ENTRY = Entry(
    name="resonance",
    scaling=Resonance,
    title="Resonance RoPE: wavelengths rounded to whole tokens",
    formula="theta_j ← 2π / round(2π / theta_j)",
    source="Wang et al., arXiv 2403.00071",
    parameters="none",
    cost="none",
    past_training="pairs with wavelengths below the training length repeat exactly the angles of training",
    reads="distances",
    extension="a scaling of the frequencies before it, such as YaRN",
    used_in="its paper's own models; no other is known to us",
    avoid="alone, to extend a context: pairs with wavelengths above the training length gain nothing",
)
