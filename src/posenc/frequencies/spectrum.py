"""The frequencies of a rotation as tensors, on the host, in float64; and what a scaling of them is as a module.

A `Scaling` (position interpolation, YaRN, …) maps a `Spectrum` to a `Spectrum`; several compose in ``nn.Sequential``.
The formulas of most scalings, and the frequencies themselves, need no torch: `posenc.frequencies.host`.

Source, Checked against, Departs from the source: `posenc.frequencies.host`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from posenc.frequencies.host import Constants, Start

_NO_GAIN = torch.ones((), dtype=torch.float64, device="cpu")


class Spectrum(NamedTuple):
    """Frequencies of the pairs of a rotation.

    Attributes:
        theta: float64, ``(pairs,)`` or ``(heads, pairs)``, radians per token. Under lengths of several rows it has
            axes that broadcast against them.
        length: tokens that the spectrum spans: a number, a tensor ``(*rows, 1)`` whose last axis stands for
            the pairs, or None for the length that the model was trained at.
        gain: factor on rotated q and k, always a float64 tensor: without axes, or like ``length`` where it depends on
            that.
        start: other frequencies for the first tokens, or None.
    """

    theta: Tensor
    length: int | Tensor | None = None
    gain: Tensor = _NO_GAIN
    start: Start | None = None

    def times_longer(self, original_length: int) -> Tensor:
        """max(1, length / original_length), float64: a scalar, or like ``length``."""
        if self.length is None:
            return self.theta.new_ones(())
        length = self.length if isinstance(self.length, Tensor) else self.theta.new_tensor(self.length)
        return (length.to(self.theta) / original_length).clamp(min=1.0)


class Scaling(Constants, nn.Module):
    """Maps a `Spectrum` to a `Spectrum`. Subclass it, or compose several in ``nn.Sequential``.

    ``forward`` is arithmetic on float64 tensors that broadcasts over leading axes of ``theta`` and ``length``.
    Constants are Python numbers, which no cast of the module can round. They are set once: another value is a
    ValueError, as rotations have made their tables of the first.
    """

    def forward(self, spectrum: Spectrum) -> Spectrum:
        """The scaled spectrum."""
        raise NotImplementedError


def host_float64(values: Sequence[float]) -> Tensor:
    """A float64 tensor on the host, whatever default device or dtype is in force."""
    return torch.tensor(values, dtype=torch.float64, device="cpu")
