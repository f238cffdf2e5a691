"""Axial RoPE's conventions in model families: which axis rotates which pairs, the pairs' channels, the frequencies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, cast, get_args

from torch import Tensor, nn

from posenc.arguments import MOST_AXES, check_number, check_several, check_whole, one_line, shown
from posenc.frequencies.host import Formula, check_base, geometric
from posenc.frequencies.modules import module_of
from posenc.frequencies.phase import Frequencies
from posenc.frequencies.spectrum import Spectrum, host_float64
from posenc.rotary._rotation_table import check_theta

AxialLayout = Literal["half", "interleaved", "half-by-axis"]
FASTEST = 1e15  # radians per unit, either way


class Convention(NamedTuple):
    """What a family of models means by axial RoPE."""

    layout: AxialLayout
    base: float
    last_first: bool = False  # the last axis, the column, has the first pairs
    dealt: bool = False  # one list of frequencies, dealt out to the axes alternately; else each axis has the same ones
    woven: bool = False  # pair j reads axis j mod axes; else each axis has pairs that lie together
    periods: bool = False  # a wave is base^(t / n) long instead of 2π times that
    shift: int = 0  # added to every coordinate
    axes: int | None = None  # the only number of axes there is
    tail: bool = False  # channels that are left over are not rotated; else every channel must
    growing: bool = False  # waves grow faster, π / 2 · base^(t / (n − 1)); channels that are left over come first


CONVENTIONS: dict[str, Convention] = {
    "rope-vit": Convention("interleaved", 100.0, last_first=True),
    "qwen-vl": Convention("half", 10_000.0),
    "pixtral": Convention("half", 10_000.0, dealt=True),
    "llama-4": Convention("interleaved", 10_000.0, last_first=True, shift=1),
    "eva-02": Convention("interleaved", 10_000.0),
    "sam-2": Convention("interleaved", 10_000.0, last_first=True),
    "dinov3": Convention("half", 100.0, periods=True),
    "v-jepa-2": Convention("interleaved", 10_000.0, axes=3, tail=True),
    "gemma-4": Convention("half-by-axis", 100.0, last_first=True),
    "kimi-k2.5": Convention("half", 10_000.0, last_first=True, woven=True),
    "visionllama": Convention("interleaved", 10_000.0, last_first=True, woven=True),
    "efficient-loftr": Convention("interleaved", 10_000.0, woven=True, shift=1),
    "lumina-next": Convention("interleaved", 10_000.0, woven=True),
    "ltx": Convention("interleaved", 10_000.0, woven=True, tail=True, growing=True),
}


def pairs_of_axis(head_dim: int, axes: int, convention: str) -> int:
    """How many pairs read each axis; a ValueError that says what fits where the widths do not."""
    rules = CONVENTIONS[convention]
    check_whole("head_dim", head_dim)
    check_whole("axes", axes, most=MOST_AXES)
    if axes != (rules.axes or axes):
        raise ValueError(f"axes must be {rules.axes or 'at least 1'} for {convention!r}, got {axes}")
    step = 2 if rules.tail else 2 * axes
    if head_dim < 2 * axes or head_dim % step:
        fits = f"even and at least {2 * axes}" if rules.tail else f"a multiple of 2 * axes = {step}"
        raise ValueError(f"head_dim must be {fits} for {convention!r} with {axes} axes, got {head_dim}")
    return head_dim // axes // 2


class AxisSpectrum(NamedTuple):
    """The frequencies of one axis, radians per unit, and the factor on cos and sin of its pairs."""

    theta: list[float]
    gain: float


def widths_of(
    head_dim: int, axes: int | None, axes_dims: Sequence[int] | None, rotary_dim: int | None, convention: str
) -> tuple[int, ...]:
    """The channels of each axis, checked.

    Raises:
        ValueError: for both or neither of ``axes`` and ``axes_dims`` where they disagree, for widths that are odd or do
            not add up to ``rotary_dim``, and for a convention whose axes have no channels of their own.
    """
    rules = CONVENTIONS[convention]
    check_whole("head_dim", head_dim)
    if rules.dealt or rules.periods or rules.tail:
        raise ValueError(
            f"convention must give each axis pairs of its own with axes_dims, rotary_dim or scaling, got {convention!r}"
            + ("; divide its positions instead of scaling" if rules.growing else "")
        )
    rotated = head_dim if rotary_dim is None else rotary_dim
    check_whole("rotary_dim", rotated, least=2, most=head_dim)
    if axes_dims is None:
        axes = 2 if axes is None else axes
        check_whole("axes", axes, most=MOST_AXES)
        if rotated % (2 * axes):
            raise ValueError(f"rotary_dim must be a multiple of 2 * axes = {2 * axes} without axes_dims, got {rotated}")
        return (rotated // axes,) * axes
    if axes is not None:
        raise ValueError(f"give axes or axes_dims, not both: axes={axes}, axes_dims={shown(axes_dims)}")
    widths = check_several("axes_dims", axes_dims)
    for width in widths:
        check_whole("axes_dims", width, least=2, most=head_dim)
    if not 1 <= len(widths) <= MOST_AXES or any(width % 2 for width in widths) or sum(widths) != rotated:
        expected = f"rotary_dim = {rotated}" if rotary_dim is not None else f"head_dim = {rotated}, or give rotary_dim"
        raise ValueError(
            f"axes_dims must be even and add up to {expected}; got {shown(axes_dims)}, {sum(widths)} in all"
        )
    if rules.woven and len(set(widths)) > 1:
        raise ValueError(f"axes_dims must be alike for {convention!r}, whose axes alternate; got {shown(axes_dims)}")
    return tuple(widths)


def scalings_of(scaling: object, axes: int) -> tuple[nn.Module | None, ...]:
    """A scaling for each axis; a ValueError for another count and for a scaling that follows the length or learns."""
    is_single = isinstance(scaling, nn.Module | Formula)
    scalings = [scaling] * axes if is_single else check_several("scaling", cast(Iterable[object], scaling))
    if len(scalings) != axes:
        raise ValueError(f"scaling must be one for all axes, or one or None for each of {axes}, got {len(scalings)}")
    checked: list[nn.Module | None] = []
    for each in scalings:
        if each is None:
            checked.append(None)
            continue
        if not isinstance(each, nn.Module | Formula):
            raise ValueError(f"scaling must be a Scaling, several in nn.Sequential, or None, got {shown(each)}")
        module = module_of(each)
        parts = list(module.modules())
        if any(getattr(part, "length_dependent", False) for part in parts) or any(True for _ in module.parameters()):
            raise ValueError(f"scaling of an axis must follow no length and learn nothing, got {one_line(each)}")
        checked.append(module)
    return tuple(checked)


def spectra_of(
    widths: Sequence[int],
    base: float | Sequence[float] | None,
    scaling: Sequence[nn.Module | None] | None,
    convention: str,
) -> list[AxisSpectrum]:
    """The frequencies of each axis, base_a^(−2t / d_a), under its scaling."""
    base = CONVENTIONS[convention].base if base is None else base
    bases = [base] * len(widths) if isinstance(base, int | float) else check_several("base", base)
    if len(bases) != len(widths):
        raise ValueError(f"base must be one number, or one for each of {len(widths)} axes, got {shown(base)}")
    spectra = []
    for axis, width in enumerate(widths):
        check_base(bases[axis])
        theta = host_float64(geometric(width, bases[axis]))
        spectrum = Spectrum(theta, None, theta.new_ones(()))
        module = None if scaling is None else scaling[axis]
        spectrum = spectrum if module is None else module(spectrum)
        check_theta(spectrum.theta, width // 2)
        spectra.append(AxisSpectrum(spectrum.theta.tolist(), float(spectrum.gain)))
    return spectra


def layout_of(layout: object, convention: str) -> AxialLayout:
    """The chosen layout, by default the convention's; a ValueError for an unknown layout."""
    rules = CONVENTIONS[convention]
    if layout is None:
        return rules.layout
    if layout not in get_args(AxialLayout):
        raise ValueError(f"layout must be one of {get_args(AxialLayout)}, got {shown(layout)}")
    if layout == "half-by-axis" and rules.woven:
        raise ValueError(f"layout must not be 'half-by-axis' for {convention!r}, whose axes have no share of their own")
    return cast(AxialLayout, layout)


def frequencies_of_base(base: float, axes: int, pairs: int, convention: str) -> Frequencies:
    """The frequencies of a base: base^(−t / n), or as the convention has them."""
    check_base(base)
    rules = CONVENTIONS[convention]
    if rules.dealt:
        waves = geometric(2 * axes * pairs, base)
        return Frequencies([waves[axis::axes] for axis in range(axes)])
    if rules.growing:
        return Frequencies(growing(pairs, base))
    waves = geometric(2 * pairs, base)
    return Frequencies([2 * math.pi * wave for wave in waves] if rules.periods else waves)


def growing(pairs: int, base: float) -> list[float]:
    """LTX's frequencies of one axis, π / 2 · base^(t / (n − 1)): slow ones first, for coordinates from −1 to 1."""
    return [math.pi / 2 * base ** (t / max(1, pairs - 1)) for t in range(pairs)]


def frequencies_of_periods(shortest: float | None, longest: float | None, pairs: int, convention: str) -> Frequencies:
    """Frequencies whose wavelengths are log-spaced between the shortest and the longest."""
    if not CONVENTIONS[convention].periods or shortest is None or longest is None:
        raise ValueError(
            "min_period and max_period belong to convention='dinov3', both of them and without a base; "
            f"got {shortest}, {longest} for {convention!r}"
        )
    for name, period in (("min_period", shortest), ("max_period", longest)):
        check_number(name, period, above=0)
    spread = [shortest * (longest / shortest) ** (t / max(1, pairs - 1)) for t in range(pairs)]
    return Frequencies([2 * math.pi / period for period in spread])


def given_frequencies(name: str, frequencies: Sequence[object] | Tensor, *sizes: int) -> list[object]:
    """Given frequencies as lists of finite numbers ``sizes``; leading axes may be left out, which repeats them.

    Raises:
        ValueError: that names the argument, for other shapes and for what is no finite number.
    """
    listed = _listed(name, frequencies.detach().cpu().tolist() if isinstance(frequencies, Tensor) else frequencies)
    depth, inner = 1, listed
    while inner and isinstance(inner[0], list):
        depth, inner = depth + 1, inner[0]
    if depth > len(sizes) or not _fits(listed, sizes[len(sizes) - depth :]):
        shapes = " or ".join(str(sizes[start:]) for start in range(len(sizes)))
        raise ValueError(f"{name} must be numbers {shapes}, got {shown(frequencies)}")
    for size in reversed(sizes[: len(sizes) - depth]):
        listed = [listed] * size
    return listed


def _listed(name: str, values: object) -> list[object]:
    """Nested lists of floats."""
    listed: list[object] = []
    for entry in check_several(name, cast(Iterable[object], values)):
        if isinstance(entry, Tensor):
            entry = entry.tolist()
        if isinstance(entry, Iterable) and not isinstance(entry, str | bytes):
            listed.append(_listed(name, entry))
            continue
        check_number(name, entry, least=-FASTEST, most=FASTEST)
        listed.append(float(cast(float, entry)))
    return listed


def _fits(listed: list[object], sizes: Sequence[int]) -> bool:
    """Whether nested lists have these lengths."""
    if len(listed) != sizes[0]:
        return False
    inner = [entry for entry in listed if isinstance(entry, list)]
    if len(sizes) == 1:
        return not inner
    return len(inner) == len(listed) and all(_fits(entry, sizes[1:]) for entry in inner)
