"""RoPE and M-RoPE as a configuration means them: which channels rotate at which frequencies, without torch.

`posenc.RoPE` and `posenc.MRoPE` are these and rotate tensors as well. What both need of a rotation is here once: the
checks of its numbers, and which coordinate each pair of M-RoPE reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Protocol, Self, cast, get_args

from posenc.arguments import MOST_AXES, check_flag, check_several, check_whole, shown
from posenc.frequencies.host import Formula, HostSpectrum, Vector, check_base, geometric, steps_of

Layout = Literal["half", "interleaved"]


class SpectrumOf(Protocol):
    """What is read of a spectrum, of tensors or of floats."""

    @property
    def theta(self) -> Any: ...

    @property
    def gain(self) -> Any: ...

    @property
    def start(self) -> Any: ...


class RoPESpec:
    """A rotation by frequencies base^(−2j / rotary_dim), under a scaling; arguments as for `posenc.RoPE`.

    >>> RoPESpec(64, rotary_dim=8, base=16.0).spectrum().theta.tolist()
    [1.0, 0.5, 0.25, 0.125]
    """

    head_dim: int
    base: float
    layout: Layout
    rotary_dim: int
    scaling: Any
    length_dependent: bool

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10_000.0,
        layout: Layout = "half",
        rotary_dim: int | None = None,
        scaling: Any = None,
    ) -> None:
        self.head_dim, self.base, self.layout = head_dim, base, layout
        self.rotary_dim = check_rotation(head_dim, base, layout, rotary_dim)
        self.scaling = scaling
        self.length_dependent = any(getattr(step, "length_dependent", False) for step in steps_of(scaling))
        self._unscaled = geometric(self.rotary_dim, base)
        theta = self.spectrum().theta
        if isinstance(theta, Vector) and not all(map(math.isfinite, theta)):
            raise ValueError("scaling gave frequencies that are not finite")

    def spectrum(self, length: int | None = None) -> SpectrumOf:
        """The frequencies in force for a length in tokens (None: the trained one), after the scaling."""
        if all(isinstance(step, Formula) for step in steps_of(self.scaling)):
            spectrum = HostSpectrum(Vector(self._unscaled), length)
            for step in steps_of(self.scaling):
                spectrum = step.forward(spectrum)
            return spectrum
        from posenc.frequencies.spectrum import Spectrum, host_float64  # a scaling that computes with tensors alone

        theta = host_float64(self._unscaled)
        return cast(SpectrumOf, self.scaling(Spectrum(theta, length, theta.new_ones(()))))

    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in ("head_dim", "base", "layout", "rotary_dim", "scaling")}

    def replace(self, **changes: Any) -> Self:
        """The same with some arguments changed, like `dataclasses.replace`; the scaling is shared."""
        return type(self)(**{**self.arguments(), **changes})

    def extra_repr(self) -> str:
        """Head, base, layout and share in words."""
        partial = "" if self.rotary_dim == self.head_dim else f", rotary_dim={self.rotary_dim}"
        return f"{self.head_dim}, base={self.base:g}, layout={self.layout!r}{partial}"

    def __repr__(self) -> str:
        if self.scaling is None:
            return f"RoPE({self.extra_repr()})"
        inner = repr(self.scaling).replace("\n", "\n  ")
        return f"RoPE(\n  {self.extra_repr()}\n  (scaling): {inner}\n)"


class MRoPESpec:
    """A rotation whose pairs read several coordinates; arguments as for `posenc.MRoPE`.

    >>> MRoPESpec(14, sections=(3, 2, 2)).order(), MRoPESpec(14, sections=(3, 2, 2), interleaved=True).order()
    ([0, 0, 0, 1, 1, 2, 2], [0, 1, 2, 0, 1, 2, 0])
    """

    rope: RoPESpec
    head_dim: int
    sections: tuple[int, ...]
    interleaved: bool
    time_last: bool
    axes: int
    length_dependent: bool

    def __init__(
        self,
        head_dim: int,
        *,
        sections: Sequence[int] | None = None,
        order: Sequence[int] | None = None,
        interleaved: bool = False,
        time_last: bool = False,
        axes: int = 3,
        base: float = 1_000_000.0,
        layout: Layout = "half",
        rotary_dim: int | None = None,
        scaling: Any = None,
    ) -> None:
        self.rope = RoPESpec(head_dim, base=base, layout=layout, rotary_dim=rotary_dim, scaling=scaling)
        self._set_order(sections, order, interleaved, time_last, axes)

    def _set_order(
        self, sections: Sequence[int] | None, order: Sequence[int] | None, interleaved: bool, time_last: bool, axes: int
    ) -> None:
        """Keep and check which pairs read which coordinate."""
        if (sections is None) == (order is None):
            raise ValueError("give sections, or order: the axis of each pair")
        pairs = self.rope.rotary_dim // 2
        self._explicit_order = (
            None if order is None else _checked_order(order, axes, pairs, sorted_out=interleaved or time_last)
        )
        if self._explicit_order is not None:
            sections = [self._explicit_order.count(axis) for axis in range(axes)]
        self.head_dim, self.axes = self.rope.head_dim, axes
        self.sections = tuple(check_several("sections", cast(Sequence[int], sections)))
        self.interleaved, self.time_last = check_flag("interleaved", interleaved), check_flag("time_last", time_last)
        self.length_dependent = self.rope.length_dependent
        if self._explicit_order is None:
            _check_sections(self.sections, axes, pairs, chunked=not (interleaved or time_last))
        if self.interleaved and self.time_last:
            raise ValueError("interleaved and time_last are two orders of the pairs: choose one")

    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments."""
        arguments = {name: getattr(self, name) for name in ("head_dim", "sections", "interleaved", "time_last", "axes")}
        if self._explicit_order is not None:
            arguments |= {"sections": None, "order": self._explicit_order}
        return {**arguments, **{name: getattr(self.rope, name) for name in ("base", "layout", "rotary_dim", "scaling")}}

    @property
    def has_own_order(self) -> bool:
        """Whether the axis of each pair was given."""
        return self._explicit_order is not None

    def order(self) -> list[int]:
        """The axis whose coordinate rotates each pair; −1: none."""
        if self._explicit_order is not None:
            return list(self._explicit_order)
        pairs, axes = sum(self.sections), self.axes
        if self.time_last:
            *places, time = self.sections
            return _alternating([(axis, size) for axis, size in enumerate(places, 1)]) + [0] * time
        if not self.interleaved:
            return [i % axes for i, size in enumerate(self.sections) for _ in range(size)]
        return [j % axes if j < axes * self.sections[j % axes] else 0 for j in range(pairs)]

    def replace(self, **changes: Any) -> Self:
        """The same with some arguments changed, like `dataclasses.replace`; the scaling is shared."""
        if "sections" in changes or "order" in changes:
            changes = {"sections": None, "order": None, **changes}
        return type(self)(**{**self.arguments(), **changes})

    def spectrum(self, length: int | None = None) -> SpectrumOf:
        """The frequencies in force; see `RoPESpec.spectrum`."""
        return self.rope.spectrum(length)

    def extra_repr(self) -> str:
        """Head, sections and axes in words."""
        if self._explicit_order is not None:
            return f"{self.head_dim}, order={shown(self._explicit_order)}, axes={self.axes}"
        kind = ", interleaved=True" if self.interleaved else ", time_last=True" if self.time_last else ""
        return f"{self.head_dim}, sections={self.sections}{kind}, axes={self.axes}"

    def __repr__(self) -> str:
        inner = repr(self.rope).replace("\n", "\n  ")
        return f"MRoPE(\n  {self.extra_repr()}\n  (rope): {inner}\n)"


def check_rotation(head_dim: int, base: float, layout: str, rotary_dim: int | None) -> int:
    """The rotated channels, checked with the other numbers of a rotation.

    Raises:
        ValueError: for an odd or too large ``rotary_dim``, a base not above 1, an unknown layout.
    """
    check_whole("head_dim", head_dim)
    rotary_dim = head_dim if rotary_dim is None else rotary_dim
    check_whole("rotary_dim", rotary_dim)
    if rotary_dim % 2 or rotary_dim > head_dim:
        raise ValueError(
            f"rotary_dim must be even and in 2..head_dim = {head_dim}, got {rotary_dim}: channels rotate in pairs"
        )
    if layout not in get_args(Layout):
        raise ValueError(f"layout must be one of {get_args(Layout)}, got {layout!r}")
    check_base(base)
    return rotary_dim


def _check_sections(sections: tuple[int, ...], axes: int, pairs: int, *, chunked: bool) -> None:
    """Raise a ValueError unless the sections share out the pairs."""
    check_whole("axes", axes, most=MOST_AXES)
    for section in sections:
        check_whole("sections", section, least=0)
    if axes < 2:
        raise ValueError(f"axes must be at least 2, got {axes}: with one coordinate this is RoPE")
    if len(sections) < axes or (len(sections) > axes and not chunked):
        raise ValueError(f"sections must be {axes} numbers, one for each of axes = {axes}, got {sections}")
    if sum(sections) != pairs:
        raise ValueError(f"sections must add up to the {pairs} pairs of rotary_dim = {2 * pairs}, got {sections}")


def _checked_order(order: Sequence[int], axes: int, pairs: int, *, sorted_out: bool) -> tuple[int, ...]:
    """The axis of each pair, −1 for a pair that does not rotate; a ValueError unless there is one for each."""
    check_whole("axes", axes, least=2, most=MOST_AXES)
    if sorted_out:
        raise ValueError("order says which axis each pair reads: leave interleaved and time_last out")
    listed = check_several("order", order)
    if len(listed) != pairs or any(type(axis) is not int or not -1 <= axis < axes for axis in listed):
        raise ValueError(
            f"order must be the axis of each of {pairs} pairs, 0..{axes - 1}, or -1 for a pair that does not rotate, "
            f"got {shown(order)}"
        )
    return tuple(listed)


def _alternating(sizes: list[tuple[int, int]]) -> list[int]:
    """Axes dealt out alternately, each as often as its size says."""
    rounds = range(max(size for _, size in sizes))
    return [axis for i in rounds for axis, size in sizes if i < size]
