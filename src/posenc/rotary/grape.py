"""GRAPE-M: RoPE whose frequencies are learned, as logarithms scaled by a factor that sets how fast they train.

    theta_hj = exp(log_theta_hj / log_scale),   log_theta_hj = log_scale · ln base^(−2j / head_dim)   at first
    (a_j, b_j) → (a_j cos p·theta + b_j sin p·theta,  b_j cos p·theta − a_j sin p·theta)

It rotates by minus the angle, in the opposite direction to RoPE: with the same queries and keys its scores are RoPE's
at negated positions. One set of frequencies for all heads or one a key head, which its queries share. Scores depend on
the distance alone, whatever the frequencies are. Past the training length angles are new, as for RoPE.

Source: Zhang et al., Group Representational Position Encoding, arXiv 2512.07805, section on multiplicative
    GRAPE, in the basis of channel pairs; parameters as in its code.
Checked against: model-architectures/GRAPE model/llama-mha-grape-m-nonctx.py MSGRAPECommuting, values and gradients.
Departs from the source: grouped keys have a rule; angles of positions are exact, where that code has float32 products.
    The contextual form, whose phases are sums over tokens, is a score encoding (`score.GRAPEContext`).
"""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor, nn

from posenc.arguments import check_choice, check_flag, check_number, check_pairs
from posenc.encoding import Table
from posenc.entry import Entry
from posenc.factory_kwargs import Device, assign, place_parameters
from posenc.frequencies.host import check_base, geometric
from posenc.frequencies.phase import TensorFrequencies
from posenc.frequencies.rotation import Layout
from posenc.frequencies.spectrum import host_float64
from posenc.head_shares import KEYS, HeadAxis
from posenc.rotary._axes import coordinates, table_of_sums
from posenc.rotary._per_head import PerHeadRotation


class GRAPEM(PerHeadRotation):
    """Multiplicative GRAPE with commuting planes: a rotation with learned frequencies.

    Args:
        head_dim: width of a head, even.
        num_heads: query heads.
        num_kv_heads: key heads, default ``num_heads``; must divide it.
        per_head: frequencies for each key head, or one set for all.
        base: of the frequencies at first.
        log_scale: factor between a parameter and the logarithm of its frequency: 16 lets a step of the optimiser move
            the logarithm by a 16th.
        layout: ``"half"`` or ``"interleaved"``; see `RoPE`.
        device, dtype: of the parameters, as in torch.nn.

    Attributes:
        log_theta: the parameter ``(num_kv_heads | 1, pairs)``.

    >>> grape = GRAPEM(64, num_heads=8)
    >>> q, k = torch.randn(2, 1, 8, 16, 64)
    >>> grape(q, k, torch.arange(16), torch.arange(16))[0].shape
    torch.Size([1, 8, 16, 64])
    """

    shared_by_layers = False
    relative = True

    def __init__(
        self,
        head_dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        per_head: bool = False,
        base: float = 10_000.0,
        log_scale: float = 16.0,
        layout: Layout = "half",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_pairs("head_dim", head_dim)
        super().__init__(head_dim, num_heads=num_heads, num_kv_heads=num_kv_heads)
        check_base(base)
        check_number("log_scale", log_scale, above=0)
        check_choice("layout", layout, get_args(Layout))
        self.base, self.log_scale = base, log_scale
        self.layout: Layout = layout
        self.per_head = check_flag("per_head", per_head)
        self.log_theta = nn.Parameter(torch.empty(self._rows, head_dim // 2))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """RoPE's frequencies."""
        theta = host_float64(geometric(self.head_dim, self.base)).log() * self.log_scale
        assign(self.log_theta, theta.expand(self.log_theta.shape))

    def head_axes(self) -> dict[str, HeadAxis]:
        return {"log_theta": KEYS} if self.per_head else {}

    def frequencies(self) -> Tensor:
        """theta ``(num_kv_heads | 1, pairs)``, radians per token, in float64 where there is one."""
        device = torch.device("cpu") if self.log_theta.device.type == "mps" else self.log_theta.device
        return (self.log_theta.to(device, torch.float64) / self.log_scale).exp()

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """cos and sin ``(*batch, num_kv_heads | 1, tokens, pairs)``; see `RotaryEncoding.table`."""
        places, _, dtype = coordinates(positions, 1, self.log_theta if like is None else like)
        return table_of_sums(places, [TensorFrequencies(-self.frequencies().unsqueeze(-2))], dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, base={self.base:g}, {self._rows} sets of frequencies"


ENTRY = Entry(
    name="grape_m",
    encoding=GRAPEM,
    title="GRAPE-M: RoPE with learned frequencies, rotating in the opposite direction",
    formula="q, k ← R(−p) q, R(−p) k,  pairs rotated by p·theta_j,  theta_j = exp(log_theta_j / log_scale)",
    source="Zhang et al., arXiv 2512.07805",
    parameters="head_dim / 2 per layer, times key heads if each has its own",
    cost="one rotation of q and k per layer, by a table computed in every call",
    past_training="angles never seen in training",
    reads="distances",
    extension="scalings of frequencies, as RoPE's",
    used_in="its paper's own models; no other is known to us",
    avoid="on a checkpoint trained with RoPE, which rotates in the opposite direction",
)
