"""GRAPE-AP: a bias that gathers over all tokens between a key and its query, as far as the query lets each one count.

    s_ij ← s_ij + slope_h · Σ_{j < l ≤ i} logsigmoid(p_i · R(−p_l's position) p̂_l / d_p)

p_t what a projection makes of the layer's input, one for each query head, or the keys themselves (tie="key"); p̂ its
root-mean-square norm, without weights; R turns every pair (c, c + d_p/2) by one radian a position; slope those of
ALiBi. l runs over the keys that query i sees, in the order of their indices, which must be that of the text. The query
is not rotated, so places in the text are seen, and not distances alone. Defined for causal attention. Past the trained
length sums grow on over tokens of phases that training has met. Scores are built by blocks of queries.

Source: Zhang et al., Group Representational Position Encoding, arXiv 2512.07805, section on path-integral
    additive GRAPE, as in its code.
Checked against: model-architectures/GRAPE model/llama-mha-grape-ap-v1.py: results and gradients, p given and tied to k.
Departs from the source: sums run from the newest key back, where that code subtracts running sums and loses digits in
    long rows; ties to q and v are not offered.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_choice, check_heads, check_number, check_whole
from posenc.bias.alibi import alibi_slopes
from posenc.encoding import Context, Reads, ScoreEncoding
from posenc.entry import Entry, Shape
from posenc.factory_kwargs import Device, place_parameters
from posenc.frequencies.phase import Frequencies, angles, cos_sin, working_dtype
from posenc.head_shares import QUERIES, HeadAxis, HeadShare
from posenc.rotary._rotate import rotate_pairs
from posenc.score._inputs import sum_of_later_gates, token_state_of, wide_linear

Tie = Literal["none", "key"]


class GRAPEAP(ScoreEncoding):
    """Path-integral additive GRAPE. It needs the layer's input unless tied: ``attention(..., x=x)``.

    Args:
        dim: width of the layer's input.
        num_heads: query heads.
        path_dim: width of p, even; a key head's width where it is tied.
        tie: "none", p from a projection of the input, or "key".
        init_std: standard deviation of the initial projection.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: at construction for sizes below 1 or an odd ``path_dim``; at a call without x or token_states, or
            for x or tied keys of another width.

    >>> from posenc import attention
    >>> x, (q, k, v) = torch.randn(1, 16, 512), torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [GRAPEAP(512, num_heads=8, path_dim=64)], x=x).shape
    torch.Size([1, 8, 16, 64])
    """

    causal_only = True  # and queries are among the keys' tokens, whose p they have
    shared_by_layers = False

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        path_dim: int,
        tie: Tie = "none",
        init_std: float = 0.02,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_heads("num_heads", num_heads)
        check_whole("path_dim", path_dim)
        if path_dim % 2:
            raise ValueError(f"path_dim must be even, got {path_dim}: channels are rotated in pairs")
        check_choice("tie", tie, get_args(Tie))
        check_number("init_std", init_std, least=0)
        self.dim, self.num_heads, self.path_dim, self.tie, self.init_std = dim, num_heads, path_dim, tie, init_std
        self._slopes = alibi_slopes(num_heads)
        self._radian = Frequencies([-1.0] * (path_dim // 2))
        self.weight = nn.Parameter(torch.empty(num_heads * path_dim, dim)) if tie == "none" else None
        self.reads = Reads(rotated=tie == "key", key_order=True, own_key=True)
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """The projection drawn anew, normal."""
        if self.weight is not None:
            nn.init.normal_(self.weight, std=self.init_std)

    def head_axes(self) -> dict[str, HeadAxis]:
        return {} if self.weight is None else {"weight": QUERIES}

    def _keep_heads(self, share: HeadShare) -> None:
        super()._keep_heads(share)
        self._slopes = self._slopes[share.heads]

    def token_state(self, x: Tensor) -> Tensor | None:
        """p ``(batch, heads, tokens, path_dim)`` in float32 or better, where it is projected from x."""
        if self.weight is None:
            return None
        return wide_linear(x, self.weight).view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        if self.weight is not None:
            p = token_state_of("GRAPEAP", context, (self.num_heads, self.path_dim), scores.dtype)
        else:
            p = context.k
            if p.shape[-1] != self.path_dim:
                raise ValueError(f"path_dim of this GRAPEAP is {self.path_dim}, got keys of {tuple(context.k.shape)}")
        norm = p * (p.square().mean(-1, keepdim=True) + torch.finfo(p.dtype).eps).rsqrt()
        angle = angles(context.k_pos, self._radian, working_dtype(p.dtype, p.device))
        cos, sin = (wave.unsqueeze(-3) for wave in cos_sin(angle, p.dtype))
        rotated = rotate_pairs(norm, cos, sin, "half")
        queries, keys = scores.shape[-2:]
        if queries > keys:
            raise ValueError(f"q must have no more tokens than k under GRAPEAP, got {queries} on {keys}")
        gates = F.logsigmoid(p[:, :, keys - queries :] @ rotated.mT / self.path_dim)
        if gates.shape[1] != scores.shape[1]:  # the heads of a group share their keys, and so their gates
            gates = gates.repeat_interleave(scores.shape[1] // gates.shape[1], 1)
        return scores + sum_of_later_gates(gates, context.mask) * scores.new_tensor(self._slopes).view(-1, 1, 1)

    def extra_repr(self) -> str:
        return f"{self.dim}, num_heads={self.num_heads}, path_dim={self.path_dim}, tie={self.tie!r}"


def _path_of_a_head(shape: Shape) -> dict[str, object]:
    width = shape.get("head_dim")
    return {"path_dim": width + width % 2} if isinstance(width, int) else {}


ENTRY = Entry(
    name="grape_ap",
    encoding=GRAPEAP,
    title="GRAPE-AP: a bias that accumulates over the tokens between key and query",
    formula="s_ij ← s_ij + slope_h · Σ_{j < l ≤ i} logsigmoid(p_i · R(−l) p̂_l / d_p)",
    source="Zhang et al., arXiv 2512.07805",
    parameters="dim × heads · path_dim per layer",
    cost="a second product of the size of q·k and a running sum over all logits; path_dim numbers per head and key"
    " in the cache",
    past_training="weights keep decaying with distance; phases of single tokens are as in training",
    reads="content and positions",
    extension="none of its own",
    used_in="its paper's own models; no other is known to us",
    defaults=_path_of_a_head,
    exempt={
        "common_shift": "keys are rotated and queries are not, so absolute positions matter",
        "shuffled_positions": "keys must lie in the order of the text",
    },
)
