"""Axial RoPE: some pairs are rotated by the row, others by the column, and so on for more axes.

    theta_t = base^(−t / n),  t = 0 … n − 1,  n = head_dim / (2 · axes)
    theta_(a,t) = base_a^(−2t / d_a),  t = 0 … d_a / 2 − 1      axes_dims = (d_0, d_1, …), a width for each axis
    pairs = [ axis by axis: p_axis · theta_0, …, p_axis · theta_(n−1) ],  R(p)ᵀ R(p′) = R(p′ − p)

p integers (exact at any size) or fractions, axis 0 slowest; tokens without a place are not rotated, or by angles that
are learned, as MLCD's class token. A new grid needs only
its positions; past the trained grid a model meets angles it has never seen. Models differ in `convention` alone:
which axis comes first, which channels pair up, base, period and offset; weights of one do not fit another.
"kimi-k2.5", "visionllama" and "efficient-loftr" deal pairs out alternately: pair j reads axis j mod axes, by theta_(j
div axes). In "gemma-4" each axis has a share of the channels for itself, whose halves pair up.
Diffusion transformers give the axes unequal widths: Flux and Qwen-Image (16, 56, 56), Wan (44, 42, 42), HunyuanVideo
(16, 56, 56) with base 256, CogVideoX (16, 24, 24), Z-Image (32, 48, 48) with base 256; all are "interleaved", axis 0
first. Cosmos has a base for each axis and "half" over all pairs; MiniMax-H3 rotates 96 of 128 channels, in that layout.
Source: Heo et al., Rotary Position Embedding for Vision Transformer, arXiv 2403.13298, section 3.2 (axial).
    Conventions: Qwen2-VL arXiv 2409.12191, Pixtral arXiv 2410.07073, EVA-02 arXiv 2303.11331, SAM 2 arXiv 2408.00714,
    DINOv3 arXiv 2508.10104, V-JEPA 2 arXiv 2506.09985, Kimi's MoonViT arXiv 2504.07491, VisionLLaMA arXiv 2403.00522,
    EfficientLoFTR arXiv 2403.04765; the vision towers of Llama 4 and Gemma 4 have no paper.
Checked against: position modules of diffusers 0.42, widened to float64 (Flux, Flux 2, Wan, HunyuanVideo, CogVideoX,
    CogView4, Z-Image, Cosmos, Kandinsky 5, Lumina 2, MiniMax-H3); naver-ai/rope-vit, transformers' Qwen2-VL, Llama 4,
    Gemma 4, Kimi K2.5, EfficientLoFTR, SAM 2 and MLCD, timm's EVA-02, facebookresearch/dinov3 and vjepa2,
    VisionLLaMA's formula; Pixtral was read.
Departs from the source: rope-vit's paper deals pairs out to x and y alternately, its code does not; "rope-vit" does as
    the code. That code keeps its table while the number of tokens stays, so 7 × 28 patches get the angles of 14 × 14;
    here positions decide. Conventions for two axes serve any number of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import WIDEST, check_whole, one_line, shown
from posenc.encoding import RotaryEncoding, Table
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.frequencies.phase import Frequencies
from posenc.rotary._axes import (
    Chosen,
    check_head,
    coordinates,
    over_heads,
    table_by_axis,
    with_learned_angles,
    without_single_axis,
)
from posenc.rotary._conventions import (
    CONVENTIONS,
    AxialLayout,
    frequencies_of_base,
    frequencies_of_periods,
    given_frequencies,
    layout_of,
    pairs_of_axis,
    scalings_of,
    spectra_of,
    widths_of,
)
from posenc.rotary._rotate import rotate_pairs
from posenc.rotary._rotation_table import RotationTable, alone


class AxialRoPE(RotaryEncoding):
    """Rotary embedding of positions with several coordinates: each pair of channels is rotated by one of them.

    Args:
        head_dim: width of a head, a multiple of 2 · axes; for "v-jepa-2" any even number from there on, of which
            2 · (head_dim // axes // 2) channels an axis are rotated.
        axes: coordinates of a position: 2 (row, column), 3 (frame, row, column), any number from 1 on; default 2.
        axes_dims: in place of ``axes``: channels of each axis, even, axis 0 first, ``rotary_dim`` in all.
        base: default the convention's: 100 for "rope-vit", "dinov3" and "gemma-4", else 10,000; with ``axes_dims`` one
            number, or one for each axis.
        convention: default "rope-vit", with ``axes_dims`` "eva-02". "rope-vit" (interleaved, column first), "sam-2"
            (the same, base 10,000), "llama-4" (the same, coordinates + 1), "eva-02" (interleaved, row first), "qwen-vl"
            (half, row first), "pixtral" (one list of frequencies: even ones for rows, odd ones for columns; half as in
            transformers), "dinov3" (half, row first, angle 2π · coordinate / period), "v-jepa-2" (three axes,
            interleaved), "gemma-4" (half by axis, column first), "kimi-k2.5" (half, columns and rows alternate),
            "visionllama" (the same, interleaved), "efficient-loftr" (interleaved, rows and columns alternate,
            coordinates + 1; it rotates the full width of q and k before they are cut into heads, so ``head_dim`` is
            that width), "lumina-next" (the same without the 1, by head), "ltx" (interleaved, axes alternate,
            frequencies π / 2 · base^(t / (n − 1)) for coordinates from −1 to 1; the full width again, whose remainder
            of 2 · axes, the leading channels, is not rotated).
        layout: default the convention's; "interleaved" for the weights of Pixtral and Kimi as their authors ship them;
            "half-by-axis": channels (i, i + n) of each axis' own share of 2n channels.
        min_period, max_period: of "dinov3", both in place of ``base``; log-spaced between.
        frequencies: in place of ``base``: radians per unit of a coordinate, ``(n,)`` for all axes or ``(axes, n)``,
            axis 0 first whatever the order of the pairs; n = head_dim // axes // 2. Constants: see `MixedRoPE` for
            learned ones, or for several axes a pair.
        rotary_dim: leading rotated channels, default all; the others pass through.
        scaling: a `Scaling` for every axis, or one (or None) for each axis, of the frequencies of that axis and with a
            gain for its pairs: position interpolation, NTK, YaRN, RIFLEx. None of them may follow the length.
        prefix: tokens without a place, numbered from 0, rotated by learned angles: 1 for MLCD's class
            token. They are the parameter ``angles`` (prefix, pairs), in the order of the table, normal at first with
            deviation pairs^−0.5. Positions of one coordinate cannot number such tokens: at most 1 there.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for an unknown convention or layout, a ``head_dim`` or ``axes`` that do not fit, a base not above
            1, periods without "dinov3", one without the other or not positive, frequencies of another shape or not
            finite, more than one of base, periods and frequencies.

    >>> flux = AxialRoPE(128, axes_dims=(16, 56, 56))  # text at (0, 0, 0), the picture at (0, row, column)
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
        axes: int | None = None,
        axes_dims: Sequence[int] | None = None,
        base: float | Sequence[float] | None = None,
        convention: str | None = None,
        layout: AxialLayout | None = None,
        min_period: float | None = None,
        max_period: float | None = None,
        frequencies: Sequence[object] | Tensor | None = None,
        rotary_dim: int | None = None,
        scaling: nn.Module | Sequence[nn.Module | None] | None = None,
        prefix: int = 0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if convention is None:
            convention = "rope-vit" if axes_dims is None else "eva-02"
        if not isinstance(convention, str) or convention not in CONVENTIONS:
            raise ValueError(f"convention must be one of {tuple(CONVENTIONS)}, got {shown(convention)}")
        self.axes_dims: tuple[int, ...] | None = None
        self.rotary_dim = head_dim
        if axes_dims is not None or rotary_dim is not None or scaling is not None:
            self.axes_dims = widths_of(head_dim, axes, axes_dims, rotary_dim, convention)
            self.rotary_dim, axes = sum(self.axes_dims), len(self.axes_dims)
            if min_period is not None or max_period is not None or frequencies is not None:
                raise ValueError("axes_dims, rotary_dim and scaling go with a base, not with periods or frequencies")
        axes = 2 if axes is None else axes
        rules = CONVENTIONS[convention]
        pairs = pairs_of_axis(head_dim, axes, convention) if self.axes_dims is None else 0
        spread = min_period is not None or max_period is not None
        if (base is not None) + spread + (frequencies is not None) > 1:
            raise ValueError("give a base, or min_period and max_period without a base, or frequencies alone")
        self.layout = layout_of(layout, convention)
        self.head_dim, self.axes, self.convention = head_dim, axes, convention
        self.min_period, self.max_period = min_period, max_period
        self.base = None if spread or frequencies is not None else rules.base if base is None else base
        self.scaling = None if scaling is None else scalings_of(scaling, axes)
        self._last_first, self._woven, self._shift = rules.last_first, rules.woven, rules.shift
        if self.axes_dims is not None:
            by_axis = spectra_of(self.axes_dims, self.base, self.scaling, convention)
            order = [*range(axes)][:: -1 if self._last_first else 1]
            pairs_in_order = [(axis, t) for axis in order for t in range(self.axes_dims[axis] // 2)]
            if self._woven:
                pairs_in_order.sort(key=lambda pair: pair[1])  # stable: the axes take turns in their order
            self._chosen = Chosen([axis for axis, _ in pairs_in_order])
            theta = [by_axis[axis].theta[t] for axis, t in pairs_in_order]
            gains = [by_axis[axis].gain for axis, _ in pairs_in_order]
            self._rotation = alone(RotationTable.of_numbers(theta, gains if any(g != 1 for g in gains) else 1.0))
        elif self.base is not None:
            if not isinstance(self.base, int | float):
                raise ValueError(f"base must be one number, or one for each of axes_dims, got {self.base!r}")
            self._frequencies = frequencies_of_base(self.base, axes, pairs, convention)
        elif frequencies is None:
            self._frequencies = frequencies_of_periods(min_period, max_period, pairs, convention)
        else:
            listed = given_frequencies("frequencies", frequencies, axes, pairs)
            self._frequencies = Frequencies(listed[::-1] if rules.last_first else listed)
        self._resting = head_dim // 2 - pairs * axes if rules.growing else 0
        check_whole("prefix", prefix, least=0, most=WIDEST if axes > 1 else 1)
        count = pairs * axes if self.axes_dims is None else self.rotary_dim // 2
        self.angles = nn.Parameter(torch.empty(prefix, count)) if prefix else None
        self.reset_parameters()
        place_parameters(self, device, dtype, given=scaling)

    def reset_parameters(self) -> None:
        """Draw the angles of tokens without a place anew."""
        if self.angles is not None:
            nn.init.normal_(self.angles, std=self.angles.shape[1] ** -0.5)

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """cos and sin ``(*batch, tokens, pairs)``; see `RotaryEncoding.table`."""
        places, unplaced, dtype = coordinates(positions, self.axes, like, shift=self._shift)
        if self.axes_dims is not None:
            cos, sin = self._chosen.table(places, self._rotation, dtype)
            # a token without a place has no gain either
            table: Table = (cos if self.scaling is None else cos.masked_fill(unplaced, 1.0), sin)
        else:
            places = places.flip(-1) if self._last_first else places
            table = table_by_axis(places, self._frequencies, dtype, woven=self._woven)
        table = table if self.angles is None else with_learned_angles(table, positions, self.angles, self.axes)
        # LTX: the channels that are left over come first
        return (F.pad(table[0], (self._resting, 0), value=1.0), F.pad(table[1], (self._resting, 0)))

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        """Rotate queries or keys ``(batch, heads, tokens, head_dim)``; result in the dtype of ``x``."""
        check_head("AxialRoPE", self.head_dim, x)
        cos, sin = over_heads(table)
        if self.layout != "half-by-axis":
            return rotate_pairs(x, cos, sin, self.layout)
        widths = self.axes_dims or (self.head_dim // self.axes // 2 * 2,) * self.axes
        shares, first = [], 0
        for width in widths[:: -1 if self._last_first else 1]:
            of_axis = slice(first // 2, (first + width) // 2)
            share = x[..., first : first + width]
            shares.append(rotate_pairs(share, cos[..., of_axis], sin[..., of_axis], "half"))
            first += width
        return torch.cat([*shares, x[..., first:]], -1)

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate q and k; see `RotaryEncoding.forward`. With one axis, positions ``(tokens, 1)`` are taken as well."""
        return super().forward(q, k, *without_single_axis(self.axes, q, k, q_pos, k_pos))

    def extra_repr(self) -> str:
        waves = "frequencies given" if self.base is None else f"base={self.base}"
        if isinstance(self.base, int | float):
            waves = f"base={self.base:g}"
        if self.min_period is not None:
            waves = f"periods={self.min_period:g}..{self.max_period:g}"
        options = "" if self.layout == CONVENTIONS[self.convention].layout else f", layout={self.layout!r}"
        options += "" if self.angles is None else f", prefix={len(self.angles)}"
        if self.scaling is not None:
            options += f", scaling=({', '.join(map(one_line, self.scaling))})"
        axes = f"axes={self.axes}" if self.axes_dims is None else f"axes_dims={self.axes_dims}"
        return f"{self.head_dim}, {axes}, {waves}, convention={self.convention!r}{options}"


ENTRY = Entry(
    name="axial",
    encoding=AxialRoPE,
    title="Axial RoPE: each pair is rotated by one coordinate",
    formula="q, k ← R(p) q, R(p) k,  pairs rotated by p_axis·theta_t,  theta_t = base^(−2t/channels of the axis)",
    source="Heo et al., arXiv 2403.13298, section 3.2",
    parameters="none; head_dim/2 for each class token with learned angles",
    cost="one rotation of q and k per layer",
    past_training="angles never seen in training on every axis that is longer",
    reads="distances",
    extension="coordinates rescaled to the training range, or a scaling of each axis: PI, NTK, YaRN, DyPE, RIFLEx",
    used_in="EVA-02 (arXiv 2303.11331); DINOv3 (arXiv 2508.10104); FLUX.1 and FLUX.2 (diffusers 0.42); "
    "Qwen-Image (arXiv 2508.02324); Wan (arXiv 2503.20314); HunyuanVideo (arXiv 2412.03603)",
    avoid="where diagonal offsets need their own waves: each pair reads one axis (arXiv 2403.13298, section 3.2)",
)
