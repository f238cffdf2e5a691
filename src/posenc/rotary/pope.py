"""PoPE: channels contribute magnitudes, positions alone contribute angles, so that what and where stay separate.

    s_ij = scale · Σ_c softplus(q_ic) · softplus(k_jc) · cos((p_i − p_j) · theta_c − bias_hc)
    theta_c = base^(−c / channels),  c = 0 … channels − 1,   bias within [−2π, 0]

Every channel has a frequency of its own, where RoPE has one for two; a product is largest at a distance that the
learned bias decides, not the content. Queries and keys become twice as wide, strength · cos and strength · sin, while
the scale stays that of the given width. Channels past ``rotary_dim`` meet in a plain product, without softplus.
Keys are cached as they were given, which is half of what their features take, and get their features in every call.
Past the training length angles are new, as for RoPE, but content does not change them.

Source: Gopalakrishnan et al., Decoupling the "What" and "Where" With Polar Coordinate Positional Embeddings,
    arXiv 2509.10534, section on the method.
Checked against: lucidrains/PoPE-pytorch: features, scores, attention, gradients; partial, grouped and of two axes.
Departs from the source: query head h belongs to key head h // group, as everywhere here, where that code has h modulo
    the key heads; cos and sin of the features stand one behind the other, which changes no dot product; sections follow
    the coordinates, slowest axis first, where that code reverses them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from posenc.arguments import MOST_AXES, check_choice, check_several, check_whole
from posenc.dtypes import softplus
from posenc.encoding import Table
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.frequencies.host import check_base, geometric
from posenc.frequencies.phase import Frequencies, angles, cos_sin, working_dtype
from posenc.head_shares import KEYS, HeadAxis
from posenc.rotary._axes import check_head, coordinates
from posenc.rotary._per_head import PerHeadRotation

Initial = Literal["zero", "uniform"]


class PoPE(PerHeadRotation):
    """Polar coordinate position embedding.

    Args:
        head_dim: width of a head.
        num_heads: query heads.
        num_kv_heads: key heads, default ``num_heads``; must divide it. Each has biases of its own.
        base: wavelengths run from 2π to about 2π · base tokens.
        rotary_dim: leading channels that are strengths at angles, default all.
        sections: how many of these read each coordinate, for positions of several; default one coordinate.
        initial: biases at first, "zero", which the authors keep for texts longer than trained, or "uniform" in
            [−2π, 0].
        device, dtype: of the parameters, as in torch.nn.

    Attributes:
        bias: the parameter ``(num_kv_heads, rotary_dim)``, radians; read within [−2π, 0].

    Raises:
        ValueError: for heads that do not divide, a rotary_dim above head_dim, sections that do not sum to it, a base
            not above 1.

    >>> from posenc import attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [PoPE(64, num_heads=8)]).shape
    torch.Size([1, 8, 16, 64])
    """

    shared_by_layers = False
    composes_by_shift = False

    def __init__(
        self,
        head_dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        base: float = 10_000.0,
        rotary_dim: int | None = None,
        sections: Sequence[int] | None = None,
        initial: Initial = "zero",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(head_dim, num_heads=num_heads, num_kv_heads=num_kv_heads)
        rotary_dim = head_dim if rotary_dim is None else rotary_dim
        check_whole("rotary_dim", rotary_dim, most=head_dim)
        check_base(base)
        check_choice("initial", initial, get_args(Initial))
        parts = [rotary_dim] if sections is None else check_several("sections", sections)
        check_whole("sections", len(parts), most=MOST_AXES)
        for part in parts:
            check_whole("sections", part)
        if sum(parts) != rotary_dim:
            raise ValueError(f"sections must sum to rotary_dim = {rotary_dim}, got {tuple(parts)}")
        self.rotary_dim, self.base, self.initial = rotary_dim, base, initial
        self.sections, self.axes = tuple(parts), len(parts)
        self._frequencies = [Frequencies(geometric(2 * part, base)) for part in parts]
        self.bias = nn.Parameter(torch.empty(self.num_kv_heads, rotary_dim))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Biases zero, or drawn anew."""
        if self.initial == "zero":
            nn.init.zeros_(self.bias)
        else:
            nn.init.uniform_(self.bias, -2 * math.pi, 0.0)

    def head_axes(self) -> dict[str, HeadAxis]:
        return {"bias": KEYS}

    def cacheable(self, length: int | None = None) -> bool:
        """False: keys are cached as they were given, which is half of their features."""
        return False

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        raise ValueError("PoPE has no table: keys have biases and queries none; call forward with both")

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        raise ValueError("PoPE has no table: keys have biases and queries none; call forward with both")

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Features of queries and keys, ``(batch, heads, tokens, head_dim + rotary_dim)``."""
        check_head("PoPE", self.head_dim, q)
        self._check_heads(k)
        group = k.shape[1] // self.num_kv_heads  # no divmod: compilers cannot follow it for sizes that vary
        q_waves = self._waves(q_pos, q)
        cos, sin = q_waves if k_pos is q_pos and q.dtype == k.dtype else self._waves(k_pos, k)
        bias = self.bias.to(cos.dtype).clamp(-2 * math.pi, 0.0).repeat_interleave(group, 0).unsqueeze(-2)
        cos_bias, sin_bias = bias.cos(), bias.sin()
        # the addition theorem: angles of positions stay exact, and the gradient is the bias's alone
        k_waves = (cos * cos_bias - sin * sin_bias, sin * cos_bias + cos * sin_bias)
        return self._features(q, *q_waves), self._features(k, *k_waves)

    def _waves(self, positions: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin ``(*batch | 1, 1, tokens, rotary_dim)``."""
        places, _, dtype = coordinates(positions, self.axes, like)
        wide = working_dtype(dtype, places.device)
        each = [angles(at, theta, wide) for at, theta in zip(places.unbind(-1), self._frequencies, strict=True)]
        cos, sin = cos_sin(torch.cat(each, -1), dtype)
        return cos.unsqueeze(-3), sin.unsqueeze(-3)

    def _features(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        strength = softplus(x[..., : self.rotary_dim].to(cos.dtype))
        features = ((strength * cos).to(x.dtype), (strength * sin).to(x.dtype))
        return torch.cat([*features, x[..., self.rotary_dim :]], -1)

    def extra_repr(self) -> str:
        partial = "" if self.rotary_dim == self.head_dim else f", rotary_dim={self.rotary_dim}"
        sections = "" if self.axes == 1 else f", sections={self.sections}"
        return f"{super().extra_repr()}, base={self.base:g}{partial}{sections}"


ENTRY = Entry(
    name="pope",
    encoding=PoPE,
    title="PoPE: magnitudes from content, angles from position alone",
    formula="s_ij = scale · Σ_c softplus(q_ic)·softplus(k_jc)·cos((p_i − p_j)theta_c − bias_hc)",
    source="Gopalakrishnan et al., arXiv 2509.10534",
    parameters="key heads × head_dim per layer",
    cost="queries and keys twice as wide, recomputed from all keys in every call",
    past_training="angles never seen in training, but content has no part in them",
    reads="distances and content",
    extension="none of its own; its paper uses it unchanged at longer contexts",
    used_in="its paper's own models; no other is known to us",
    avoid="on a checkpoint trained with RoPE, or where queries and keys may not become twice as wide",
    exempt={
        "rotary_shapes": "every channel becomes a point of the plane, so heads are twice as wide",
        "rotation_is_linear": "strengths are softplus of the channels",
        "odd_head_dim_raises": "channels do not come in pairs",
        "double_parameters": "keys have biases and queries none, so there is no table of both",
    },
)
