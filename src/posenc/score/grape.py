"""GRAPE: three forms whose biases and phases depend on content; the form by positions alone is `rotary.GRAPEM`.

    GRAPE-A           s_ij ← s_ij − max(p_i − p_j, 0) · slope_h · softplus(omega_h) · rate_hij
                      rate_hij = softplus(u_h · k_j / √d)  gate "key",  softplus(v_h · q_i / √d)  gate "query",
                      their sum  gate "both"
    GRAPE-AP          s_ij ← s_ij + slope_h · Σ_{j < l ≤ i} logsigmoid(p_i · R(−p_l's position) p̂_l / d_p)
    contextual        s_ij = scale · R(−phase_i) q_i · R(−phase_j) k_j,   theta_j = exp(log_theta_j)
    GRAPE-M           phase_t = Σ_{l < t} sigmoid((weight · x_l + bias) / omega_scale)

slope as in ALiBi; u and v one vector a query head, of length one where ``normalized``; x the layer's input. In
GRAPE-AP p_t is what a projection makes of x, one for each query head, or the keys themselves (tie="key"), p̂ its
root-mean-square norm, without weights, and R turns every pair (c, c + d_p/2) by one radian a position. The contextual
form has one phase for all heads, or one a key head. Biases are built by blocks of queries.

Source: Zhang et al., Group Representational Position Encoding, arXiv 2512.07805, sections on additive, path-integral
    additive and contextual multiplicative GRAPE, as in its code.
Checked against: model-architectures/GRAPE: model/llama-mha-grape-a-keygated.py, -querygated.py, -querykeygated.py,
    biases and gradients; llama-mha-grape-ap-v1.py, results and gradients, p given and tied to k;
    llama-mha-grape-m-ctx.py MSGRAPEContextType1, values and gradients for given logits.
Departs from the source: grouped keys have a rule; the slopes of ALiBi stand in the formula, as they do in the code.
    GRAPE-AP: sums run from the newest key back, where that code subtracts running sums and loses digits in long rows;
    ties to q and v are not offered. Contextual: the names of that code say softplus, what it computes is the sigmoid,
    as here.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_choice, check_flag, check_heads, check_number, check_pairs, check_whole
from posenc.bias.alibi import alibi_slopes
from posenc.constants import constant
from posenc.dtypes import softplus
from posenc.encoding import Context, Reads, Scope, ScoreEncoding, float64_if_supported, no_autocast
from posenc.entry import IN_ORDER, Entry, Shape, a_key_head_per_query_head
from posenc.factory_kwargs import Device, assign, place_parameters
from posenc.frequencies.host import check_base, geometric
from posenc.frequencies.phase import Frequencies, angles, cos_sin, working_dtype
from posenc.frequencies.spectrum import host_float64
from posenc.head_shares import KEYS, QUERIES, HeadAxis, HeadShare
from posenc.heads import by_key_head
from posenc.rotary._rotate import rotate_pairs
from posenc.score._inputs import check_key_heads, check_width, sum_of_later_gates, token_state_of, wide_linear
from posenc.score._qk_rotation import replace_products, rotate_by_angles

Gate = Literal["key", "query", "both"]
Tie = Literal["none", "key"]


class GRAPEA(ScoreEncoding):
    """Additive GRAPE: a bias by distance whose slope queries and keys decide.

    q and k are those that the scores are made of, rotated where something rotates; later keys get no bias. Past the
    training length far keys keep decaying, as under ALiBi, at a rate that content sets.

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
        self._slopes = tuple(alibi_slopes(num_heads))
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
            query_rate = self._rate(along)
            rate = query_rate if rate is None else rate + query_rate
        assert rate is not None
        slope = softplus(self.omega.to(scores.dtype)) * constant(self._slopes, scores.dtype, scores.device)
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


class GRAPEAP(ScoreEncoding):
    """Path-integral additive GRAPE: a bias that gathers over the tokens between a key and its query.

    It needs the layer's input unless tied: ``attention(..., x=x)``. l runs over the keys that query i sees, in the
    order of their indices, which must be that of the text. The query is not rotated, so places in the text are seen,
    and not distances alone. Defined for causal attention. Past the trained length sums grow on over tokens of phases
    that training has met.

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
        check_pairs("path_dim", path_dim)
        check_choice("tie", tie, get_args(Tie))
        check_number("init_std", init_std, least=0)
        self.dim, self.num_heads, self.path_dim, self.tie, self.init_std = dim, num_heads, path_dim, tie, init_std
        self._slopes = tuple(alibi_slopes(num_heads))
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
        # the query's p is not rotated, as in the authors' code: gates see where a token lies, not how far back
        gates = F.logsigmoid(p[:, :, keys - queries :] @ rotated.mT / self.path_dim)
        if gates.shape[1] != scores.shape[1]:  # the heads of a group share their keys, and so their gates
            gates = gates.repeat_interleave(scores.shape[1] // gates.shape[1], 1)
        slopes = constant(self._slopes, scores.dtype, scores.device)
        return scores + sum_of_later_gates(gates, context.mask) * slopes.view(-1, 1, 1)

    def extra_repr(self) -> str:
        return f"{self.dim}, num_heads={self.num_heads}, path_dim={self.path_dim}, tie={self.tie!r}"


def _path_of_a_head(shape: Shape) -> dict[str, object]:
    width = shape.get("head_dim")
    return {"path_dim": width + width % 2} if isinstance(width, int) else {}


class GRAPEContext(ScoreEncoding):
    """Multiplicative GRAPE by phases of the context: a rotation by a phase that tokens add up instead of positions.

    It needs the layer's input: ``attention(..., x=x)``. A token moves all that follows on by less than 1; at first by
    0.39, as bias is such that a softplus in the sigmoid's place would give ``start``. A score depends on the tokens
    from key j up to query i, which has no part itself. Tokens count in the order of their indices, which must be that
    of the sequence; tokens that no query of the call may see (padding) add nothing. As for Selective RoPE, any path of
    attention serves it where nothing else reads queries and keys. Past the training length phases grow on, and angles
    are new.

    Args:
        dim: width of the layer's input.
        num_kv_heads: key heads.
        head_dim: width of a head, even.
        per_head: whether each key head has frequencies of its own.
        per_head_phase: whether each key head has a phase of its own.
        base: of the frequencies at first.
        omega_scale: divides the logits of the increments.
        start: what softplus of the initial bias is.
        init_std: standard deviation of the initial projection.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: at construction for sizes that do not fit; at a call for another ``head_dim``, without x or
            token_states, or for x of another width.

    >>> from posenc import attention
    >>> x, (q, k, v) = torch.randn(1, 16, 512), torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [GRAPEContext(512, head_dim=64, num_kv_heads=8)], x=x).shape
    torch.Size([1, 8, 16, 64])
    """

    axes = 0
    scope = Scope(by_rows=False)  # which tokens add nothing is found from all queries of a call:
    reads = Reads(token_order=True, key_order=True, own_key=True)
    shared_by_layers = False

    def __init__(
        self,
        dim: int,
        *,
        num_kv_heads: int,
        head_dim: int,
        per_head: bool = False,
        per_head_phase: bool = False,
        base: float = 10_000.0,
        omega_scale: float = 16.0,
        start: float = 1e-3,
        init_std: float = 0.02,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_pairs("head_dim", head_dim)
        check_heads("num_kv_heads", num_kv_heads)
        check_base(base)
        for name, number in (("omega_scale", omega_scale), ("start", start)):
            check_number(name, number, above=0)
        check_number("init_std", init_std, least=0)
        self.dim, self.head_dim, self.num_kv_heads, self.base = dim, head_dim, num_kv_heads, base
        self.omega_scale, self.start, self.init_std = omega_scale, start, init_std
        self.per_head = check_flag("per_head", per_head)
        self.per_head_phase = check_flag("per_head_phase", per_head_phase)
        self.phases = num_kv_heads if self.per_head_phase else 1
        self.log_theta = nn.Parameter(torch.empty(num_kv_heads if self.per_head else 1, head_dim // 2))
        self.weight = nn.Parameter(torch.empty(self.phases, dim))
        self.bias = nn.Parameter(torch.empty(self.phases))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """RoPE's frequencies, a projection drawn anew, and increments at their start."""
        theta = host_float64(geometric(self.head_dim, self.base)).log()
        assign(self.log_theta, theta.expand(self.log_theta.shape))
        nn.init.normal_(self.weight, std=self.init_std)
        nn.init.constant_(self.bias, self.start + math.log(-math.expm1(-self.start)))

    def head_axes(self) -> dict[str, HeadAxis]:
        phase_axes = {"weight": KEYS, "bias": KEYS} if self.per_head_phase else {}
        return phase_axes | ({"log_theta": KEYS} if self.per_head else {})

    def _keep_heads(self, share: HeadShare) -> None:
        super()._keep_heads(share)
        self.phases = self.num_kv_heads if self.per_head_phase else 1

    def token_state(self, x: Tensor) -> Tensor | None:
        """Logits of the increments ``(batch, num_kv_heads | 1, tokens)`` in float32 or better."""
        return wide_linear(x, self.weight, self.bias).transpose(1, 2)

    def absorb_into_qk(self, context: Context) -> tuple[Tensor, Tensor]:
        q, k = context.q, context.k
        check_width(self, self.head_dim, q)
        check_key_heads(self, self.num_kv_heads, k)
        wide = float64_if_supported(k.device)
        steps = (token_state_of("GRAPEContext", context, (self.phases,), wide) / self.omega_scale).sigmoid()
        order = context.sequence.token_order
        if order is not None and order.used is not None:
            steps = torch.where(order.used.unsqueeze(1), steps, 0.0)
        phase = steps.cumsum(-1) - steps  # a token moves what follows, not itself
        return rotate_by_angles(q, k, -phase.unsqueeze(-1) * self.log_theta.to(wide).exp().unsqueeze(-2))

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        return replace_products(scores, context, *self.absorb_into_qk(context))

    def extra_repr(self) -> str:
        sizes = f"{self.dim}, head_dim={self.head_dim}, num_kv_heads={self.num_kv_heads}"
        return f"{sizes}, base={self.base:g}, {self.phases} phases"


ENTRIES = (
    Entry(
        name="grape_context",
        encoding=GRAPEContext,
        title="Contextual GRAPE-M: rotation by a phase that accumulates over tokens",
        formula="s_ij = scale · R(−phase_i)q_i · R(−phase_j)k_j,  phase_t = Σ_{l < t} sigmoid(logit(x_l)/omega_scale)",
        source="Zhang et al., arXiv 2512.07805",
        parameters="dim + 1 + head_dim/2 per layer, times key heads where each has its own",
        cost="a running sum, a rotation of q and all keys; one number per key in the cache",
        past_training="phases keep growing; angles never seen in training",
        reads="content",
        extension="none of its own",
        used_in="its paper's own models; no other is known to us",
        avoid="where keys are not in the order of the text: phases are sums over the tokens before",
        defaults=a_key_head_per_query_head,
        exempt=IN_ORDER,
    ),
    Entry(
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
        avoid="where far tokens must be retrieved by any query: weights decay with distance",
    ),
    Entry(
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
        avoid="where the cache must stay small: it holds path_dim more numbers per head and key",
        defaults=_path_of_a_head,
        exempt={
            "common_shift": "keys are rotated and queries are not, so absolute positions matter",
            "shuffled_positions": "keys must lie in the order of the text",
        },
    ),
)
