"""Contextual GRAPE-M: a rotation with learned frequencies, by a phase that tokens add up instead of positions.

    phase_t = Σ_{l < t} sigmoid((weight · x_l + bias) / omega_scale)
    s_ij = scale · R(−phase_i) q_i · R(−phase_j) k_j,   theta_j = exp(log_theta_j)

x the layer's input. A token moves all that follows on by less than 1; at first by 0.39, as bias is such that a softplus
in the sigmoid's place would give ``start``. There is one phase for all heads, or one a key head. A score depends on the
tokens from key j up to query i, which has no part itself. Tokens count in the order of their indices, which must be
that of the sequence; tokens that no query of the call may see (padding) add nothing. As for Selective RoPE, any path of
attention serves it where nothing else reads queries and keys. Past the training length phases grow on, and angles are
new.

Source: Zhang et al., Group Representational Position Encoding, arXiv 2512.07805, section on contextual forms of
    multiplicative GRAPE, as in its code.
Checked against: model-architectures/GRAPE model/llama-mha-grape-m-ctx.py MSGRAPEContextType1, values and gradients for
    given logits.
Departs from the source: the names of that code say softplus, what it computes is the sigmoid, as here; grouped
    keys have a rule.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from posenc.arguments import check_flag, check_heads, check_number, check_whole
from posenc.encoding import Context, Reads, Scope, ScoreEncoding, float64_if_supported
from posenc.entry import IN_ORDER, Entry, a_key_head_per_query_head
from posenc.factory_kwargs import Device, assign, place_parameters
from posenc.frequencies.host import check_base, geometric
from posenc.frequencies.spectrum import host_float64
from posenc.head_shares import KEYS, HeadAxis, HeadShare
from posenc.score._inputs import check_key_heads, check_width, token_state_of, wide_linear
from posenc.score._qk_rotation import replace_products, rotate_by_angles


class GRAPEContext(ScoreEncoding):
    """Multiplicative GRAPE by phases of the context. It needs the layer's input: ``attention(..., x=x)``.

    Args:
        dim: width of the layer's input.
        head_dim: width of a head, even.
        num_kv_heads: key heads.
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
        head_dim: int,
        num_kv_heads: int,
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
        check_whole("head_dim", head_dim)
        check_heads("num_kv_heads", num_kv_heads)
        if head_dim % 2:
            raise ValueError(f"head_dim must be even and at least 2, got {head_dim}: channels are rotated in pairs")
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
        of_head = host_float64(geometric(self.head_dim, self.base)).log()
        assign(self.log_theta, of_head.expand(self.log_theta.shape))
        nn.init.normal_(self.weight, std=self.init_std)
        nn.init.constant_(self.bias, self.start + math.log(-math.expm1(-self.start)))

    def head_axes(self) -> dict[str, HeadAxis]:
        of_phases = {"weight": KEYS, "bias": KEYS} if self.per_head_phase else {}
        return of_phases | ({"log_theta": KEYS} if self.per_head else {})

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
        phase = steps.cumsum(-1) - steps
        return rotate_by_angles(q, k, -phase.unsqueeze(-1) * self.log_theta.to(wide).exp().unsqueeze(-2))

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        return replace_products(scores, context, *self.absorb_into_qk(context))

    def extra_repr(self) -> str:
        sizes = f"{self.dim}, head_dim={self.head_dim}, num_kv_heads={self.num_kv_heads}"
        return f"{sizes}, base={self.base:g}, {self.phases} phases"


ENTRY = Entry(
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
    defaults=a_key_head_per_query_head,
    exempt=IN_ORDER,
)
