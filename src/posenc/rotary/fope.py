"""FoPE: each pair is rotated by a series of those frequencies that complete a full rotation in training.

    { theta_m : theta_m ≥ 2π / original_length },  theta_m = base^(−2m / spectrum_dim)
    cos_hj(p) = Σ_m cos(p·theta_m) · cos_coef[h, m, j],   sin_hj(p) = Σ_m sin(p·theta_m) · sin_coef[h, m, j]
    (a_j, b_j) → (a_j cos_hj − b_j sin_hj,  b_j cos_hj + a_j sin_hj)

The coefficients begin as the identity and noise, one matrix a key head, the same for queries and keys; by default
nothing trains them, and a state dict keeps them. Scores depend on both positions, not on their distance alone, as the
series is no rotation. Every frequency has been met in training at all of its angles; their sums have not.
Pairs past the series rest: with rest="pass" they pass through (cos 1, sin 0), as frequency 0 would have it.
Forms in use. The authors' code: rest="doubled", as it fills both cos and sin with 1, so that those pairs become
x + rotate_half(x) and count twice in a score; at most head_dim // 4 pairs have a series (``series``). Engines:
rest="pass" in vLLM now, "doubled" in its first version; as many series as frequencies; these are the first
``num_frequencies`` (``num_inv_freq`` there), or those strictly above 2π / original_length.

Source: Hua et al., Fourier Position Embedding, arXiv 2412.17739, section on the method; its released code.
Checked against: TsinghuaC3I/Fourier-Position-Embedding olmo/model.py: tables and rotated queries and keys.
Departs from the source: what the last paragraph says; the noise is Xavier's of each head's matrix, where the code
    counts heads among its fans; the spread is what the options say, without a search over model sizes.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_choice, check_flag, check_number, check_pairs, check_whole
from posenc.dtypes import precision
from posenc.encoding import Table, no_autocast
from posenc.entry import Entry
from posenc.factory_kwargs import Device, assign, place_parameters
from posenc.frequencies.host import check_base, check_length, geometric
from posenc.frequencies.phase import Frequencies, angles, cos_sin, working_dtype
from posenc.frequencies.rotation import Layout
from posenc.head_shares import KEYS, HeadAxis
from posenc.positions import checking as position
from posenc.rotary._per_head import PerHeadRotation

Rest = Literal["pass", "doubled"]


class FoPE(PerHeadRotation):
    """Fourier position embedding.

    Args:
        head_dim: width of a head, even.
        num_heads: query heads.
        num_kv_heads: key heads, default ``num_heads``; must divide it. Queries share the coefficients of their key.
        original_length: tokens of a training text; frequencies that do not complete a full rotation in it are left out.
        base: wavelengths run from 2π to about 2π · base tokens.
        spectrum_dim: channels that the frequencies are spread over, default ``head_dim``.
        num_frequencies: how many of the fastest frequencies the series has; default: those that complete a rotation in
            ``original_length``, as the paper zeroes out the undertrained ones. vLLM calls it ``num_inv_freq``.
        slow: "drop" frequencies below a rotation, or keep them as "zero", so that each pair of the head has a series.
        series: pairs that have a series, default as many as there are frequencies, at most those of the head.
        rest: what becomes of the other pairs; see above.
        per_head: one matrix of coefficients a key head, or one for all.
        separate: matrices of their own for cos and sin, or the same for both.
        normalized: coefficients divided by their sum over the frequencies, which may be near zero.
        learned: whether coefficients are trained.
        noise: gain of the Xavier-normal noise on the identity at first.
        layout: ``"half"`` or ``"interleaved"``; see `RoPE`.
        device, dtype: of the parameters, as in torch.nn.

    Attributes:
        cos_coef, sin_coef: ``(num_kv_heads | 1, frequencies, series)``; sin_coef is None unless separate.

    Raises:
        ValueError: for an odd ``head_dim``, heads that do not divide, no frequency that completes a rotation, or more
            series than pairs.

    >>> fope = FoPE(64, num_heads=8, original_length=512)
    >>> q, k = torch.randn(2, 1, 8, 16, 64)
    >>> fope(q, k, torch.arange(16), torch.arange(16))[0].shape
    torch.Size([1, 8, 16, 64])
    """

    shared_by_layers = False
    composes_by_shift = False

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return {"original_length": max(7, train_length)}  # with fewer than 2π tokens nothing completes a full rotation

    def __init__(
        self,
        head_dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        original_length: int,
        base: float = 10_000.0,
        spectrum_dim: int | None = None,
        num_frequencies: int | None = None,
        slow: Literal["drop", "zero"] = "drop",
        series: int | None = None,
        rest: Rest = "pass",
        per_head: bool = True,
        separate: bool = True,
        normalized: bool = False,
        learned: bool = False,
        noise: float = 0.3,
        layout: Layout = "half",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_pairs("head_dim", head_dim)
        super().__init__(head_dim, num_heads=num_heads, num_kv_heads=num_kv_heads)
        check_length(original_length)
        check_base(base)
        check_choice("slow", slow, ("drop", "zero"))
        check_choice("rest", rest, get_args(Rest))
        check_choice("layout", layout, get_args(Layout))
        check_number("noise", noise, least=0)
        spectrum_dim = head_dim if spectrum_dim is None else spectrum_dim
        check_whole("spectrum_dim", spectrum_dim, least=2)
        self.base, self.rest, self.layout, self.noise = base, rest, layout, noise
        self.original_length, self.normalized = original_length, check_flag("normalized", normalized)
        self._frequencies = Frequencies(_chosen(geometric(spectrum_dim, base), original_length, num_frequencies, slow))
        count = len(self._frequencies.theta)
        self.series = min(count, head_dim // 2) if series is None else series
        check_whole("series", self.series, most=head_dim // 2)
        self.per_head = check_flag("per_head", per_head)
        shape = (self._rows, count, self.series)
        learned = check_flag("learned", learned)
        self.cos_coef = nn.Parameter(torch.empty(shape), requires_grad=learned)
        both = check_flag("separate", separate)
        self.sin_coef = nn.Parameter(torch.empty(shape), requires_grad=learned) if both else None
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """The identity and new noise."""
        rows, count, series = self.cos_coef.shape
        for coef in (self.cos_coef, self.sin_coef):
            if coef is not None:
                drawn = torch.empty(rows, count, series, dtype=coef.dtype, device=coef.device)
                nn.init.normal_(drawn, std=self.noise * math.sqrt(2 / (count + series)))
                assign(coef, drawn + torch.eye(count, series, dtype=coef.dtype, device=coef.device))

    def head_axes(self) -> dict[str, HeadAxis]:
        return dict.fromkeys((name for name, _ in self.named_parameters()), KEYS) if self.per_head else {}

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """cos and sin ``(*batch, num_kv_heads | 1, tokens, pairs)``."""
        position.check_dtype("positions", positions)
        dtype = precision(self.cos_coef if like is None else like)
        places = position.wide(positions if like is None else positions.to(like.device))
        cos, sin = cos_sin(angles(places, self._frequencies, working_dtype(dtype, places.device)), dtype)
        cos_coef = self._coefficients(self.cos_coef, dtype)
        sin_coef = cos_coef if self.sin_coef is None else self._coefficients(self.sin_coef, dtype)
        with no_autocast(cos.device.type):
            cos, sin = cos.unsqueeze(-3) @ cos_coef, sin.unsqueeze(-3) @ sin_coef
        left = self.head_dim // 2 - self.series
        return F.pad(cos, (0, left), value=1.0), F.pad(sin, (0, left), value=1.0 if self.rest == "doubled" else 0.0)

    def _coefficients(self, coefficients: Tensor, dtype: torch.dtype) -> Tensor:
        wide = coefficients.to(dtype)
        return wide / wide.sum(-2, keepdim=True) if self.normalized else wide

    def extra_repr(self) -> str:
        rest = "" if self.rest == "pass" else f", rest={self.rest!r}"
        frequencies = f"original_length={self.original_length}, {len(self._frequencies.theta)} frequencies"
        return f"{super().extra_repr()}, {frequencies}, {self.series} series{rest}"


def _chosen(theta: list[float], length: int, num_frequencies: int | None, slow: str) -> list[float]:
    """The frequencies of the series."""
    if num_frequencies is None:
        num_frequencies = sum(t >= 2 * math.pi / length for t in theta)
        if not num_frequencies:
            raise ValueError(f"original_length must hold a full rotation of the fastest pair, 7 tokens, got {length}")
    check_whole("num_frequencies", num_frequencies, most=len(theta))
    return theta[:num_frequencies] + [0.0] * (len(theta) - num_frequencies if slow == "zero" else 0)


ENTRY = Entry(
    name="fope",
    encoding=FoPE,
    title="FoPE: pairs rotated by Fourier series of the frequencies that complete a full rotation in training",
    formula="cos_hj(p) = Σ_m cos(p·theta_m)·cos_coef[h, m, j], sin alike, over theta_m ≥ 2π/original_length",
    source="Hua et al., arXiv 2412.17739",
    parameters="2 × key heads × frequencies × series per layer, not trained by default",
    cost="a table per key head, made by two small products",
    past_training="each wave repeats values of training; their sums are new",
    reads="distances and positions",
    extension="none of its own; scalings of frequencies apply to the rotated pairs",
    used_in="its paper's own models; no other is known to us",
    avoid="where logits must depend on distances alone: its sums of waves are not a rotation",
    exempt={"common_shift": "scores under a series of waves depend on both positions, not on their distance alone"},
)
