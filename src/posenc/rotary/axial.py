"""Axial RoPE: some pairs are rotated by the row, others by the column, and so on for more axes.

    theta_t = base^(−t / n),  t = 0 … n − 1,  n = head_dim / (2 · axes)
    pairs = [ axis by axis: p_axis · theta_0, …, p_axis · theta_(n−1) ],  R(p)ᵀ R(p′) = R(p′ − p)

p integers (exact at any size) or fractions, axis 0 slowest; tokens without a place are not rotated, or by angles that
are learned, as MLCD's class token. A new grid needs only
its positions; past the trained grid a model meets angles it has never seen. Models differ in `convention` alone:
which axis comes first, which channels pair up, base, period and offset; weights of one do not fit another.
"kimi-k2.5", "visionllama" and "efficient-loftr" deal pairs out alternately: pair j reads axis j mod axes, by theta_(j
div axes). In "gemma-4" each axis has a share of the channels for itself, whose halves pair up.
Source: Heo et al., Rotary Position Embedding for Vision Transformer, arXiv 2403.13298, section 3.2 (axial).
    Conventions: Qwen2-VL arXiv 2409.12191, Pixtral arXiv 2410.07073, EVA-02 arXiv 2303.11331, SAM 2 arXiv 2408.00714,
    DINOv3 arXiv 2508.10104, V-JEPA 2 arXiv 2506.09985, Kimi's MoonViT arXiv 2504.07491, VisionLLaMA arXiv 2403.00522,
    EfficientLoFTR arXiv 2403.04765; the vision towers of Llama 4 and Gemma 4 have no paper.
Checked against: naver-ai/rope-vit, transformers' Qwen2-VL, Llama 4, Gemma 4, Kimi K2.5, EfficientLoFTR, SAM 2 and
    MLCD, timm's EVA-02, facebookresearch/dinov3 and vjepa2, VisionLLaMA's formula; Pixtral was read.
Departs from the source: rope-vit's paper deals pairs out to x and y alternately, its code does not; "rope-vit" does as
    the code. That code keeps its table while the number of tokens stays, so 7 × 28 patches get the angles of 14 × 14;
    here positions decide. Conventions for two axes serve any number of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from posenc.arguments import WIDEST, check_whole, shown
from posenc.encoding import RotaryEncoding, Table
from posenc.factory_kwargs import Device, place_parameters
from posenc.frequencies.phase import Frequencies
from posenc.rotary._axes import check_head, coordinates, of_each, over_heads, rotate_both, with_own
from posenc.rotary._conventions import (
    CONVENTIONS,
    AxialLayout,
    layout_of,
    of_base,
    of_given,
    of_periods,
    pairs_of_axis,
)
from posenc.rotary._rotate import rotate_pairs


class AxialRoPE(RotaryEncoding):
    """Rotary embedding of positions with several coordinates: each pair is rotated by one of them.

    Args:
        head_dim: width of a head, a multiple of 2 · axes; for "v-jepa-2" any even number from there on, of which
            2 · (head_dim // axes // 2) channels an axis are rotated.
        axes: coordinates of a position: 2 (row, column), 3 (frame, row, column), any number from 1 on.
        base: default the convention's: 100 for "rope-vit", "dinov3" and "gemma-4", else 10,000.
        convention: "rope-vit" (interleaved, column first), "sam-2" (the same, base 10,000), "llama-4" (the same,
            coordinates + 1), "eva-02" (interleaved, row first), "qwen-vl" (half, row first), "pixtral" (one list
            of frequencies: even ones for rows, odd ones for columns; half as in transformers), "dinov3" (half, row
            first, angle 2π · coordinate / period), "v-jepa-2" (three axes, interleaved), "gemma-4" (half by axis,
            column first), "kimi-k2.5" (half, columns and rows alternate), "visionllama" (the same, interleaved),
            "efficient-loftr" (interleaved, rows and columns alternate, coordinates + 1; it rotates the full width of q
            and k before they are cut into heads, so ``head_dim`` is that width).
        layout: default the convention's; "interleaved" for the weights of Pixtral and Kimi as their authors ship them;
            "half-by-axis": channels (i, i + n) of each axis' own share of 2n channels.
        min_period, max_period: of "dinov3", both in place of ``base``; log-spaced between.
        frequencies: in place of ``base``: radians per unit of a coordinate, ``(n,)`` for all axes or ``(axes, n)``,
            axis 0 first whatever the order of the pairs; n = head_dim // axes // 2. Constants: see `MixedRoPE` for
            learned ones, or for several axes a pair.
        prefix: tokens without a place, numbered from 0, rotated by learned angles: 1 for MLCD's class
            token. They are the parameter ``angles`` (prefix, pairs), in the order of the table, normal at first with
            deviation pairs^−0.5. Positions of one coordinate cannot number such tokens: at most 1 there.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for an unknown convention or layout, a ``head_dim`` or ``axes`` that do not fit, a base not above
            1, periods without "dinov3", one without the other or not positive, frequencies of another shape or not
            finite, more than one of base, periods and frequencies.

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
        layout: AxialLayout | None = None,
        min_period: float | None = None,
        max_period: float | None = None,
        frequencies: Sequence[object] | Tensor | None = None,
        prefix: int = 0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(convention, str) or convention not in CONVENTIONS:
            raise ValueError(f"convention must be one of {tuple(CONVENTIONS)}, got {shown(convention)}")
        rules, pairs = CONVENTIONS[convention], pairs_of_axis(head_dim, axes, convention)
        spread = min_period is not None or max_period is not None
        if (base is not None) + spread + (frequencies is not None) > 1:
            raise ValueError("give a base, or min_period and max_period without a base, or frequencies alone")
        self.layout = layout_of(layout, convention)
        self.head_dim, self.axes, self.convention = head_dim, axes, convention
        self.min_period, self.max_period = min_period, max_period
        self.base = None if spread or frequencies is not None else rules.base if base is None else base
        self._last_first, self._woven, self._shift = rules.last_first, rules.woven, rules.shift
        if self.base is not None:
            self._frequencies = of_base(self.base, axes, pairs, convention)
        elif frequencies is None:
            self._frequencies = of_periods(min_period, max_period, pairs, convention)
        else:
            listed = of_given("frequencies", frequencies, axes, pairs)
            self._frequencies = Frequencies(listed[::-1] if rules.last_first else listed)
        check_whole("prefix", prefix, least=0, most=WIDEST if axes > 1 else 1)
        self.angles = nn.Parameter(torch.empty(prefix, pairs * axes)) if prefix else None
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Draw the angles of tokens without a place anew."""
        if self.angles is not None:
            nn.init.normal_(self.angles, std=self.angles.shape[1] ** -0.5)

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """cos and sin ``(*batch, tokens, pairs)``; see `RotaryEncoding.table`."""
        places, _, dtype = coordinates(positions, self.axes, like, shift=self._shift)
        places = places.flip(-1) if self._last_first else places
        table = of_each(places, self._frequencies, dtype, woven=self._woven)
        return table if self.angles is None else with_own(table, positions, self.angles, self.axes)

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        """Rotate queries or keys ``(batch, heads, tokens, head_dim)``; result in the dtype of ``x``."""
        check_head("AxialRoPE", self.head_dim, x)
        cos, sin = over_heads(table)
        if self.layout != "half-by-axis":
            return rotate_pairs(x, cos, sin, self.layout)
        pairs, shares = self.head_dim // self.axes // 2, []
        for axis in range(self.axes):
            of_axis = slice(axis * pairs, (axis + 1) * pairs)
            share = x[..., 2 * axis * pairs : 2 * (axis + 1) * pairs]
            shares.append(rotate_pairs(share, cos[..., of_axis], sin[..., of_axis], "half"))
        return torch.cat([*shares, x[..., 2 * pairs * self.axes :]], -1)

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate q and k; see `RotaryEncoding.forward`."""
        of_queries = self.table(q_pos, like=q)
        of_keys = of_queries if k_pos is q_pos else self.table(k_pos, like=k)
        return rotate_both(self.rotate, q, k, of_queries, of_keys)

    def extra_repr(self) -> str:
        waves = "frequencies given" if self.base is None else f"base={self.base:g}"
        if self.min_period is not None:
            waves = f"periods={self.min_period:g}..{self.max_period:g}"
        options = "" if self.layout == CONVENTIONS[self.convention].layout else f", layout={self.layout!r}"
        options += "" if self.angles is None else f", prefix={len(self.angles)}"
        return f"{self.head_dim}, axes={self.axes}, {waves}, convention={self.convention!r}{options}"
