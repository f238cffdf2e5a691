"""Axial RoPE's conventions in model families: which axis rotates which pairs, the pairs' channels, the frequencies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, cast, get_args

from torch import Tensor

from posenc.arguments import MOST_AXES, check_number, check_several, check_whole, shown
from posenc.frequencies.host import check_base, geometric
from posenc.frequencies.phase import Frequencies

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


def of_base(base: float, axes: int, pairs: int, convention: str) -> Frequencies:
    """The frequencies of a base: base^(−t / n), or as the convention has them."""
    check_base(base)
    rules = CONVENTIONS[convention]
    if rules.dealt:
        waves = geometric(2 * axes * pairs, base)
        return Frequencies([waves[axis::axes] for axis in range(axes)])
    waves = geometric(2 * pairs, base)
    return Frequencies([2 * math.pi * wave for wave in waves] if rules.periods else waves)


def of_periods(shortest: float | None, longest: float | None, pairs: int, convention: str) -> Frequencies:
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


def of_given(name: str, frequencies: Sequence[object] | Tensor, *sizes: int) -> list[object]:
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
