"""GRAPE-A: a bias by distance whose slope queries and keys decide.

    s_ij ← s_ij − max(p_i − p_j, 0) · slope_h · softplus(omega_h) · rate_hij
    rate_hij = softplus(u_h · k_j / √d)  gate "key",  softplus(v_h · q_i / √d)  gate "query",  their sum  gate "both"

slope those of ALiBi; u and v one vector a query head, of length one where ``normalized``. q and k are those that the
scores are made of, rotated where something rotates. Distances are those of positions; later keys get no bias. Past the
training length far keys fade on, as under ALiBi, at a rate that content has set. Scores are built by blocks of queries.

Source: Zhang et al., Group Representational Position Encoding, arXiv 2512.07805, section on additive GRAPE, in the
    three gated forms of its code.
Checked against: model-architectures/GRAPE model/llama-mha-grape-a-keygated.py, -querygated.py, -querykeygated.py:
    biases and gradients.
Departs from the source: grouped keys, where a query head's u meets the key of its group; the slopes of ALiBi stand in
    the formula, as they do in the code.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_choice, check_flag, check_heads, check_number, check_whole
from posenc.bias.alibi import alibi_slopes
from posenc.dtypes import softplus
from posenc.encoding import Context, ScoreEncoding, float64_if_supported, no_autocast
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import QUERIES, HeadAxis, HeadShare
from posenc.heads import by_key_head
from posenc.score._inputs import check_width

Gate = Literal["key", "query", "both"]


class GRAPEA(ScoreEncoding):
    """Additive GRAPE.

    Args:
        head_dim: width of a head.
        num_heads: query heads.
        gate: what decides the slope: the "key", the "query", or "both".
        normalized: whether u and v are brought to length one.
        start: softplus(omega) at first.
        device, dtype: of the parameters, as in torch.nn.

    Attributes:
        omega: the parameter ``(heads,)``.
        u, v: the parameters ``(heads, head_dim)``, for keys and for queries; None where the gate has none.

    Raises:
        ValueError: at construction for sizes below 1 or an unknown gate; at a call for another ``head_dim``.

    >>> from posenc import attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [GRAPEA(64, num_heads=8)]).shape
    torch.Size([1, 8, 16, 64])
    """

    shared_by_layers = False

    def __init__(
        self,
        head_dim: int,
        *,
        num_heads: int,
        gate: Gate = "key",
        normalized: bool = True,
        start: float = 1.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("head_dim", head_dim)
        check_heads("num_heads", num_heads)
        check_choice("gate", gate, get_args(Gate))
        check_number("start", start, above=0)
        self.head_dim, self.num_heads, self.gate, self.start = head_dim, num_heads, gate, start
        self.normalized = check_flag("normalized", normalized)
        self._slopes = alibi_slopes(num_heads)
        self.omega = nn.Parameter(torch.empty(num_heads))
        self.u = nn.Parameter(torch.empty(num_heads, head_dim)) if gate != "query" else None
        self.v = nn.Parameter(torch.empty(num_heads, head_dim)) if gate != "key" else None
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """omega back to its start, directions drawn anew."""
        nn.init.constant_(self.omega, self.start + math.log(-math.expm1(-self.start)))
        for direction in (self.u, self.v):
            if direction is not None:
                nn.init.normal_(direction, std=self.head_dim**-0.5)

    def head_axes(self) -> dict[str, HeadAxis]:
        return dict.fromkeys((name for name, _ in self.named_parameters()), QUERIES)

    def _keep_heads(self, share: HeadShare) -> None:
        super()._keep_heads(share)
        self._slopes = self._slopes[share.heads]

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        q, k = context.q, context.k
        check_width(self, self.head_dim, q)
        rate: Tensor | None = None
        if self.u is not None:
            unit = self._unit(self.u, k).view(1, -1, 1, self.head_dim).expand(len(k), -1, -1, -1)
            with no_autocast(k.device.type):
                along = by_key_head(unit, k.mT)
            rate = self._rate(along)
        if self.v is not None:
            with no_autocast(q.device.type):
                along = q @ self._unit(self.v, q).unsqueeze(-1)
            of_queries = self._rate(along)
            rate = of_queries if rate is None else rate + of_queries
        assert rate is not None
        slope = softplus(self.omega.to(scores.dtype)) * scores.new_tensor(self._slopes)
        return scores - _back(context, scores.dtype) * (slope.view(-1, 1, 1) * rate)

    def _unit(self, direction: Tensor, like: Tensor) -> Tensor:
        """A direction of each head, ``(heads, head_dim)``, in the precision of what is projected on it."""
        wide = direction.to(like.dtype)
        return F.normalize(wide, dim=-1) if self.normalized else wide

    def _rate(self, along: Tensor) -> Tensor:
        """softplus of what tokens have along a direction."""
        return softplus(along * self.head_dim**-0.5)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, num_heads={self.num_heads}, gate={self.gate!r}, normalized={self.normalized}"


def _back(context: Context, dtype: torch.dtype) -> Tensor:
    """How far each key lies before its query, 0 for later ones, ``(batch | 1, 1, queries, keys)``."""
    q_pos, k_pos = context.q_pos, context.k_pos
    if q_pos.is_floating_point() or k_pos.is_floating_point():  # differences of float32 ones need more digits
        q_pos, k_pos = (p.to(float64_if_supported(p.device)) for p in (q_pos, k_pos))
    apart = (q_pos.unsqueeze(-1) - k_pos.unsqueeze(-2)).clamp(min=0).to(dtype)
    return apart.view(-1, 1, *apart.shape[-2:])


ENTRY = Entry(
    name="grape_a",
    encoding=GRAPEA,
    title="GRAPE-A: a distance bias whose slope depends on keys, queries or both",
    formula="s_ij ← s_ij − max(p_i − p_j, 0) · slope_h · softplus(omega_h) · softplus(u_h·k_j/√d)",
    source="Zhang et al., arXiv 2512.07805",
    parameters="(head_dim + 1) × heads per layer, or (2 · head_dim + 1) × heads",
    cost="a product over all logits, computed by blocks",
    past_training="weights keep decaying with distance, at rates set by content",
    reads="distances and content",
    extension="none needed: like ALiBi, it decays with distance",
    used_in="its paper's own models; no other is known to us",
)
