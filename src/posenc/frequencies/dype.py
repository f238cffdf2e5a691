"""DyPE: frequencies of a larger picture that follow the denoising, interpolated at its start and plain at its end.

    s = length / original_length,   nothing changes where s ≤ 1
    yarn    PartNTK's blend, thresholds times timestep²;   gain = 0.1 ln s + 1
    ntk     the base times s^(2 · timestep² · d/(d−2))

``length`` = the largest coordinate of the axis + 1, in patches; timestep 1 is pure noise, 0 the picture. Early steps
lay out coarse structure, for which all frequencies are interpolated; late ones draw detail, for which the trained ones
serve. ``dynamic=False`` is the fixed form at every step: thresholds, or the exponent, as at timestep 1. Of the
spatial axes alone: ``scaling=(None, DyPE(…), DyPE(…))``. Keys must not be kept from one step to the next. Released for
FLUX.1 (original_length 64) and Qwen-Image (83).

Source: Issachar et al., DyPE: Dynamic Position Extrapolation for Ultra High Resolution Diffusion, arXiv 2510.20766,
    section 3 (lambda_s = 2, lambda_t = 2).
Checked against: guyyariv/DyPE, flux/transformer_flux.py and qwen/transformer_qwenimage.py.
Departs from the source: at timestep 0 the authors' code divides by zero; here frequencies are plain. Their Qwen code
    never changes with the timestep: a cache is keyed without it, and the timestep is divided by 1000 twice.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

from posenc.arguments import check_choice, check_flag, check_number
from posenc.frequencies.by_parts import part_ntk
from posenc.frequencies.host import Formula, check_length
from posenc.frequencies.ntk import with_larger_base

Method = Literal["yarn", "ntk"]


class DyPE(Formula):
    """The frequencies of one spatial axis at one step of the denoising.

    Args:
        length: patches of the axis: its largest coordinate + 1.
        original_length: patches that the model was trained at.
        timestep: noise level of the step, 1 at its start to 0.
        method: ``"yarn"``, the authors' default, or ``"ntk"``.
        dynamic: False: the same at each step.

    >>> from posenc.diffusion import rotation
    >>> step = DyPE(128, original_length=64, timestep=0.7)
    >>> rope = rotation("flux-1", scaling=(None, step, step))
    """

    def __init__(
        self,
        length: int,
        *,
        original_length: int = 64,
        timestep: float = 1.0,
        method: Method = "yarn",
        dynamic: bool = True,
    ) -> None:
        super().__init__()
        check_length(length, "length")
        check_length(original_length)
        check_number("timestep", timestep, least=0, most=1)
        check_choice("method", method, get_args(Method))
        self.length, self.original_length, self.timestep = length, original_length, float(timestep)
        self.method, self.dynamic = method, check_flag("dynamic", dynamic)

    def forward(self, spectrum: Any) -> Any:
        scale = self.length / self.original_length
        if scale <= 1:
            return spectrum
        clock = self.timestep**2 if self.dynamic else 1.0
        if self.method == "ntk":
            return spectrum._replace(
                theta=with_larger_base(spectrum.theta, scale ** (2 * clock) if self.dynamic else scale)
            )
        gain = spectrum.gain * (0.1 * math.log(scale) + 1)
        if clock == 0:
            return spectrum._replace(gain=gain)
        theta = part_ntk(
            spectrum.theta, scale, self.original_length, times=clock, last=spectrum.theta.shape[-1], scaling="DyPE"
        )
        return spectrum._replace(theta=theta, gain=gain)

    def extra_repr(self) -> str:
        shown = f"{self.length}, original_length={self.original_length}, timestep={self.timestep:g}"
        shown += "" if self.method == "yarn" else f", method={self.method!r}"
        return shown if self.dynamic else f"{shown}, dynamic=False"
