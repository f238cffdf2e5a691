"""From a spectrum and positions to the rotation table: cos and sin of exact angles, times the gain."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.encoding import Table
from posenc.frequencies.phase import AnyFrequencies, Frequencies, TensorFrequencies, angles, cos_sin, working_dtype
from posenc.frequencies.spectrum import Spectrum
from posenc.tracing import has_values


class RotationTable(NamedTuple):
    """A `Spectrum` whose frequencies are fractions of a full rotation; its leading axes broadcast with positions."""

    frequencies: AnyFrequencies
    gain: float | Tensor
    start: AnyFrequencies | None = None  # of the first tokens
    start_tokens: int = 0
    start_gain: float = 1.0

    @classmethod
    def constant(cls, spectrum: Spectrum) -> RotationTable:
        """Of a constant spectrum, ``(pairs,)`` or ``(heads, pairs)``: kept as Python numbers, which no cast changes."""
        frequencies, start = Frequencies(_with_tokens(spectrum.theta).tolist()), spectrum.start
        if start is None:
            return cls(frequencies, float(spectrum.gain))
        early = Frequencies(_with_tokens(start.theta).tolist())
        return cls(frequencies, float(spectrum.gain), early, start.tokens, start.gain)

    @classmethod
    def of(cls, spectrum: Spectrum, *, per_head: bool) -> RotationTable:
        """Of a spectrum computed for this call; ``per_head``: two axes are (heads, pairs)."""
        theta, start = spectrum.theta, spectrum.start
        frequencies = TensorFrequencies(_with_tokens(theta) if per_head else theta)
        if start is None:
            return cls(frequencies, spectrum.gain)
        early = TensorFrequencies(_with_tokens(start.theta) if per_head else start.theta)
        return cls(frequencies, spectrum.gain, early, start.tokens, start.gain)

    def table(self, positions: Tensor, dtype: torch.dtype) -> Table:
        """cos and sin ``(*positions.shape, pairs)``, times the gain."""
        cos, sin = _table(positions, self.frequencies, self.gain, dtype)
        if self.start is None:
            return cos, sin
        early = (positions < self.start_tokens).unsqueeze(-1)
        early_cos, early_sin = _table(positions, self.start, self.start_gain, dtype)
        return torch.where(early, early_cos, cos), torch.where(early, early_sin, sin)


def _table(
    positions: Tensor, frequencies: AnyFrequencies, gain: float | Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    wide = working_dtype(dtype, positions.device)
    if isinstance(gain, Tensor):
        gain = gain.to(positions.device, wide)
    return cos_sin(angles(positions, frequencies, wide), dtype, gain)


def _with_tokens(theta: Tensor) -> Tensor:
    """(heads, pairs) with an axis for tokens between; anything else as it is."""
    return theta.unsqueeze(-2) if theta.ndim == 2 else theta


def check_theta(theta: Tensor, pairs: int) -> None:
    """Raise a ValueError unless a scaling gave frequencies that fit."""
    if theta.ndim not in (1, 2) or theta.shape[-1] != pairs:
        raise ValueError(f"scaling must give {pairs} frequencies, or (heads, {pairs}), got {tuple(theta.shape)}")
    if theta.dtype != torch.float64:
        raise ValueError(f"scaling must give float64 frequencies, got {theta.dtype}")
    if has_values(theta) and not bool(theta.isfinite().all()):
        raise ValueError("scaling gave frequencies that are not finite")


def distinct_groups(theta: Tensor) -> int:
    """Into how few groups of equal neighbours the heads of ``theta`` (heads, pairs) fall, all groups of one size."""
    heads = theta.shape[0]
    for groups in range(1, heads):
        if heads % groups == 0:
            blocks = theta.view(groups, heads // groups, -1)
            if bool((blocks == blocks[:, :1]).all()):
                return groups
    return heads
