"""From a spectrum and positions to the rotation table: cos and sin of exact angles, times the gain.

Under torch.compile the table of constant frequencies is one operator. Written out, cos and sin would be fused into the
rotation and computed anew for each head of each layer, 4 to 10 times the rotation itself; and a compiler would compare
each frequency before each call. The operator takes all numbers as the text of one Python literal, and gives what eager
calls do. Frequencies that are learned, or that depend on the length, are plain operations: compilers differentiate
them. Exporters get plain operations too, and so does a step of one token.
"""

from __future__ import annotations

import functools
from ast import literal_eval
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.encoding import Table
from posenc.frequencies.phase import AnyFrequencies, Frequencies, TensorFrequencies, angles, cos_sin, working_dtype
from posenc.frequencies.spectrum import Spectrum
from posenc.operators import operator_with_backward
from posenc.rotary._kernels import table_by_kernel
from posenc.tracing import exporting, has_transforms, has_values, tracing


class RotationTable(NamedTuple):
    """A `Spectrum` whose frequencies are fractions of a full rotation; its leading axes broadcast with positions."""

    frequencies: AnyFrequencies
    gain: float | Tensor
    start: AnyFrequencies | None = None  # of the first tokens
    start_tokens: int = 0
    start_gain: float = 1.0
    text: str | None = None  # all numbers, where they are constant: see `_read`

    @classmethod
    def of_numbers(
        cls,
        theta: list[object],
        gain: float | list[float],
        start: list[object] | None = None,
        start_tokens: int = 0,
        start_gain: float = 1.0,
    ) -> RotationTable:
        """Of constant frequencies, kept as Python numbers, which no cast changes; one gain, or one a pair."""
        return cls(
            Frequencies(theta),
            torch.tensor(gain, dtype=torch.float64, device="cpu") if isinstance(gain, list) else gain,
            None if start is None else Frequencies(start), start_tokens, start_gain,
            repr((theta, gain, start, start_tokens, start_gain)),
        )  # fmt: skip

    @classmethod
    def constant(cls, spectrum: Spectrum) -> RotationTable:
        """Of a constant spectrum, ``(pairs,)`` or ``(heads, pairs)``."""
        theta, start = _with_tokens(spectrum.theta).tolist(), spectrum.start
        if start is None:
            return cls.of_numbers(theta, float(spectrum.gain))
        early = _with_tokens(start.theta).tolist()
        return cls.of_numbers(theta, float(spectrum.gain), early, start.tokens, start.gain)

    @classmethod
    def of(cls, spectrum: Spectrum, *, per_head: bool) -> RotationTable:
        """Of a spectrum computed for this call; ``per_head``: two axes are (heads, pairs)."""
        theta, start = spectrum.theta, spectrum.start
        frequencies = TensorFrequencies(_with_tokens(theta) if per_head else theta)
        if start is None:
            return cls(frequencies, spectrum.gain)
        early = TensorFrequencies(_with_tokens(start.theta) if per_head else start.theta)
        return cls(frequencies, spectrum.gain, early, start.tokens, start.gain)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the frequencies."""
        return tuple(self.frequencies.radians(torch.device("cpu")).shape)

    def table(self, positions: Tensor, dtype: torch.dtype) -> Table:
        """cos and sin ``(*positions.shape, pairs)``, times the gain."""
        if self.text is not None and tracing() and not exporting() and not has_transforms():
            if positions.shape[-1] == 1 and self.start is None and not positions.is_floating_point():
                # A step: what one token costs for each head is less than what an operator costs.
                return self._replace(frequencies=_Placed(_fractions(self.text, positions.device))).computed(
                    positions, dtype
                )
            by_operator: Table = _operator(positions, self.text, dtype == torch.float64)
            return by_operator
        return self.computed(positions, dtype)

    def computed(self, positions: Tensor, dtype: torch.dtype) -> Table:
        """`table` by plain operations."""
        cos, sin = _table(positions, self.frequencies, self.gain, dtype)
        if self.start is None:
            return cos, sin
        early = (positions < self.start_tokens).unsqueeze(-1)
        early_cos, early_sin = _table(positions, self.start, self.start_gain, dtype)
        return torch.where(early, early_cos, cos), torch.where(early, early_sin, sin)


def _table(
    positions: Tensor, frequencies: AnyFrequencies, gain: float | Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    if positions.is_cuda:
        made = table_by_kernel(positions, frequencies, gain, dtype)
        if made is not None:
            return made
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


class _Alone:
    """Frequencies ``(..., pairs, 1)``, for positions that have an axis of pairs of their own."""

    def __init__(self, frequencies: AnyFrequencies) -> None:
        self.frequencies = frequencies

    def fractions(self, device: torch.device) -> Tensor:
        return self.frequencies.fractions(device).unsqueeze(-1)

    def radians(self, device: torch.device) -> Tensor:
        return self.frequencies.radians(device).unsqueeze(-1)

    @property
    def learned(self) -> Tensor | None:
        theta = self.frequencies.learned
        return None if theta is None else theta.unsqueeze(-1)


def alone(rotation: RotationTable) -> RotationTable:
    """The same waves for positions ``(..., tokens, pairs)``; their table has an axis of size 1 behind the pairs."""
    gain = rotation.gain
    return rotation._replace(
        frequencies=_Alone(rotation.frequencies),
        gain=gain.unsqueeze(-1) if isinstance(gain, Tensor) and gain.ndim else gain,
        start=None if rotation.start is None else _Alone(rotation.start),
        text=None if rotation.text is None else _ALONE + rotation.text,
    )


_ALONE = "alone "  # before the text of what `alone` made


@functools.lru_cache(maxsize=256)
def _read(text: str) -> RotationTable:
    """The numbers that `RotationTable.of_numbers` wrote."""
    if text.startswith(_ALONE):
        return alone(_read(text.removeprefix(_ALONE)))
    return RotationTable.of_numbers(*literal_eval(text))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _fractions(text: str, device: torch.device) -> Tensor:
    """The frequencies, which a compiler takes for a constant of its graph and does not compare before each call."""
    return _read(text).frequencies.fractions(device)


class _Placed(NamedTuple):
    """Frequencies of whole positions."""

    placed: Tensor
    learned: Tensor | None = None

    def fractions(self, device: torch.device) -> Tensor:
        return self.placed

    def radians(self, device: torch.device) -> Tensor:
        raise NotImplementedError("of fractional positions alone")


class _Last(NamedTuple):
    """The last table of some frequencies: the layers of a model ask for the same one, each in its own region."""

    positions: Tensor
    wide: bool
    table: Table


_LAST: dict[str, _Last] = {}
MOST_KEPT, LARGEST = 8, 2**22  # tables, and numbers of cos in one: 16 MiB


def _by_text(positions: Tensor, text: str, wide: bool) -> tuple[Tensor, Tensor]:
    last = _LAST.get(text) if positions.is_cpu else None  # a GPU would be waited for
    if last is None or last.wide != wide or last.positions.dtype != positions.dtype:
        last = None
    if last is None or not torch.equal(last.positions, positions):
        cos, sin = _read(text).computed(positions, torch.float64 if wide else torch.float32)
        if not positions.is_cpu or cos.numel() > LARGEST:
            return cos, sin
        last = _LAST[text] = _Last(positions.clone(), wide, (cos, sin))
        for oldest in list(_LAST)[:-MOST_KEPT]:
            _LAST.pop(oldest, None)
    cos, sin = last.table
    return cos.clone(), sin.clone()  # a compiler may write into what an operator gave


def _gradient_of_positions(grad_cos: Tensor, grad_sin: Tensor, positions: Tensor, text: str, wide: bool) -> Tensor:
    """d cos / d p = −sin · theta, d sin / d p = cos · theta: of fractional positions."""
    rotation = _read(text)
    cos, sin = rotation.computed(positions, torch.float64 if wide else torch.float32)
    theta = rotation.frequencies.radians(positions.device)
    if rotation.start is not None:
        early = (positions < rotation.start_tokens).unsqueeze(-1)
        theta = torch.where(early, rotation.start.radians(positions.device), theta)
    full: Tensor = (grad_sin * cos - grad_cos * sin) * theta.to(cos.dtype)
    return full.sum(-1).sum_to_size(positions.shape).to(positions.dtype)


def _fake_table(positions: Tensor, text: str, wide: bool) -> tuple[Tensor, Tensor]:
    shape = torch.broadcast_shapes((*positions.shape, 1), _read(text).shape)  # type: ignore[no-untyped-call]
    dtype = torch.float64 if wide else torch.float32
    return positions.new_empty(shape, dtype=dtype), positions.new_empty(shape, dtype=dtype)


_operator = operator_with_backward(
    "rotation_table",
    _by_text,
    _gradient_of_positions,
    fake=_fake_table,
    fake_backward=lambda grad_cos, grad_sin, positions, text, wide: torch.empty_like(positions),
    keep=lambda inputs, outputs: inputs,
)
