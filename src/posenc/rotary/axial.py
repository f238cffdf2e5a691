"""Axial RoPE: a share of the pairs turns with the row, a share with the column, and so on for more axes.

    theta_t = base^(−t / n),  t = 0 … n − 1,  n = head_dim / (2 · axes)
    pairs = [ axis by axis: p_axis · theta_0, …, p_axis · theta_(n−1) ],  R(p)ᵀ R(p′) = R(p′ − p)

p integers (exact at any size) or fractions, axis 0 slowest; tokens without a place do not turn. A new grid needs only
its positions; past the trained grid a model meets angles it has never seen. Models differ in `convention` alone:
which axis comes first, which channels pair up, base, period and offset; weights of one do not fit another.
Source: Heo et al., Rotary Position Embedding for Vision Transformer, arXiv 2403.13298, section 3.2 (axial).
    Conventions: Qwen2-VL arXiv 2409.12191, Pixtral arXiv 2410.07073, EVA-02 arXiv 2303.11331, SAM 2 arXiv 2408.00714,
    DINOv3 arXiv 2508.10104, V-JEPA 2 arXiv 2506.09985; Llama 4's vision tower has no paper.
Checked against: naver-ai/rope-vit, transformers' Qwen2-VL, timm's EVA-02, facebookresearch/dinov3 and vjepa2; Pixtral,
    Llama 4 and SAM 2 were read.
Departs from the source: rope-vit's paper deals pairs out to x and y in turn, its code does not, and neither do we. The
    code keeps its table while the number of tokens stays, so 7 × 28 patches get the angles of 14 × 14; here positions
    decide. Conventions for two axes serve any number of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple, get_args

from torch import Tensor

from posenc.arguments import MOST_AXES, check_number, check_whole
from posenc.encoding import RotaryEncoding, Table
from posenc.frequencies.phase import Frequencies
from posenc.frequencies.spectrum import check_base, geometric
from posenc.rotary._axes import check_head, coordinates, of_each, over_heads, rotate_both
from posenc.rotary._rotate import Layout, rotate_pairs


class Convention(NamedTuple):
    """What a family of models means by axial RoPE."""

    layout: Layout
    base: float
    last_first: bool = False  # the last axis, the column, has the first pairs
    dealt: bool = False  # one list of frequencies, dealt out to the axes in turn; else each axis has the same ones
    periods: bool = False  # a wave is base^(t / n) long instead of 2π times that
    shift: int = 0  # added to every coordinate
    axes: int | None = None  # the only number of axes there is
    tail: bool = False  # channels that are left over do not turn; else every channel must


CONVENTIONS: dict[str, Convention] = {
    "rope-vit": Convention("interleaved", 100.0, last_first=True),
    "qwen-vl": Convention("half", 10_000.0),
    "pixtral": Convention("half", 10_000.0, dealt=True),
    "llama-4": Convention("interleaved", 10_000.0, last_first=True, shift=1),
    "eva-02": Convention("interleaved", 10_000.0),
    "sam-2": Convention("interleaved", 10_000.0, last_first=True),
    "dinov3": Convention("half", 100.0, periods=True),
    "v-jepa-2": Convention("interleaved", 10_000.0, axes=3, tail=True),
}


class AxialRoPE(RotaryEncoding):
    """Rotary embedding in which each pair reads one coordinate.

    Args:
        head_dim: width of a head, a multiple of 2 · axes; for "v-jepa-2" any even number from there on, of which
            2 · (head_dim // axes // 2) channels an axis turn.
        axes: coordinates of a position: 2 (row, column), 3 (frame, row, column), any number from 1 on.
        base: default the convention's: 100 for "rope-vit" and "dinov3", else 10,000.
        convention: "rope-vit" (interleaved, column first), "sam-2" (the same, base 10,000), "llama-4" (the same,
            coordinates + 1), "eva-02" (interleaved, row first), "qwen-vl" (half, row first), "pixtral" (one list
            of frequencies: even ones for rows, odd ones for columns; half as in transformers), "dinov3" (half, row
            first, angle 2π · coordinate / period), "v-jepa-2" (three axes, interleaved).
        layout: default the convention's; "interleaved" for Pixtral's weights as Mistral ships them.
        min_period, max_period: of "dinov3", both in place of ``base``; log-spaced between.

    Raises:
        ValueError: for an unknown convention or layout, a ``head_dim`` or ``axes`` that do not fit, a base not above
            1, periods without "dinov3", one without the other, together with a base, or not positive.

    >>> from posenc.positions import grid
    >>> rope, positions = AxialRoPE(64), grid(4, 6)
    >>> q, k = torch.randn(2, 1, 8, 24, 64)
    >>> rope(q, k, positions, positions)[0].shape
    torch.Size([1, 8, 24, 64])
    """

    def __init__(
        self,
        head_dim: int,
        *,
        axes: int = 2,
        base: float | None = None,
        convention: str = "rope-vit",
        layout: Layout | None = None,
        min_period: float | None = None,
        max_period: float | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(convention, str) or convention not in CONVENTIONS:
            raise ValueError(f"convention must be one of {tuple(CONVENTIONS)}, got {convention!r}")
        if layout is not None and layout not in get_args(Layout):
            raise ValueError(f"layout must be one of {get_args(Layout)}, got {layout!r}")
        rules = CONVENTIONS[convention]
        pairs = pairs_of_axis(head_dim, axes, convention)
        periods = _periods(min_period, max_period, base, convention, pairs)
        self.head_dim, self.axes, self.convention = head_dim, axes, convention
        self.base = (rules.base if base is None else base) if periods is None else None
        self.min_period, self.max_period = min_period, max_period
        self.layout: Layout = rules.layout if layout is None else layout
        self._last_first, self._shift = rules.last_first, rules.shift
        if self.base is not None:
            check_base(self.base)
            if rules.dealt:
                waves = geometric(2 * axes * pairs, self.base)
                self._frequencies = Frequencies([waves[axis::axes] for axis in range(axes)])
                return
            waves = geometric(2 * pairs, self.base)
            self._frequencies = Frequencies([2 * math.pi * wave for wave in waves] if rules.periods else waves)
        else:
            self._frequencies = Frequencies([2 * math.pi / period for period in periods or ()])

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """cos and sin ``(*batch, tokens, pairs)``; see `RotaryEncoding.table`."""
        places, _, dtype = coordinates(positions, self.axes, like, shift=self._shift)
        return of_each(places.flip(-1) if self._last_first else places, self._frequencies, dtype)

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        """Rotate queries or keys ``(batch, heads, tokens, head_dim)``; result in the dtype of ``x``."""
        check_head("AxialRoPE", self.head_dim, x)
        cos, sin = over_heads(table)
        return rotate_pairs(x, cos, sin, self.layout)

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate q and k; see `RotaryEncoding.forward`."""
        of_queries = self.table(q_pos, like=q)
        of_keys = of_queries if k_pos is q_pos else self.table(k_pos, like=k)
        return rotate_both(self.rotate, q, k, of_queries, of_keys)

    def extra_repr(self) -> str:
        waves = f"periods={self.min_period:g}..{self.max_period:g}" if self.base is None else f"base={self.base:g}"
        own = "" if self.layout == CONVENTIONS[self.convention].layout else f", layout={self.layout!r}"
        return f"{self.head_dim}, axes={self.axes}, {waves}, convention={self.convention!r}{own}"


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


def _periods(
    shortest: float | None, longest: float | None, base: float | None, convention: str, pairs: int
) -> list[float] | None:
    """Wavelengths between two given ones, or None where a base makes them."""
    if shortest is None and longest is None:
        return None
    if not CONVENTIONS[convention].periods or shortest is None or longest is None or base is not None:
        raise ValueError(
            "min_period and max_period belong to convention='dinov3', both of them and without a base; "
            f"got {shortest}, {longest} and base={base} for {convention!r}"
        )
    for name, period in (("min_period", shortest), ("max_period", longest)):
        check_number(name, period, above=0)
    return [shortest * (longest / shortest) ** (t / max(1, pairs - 1)) for t in range(pairs)]
