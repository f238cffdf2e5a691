"""Selective RoPE: tokens themselves say how far queries and keys turn on, by a running sum of angles.

    phi_t = gate_t · (Σ_s taps_s ⊙ raw_{t−s} + exp(bias)),   raw_t = up · down · x̂_t,   gate_t = sigmoid(G x̂_t + g)
    angle_t = temperature ⊙ Σ_{l ≤ t} phi_l
    s_ij = scale · R(angle_i) q_i · R(angle_j) k_j

x̂ the layer's input, each head's share of it brought to length one; taps, bias and gate may be left out. There is one
angle a pair of channels, pairs (j, j + head_dim/2), and a set of them for each key head, which its queries share. A
score depends on the angles of the tokens after key j up to query i: what stands before changes nothing, and R(0) is
where a text begins. Tokens count in the order of their indices, which must be that of the text; positions are not read.
Tokens that no query of the call may see (padding) contribute no rotation, and a convolution does not reach into another
document. It acts on the products of queries and keys, so any path of attention serves it where nothing else reads
these. Caches keep raw angles and gates beside keys that have not rotated. Past the training length sums grow on, modulo
a turn.

Source: Movahedi et al., Selective Rotary Position Embedding, arXiv 2511.17388, section on the method.
Checked against: timurcarstensen/selective-rope modules/rotary.py: angles, rotated queries and keys, gradients;
    streamed.
Departs from the source: the sum is of float64 where there is one; grouped keys have a rule; differences in time
    (taps=None, its skip_conv) go on from a cache, where that code begins anew. It stands among the score encodings, as
    rotations here know positions alone.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_choice, check_flag, check_heads, check_number, check_whole
from posenc.constants import constant
from posenc.encoding import Context, Reads, Scope, ScoreEncoding, float64_if_supported
from posenc.entry import IN_ORDER, Entry, a_key_head_per_query_head
from posenc.factory_kwargs import Device, assign, place_parameters
from posenc.frequencies.host import check_base, geometric
from posenc.head_shares import KEYS, HeadAxis, HeadShare
from posenc.score._inputs import check_key_heads, check_width, token_state_of, wide_linear
from posenc.score._qk_rotation import replace_products, rotate_by_angles
from posenc.structure import single_sequence

Gate = Literal["head", "pair"]
_EPS = 1e-6  # added to |x|², as in the authors' l2_norm


class SelectiveRoPE(ScoreEncoding):
    """Rotation by angles that tokens choose. It needs the layer's input: ``attention(..., x=x)``.

    Args:
        dim: width of the layer's input, a multiple of ``num_kv_heads``.
        num_kv_heads: key heads.
        head_dim: width of a head, even.
        rank: of the projection to angles; None: a matrix for each head's share of x, its columns of one length.
        taps: tokens that the convolution spans, the own one included; None: differences in time instead, which the
            sum undoes, so that an angle is that of its token alone.
        activation: whether silu follows the convolution.
        bias: whether exp(bias) is added, which turns every token on by as much.
        gate: none, one a "head", or one a "pair".
        gate_rank: of the projection to gates a pair.
        base: temperatures are base^(−2j/head_dim); below 1: tangents of j · base · π / 2, the last one ``temperature``.
        temperature: the largest one.
        learned: whether temperatures are trained.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: at construction for sizes that do not fit; at a call for another ``head_dim``, without x or
            token_states, or for x of another width.

    >>> from posenc import attention
    >>> x, (q, k, v) = torch.randn(1, 16, 512), torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [SelectiveRoPE(512, head_dim=64, num_kv_heads=8)], x=x).shape
    torch.Size([1, 8, 16, 64])
    """

    axes = 0
    scope = Scope(by_rows=False)  # which tokens turn nothing is found from all queries of a call:
    reads = Reads(token_order=True, key_order=True, own_key=True)
    shared_by_layers = False

    def __init__(
        self,
        dim: int,
        *,
        num_kv_heads: int,
        head_dim: int,
        rank: int | None = 16,
        taps: int | None = 4,
        activation: bool = False,
        bias: bool = False,
        gate: Gate | None = None,
        gate_rank: int = 16,
        base: float = 500_000.0,
        temperature: float = 1.0,
        learned: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_whole("head_dim", head_dim)
        check_heads("num_kv_heads", num_kv_heads)
        if head_dim % 2 or dim % num_kv_heads:
            raise ValueError(
                f"head_dim must be even and num_kv_heads = {num_kv_heads} divide dim = {dim}, got {head_dim}"
            )
        for name, size in (("rank", rank), ("taps", taps)):
            if size is not None:
                check_whole(name, size)
        check_whole("gate_rank", gate_rank)
        check_number("temperature", temperature, above=0)
        if gate is not None:
            check_choice("gate", gate, get_args(Gate))
        self.dim, self.head_dim, self.num_kv_heads, self.pairs = dim, head_dim, num_kv_heads, head_dim // 2
        self.rank, self.gate, self.base = rank, gate, base
        self._shares, self._kept = num_kv_heads, slice(0, num_kv_heads)  # of x, one a key head of the whole encoding
        self.span, self.activation = taps, check_flag("activation", activation)
        self.scope = Scope(by_rows=False, look_back=1 if taps is None else taps - 1)
        self._temperatures = tuple(temperature * t for t in _temperatures(head_dim, base))
        width, share = num_kv_heads * self.pairs, dim // num_kv_heads
        shape = (num_kv_heads, share, self.pairs) if rank is None else (width, rank)
        self.down = None if rank is None else nn.Parameter(torch.empty(rank, dim))
        self.up = nn.Parameter(torch.empty(shape))
        self.lengths = nn.Parameter(torch.empty(num_kv_heads)) if rank is None else None
        self.taps = None if taps is None else nn.Parameter(torch.empty(taps, width))  # tap s: the token s steps back
        self.bias = nn.Parameter(torch.empty(num_kv_heads, self.pairs)) if check_flag("bias", bias) else None
        gates = {None: 0, "head": num_kv_heads, "pair": width}[gate]
        self.gate_down = nn.Parameter(torch.empty(gate_rank, dim)) if gate == "pair" else None
        self.gate_up = nn.Parameter(torch.empty(gates, gate_rank if gate == "pair" else dim)) if gates else None
        self.gate_bias = nn.Parameter(torch.empty(gates)) if gates else None
        learned = check_flag("learned", learned)
        self.temperature = nn.Parameter(torch.empty(self.pairs)) if learned else None
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Projections and taps as PyTorch's linear layers and convolutions; lengths 1; biases 0; temperatures."""
        for matrix in (self.down, self.up, self.gate_down, self.gate_up):
            if matrix is not None:
                nn.init.uniform_(matrix, -(matrix.shape[-1] ** -0.5), matrix.shape[-1] ** -0.5)
        if self.taps is not None:
            nn.init.uniform_(self.taps, -(len(self.taps) ** -0.5), len(self.taps) ** -0.5)
        for shift in (self.bias, self.gate_bias):
            if shift is not None:
                nn.init.zeros_(shift)
        if self.lengths is not None:
            nn.init.ones_(self.lengths)
        if self.temperature is not None:
            assign(self.temperature, torch.tensor(self._temperatures, dtype=torch.float64, device="cpu"))

    def head_axes(self) -> dict[str, HeadAxis]:
        axes = {"taps": HeadAxis(1, of_keys=True)} | dict.fromkeys(
            ("up", "lengths", "bias", "gate_up", "gate_bias"), KEYS
        )
        return {name: axis for name, axis in axes.items() if getattr(self, name) is not None}

    def _keep_heads(self, share: HeadShare) -> None:
        self._kept = share.key_heads(self.num_kv_heads)
        super()._keep_heads(share)

    def token_state(self, x: Tensor) -> Tensor | None:
        """Raw angles, gates end to end, ``(batch, num_kv_heads, tokens, pairs [+ 1 | + pairs])``, float32 or more."""
        if x.ndim != 3 or x.shape[-1] != self.dim:
            raise ValueError(f"x must be (batch, tokens, dim = {self.dim}), got {tuple(x.shape)}")
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        shares = wide.unflatten(-1, (self._shares, -1))  # type: ignore[no-untyped-call]
        shares = shares * (shares.square().sum(-1, keepdim=True) + _EPS).rsqrt()
        flat = shares.flatten(2)
        if self.down is not None:
            raw = wide_linear(wide_linear(flat, self.down), self.up)
        else:
            assert self.lengths is not None
            unit = F.normalize(self.up.to(wide.dtype), dim=-2) * self.lengths.to(wide.dtype).view(-1, 1, 1)
            shares = shares[:, :, self._kept]
            raw = torch.cat([wide_linear(s, m.mT) for s, m in zip(shares.unbind(2), unit.unbind(0), strict=True)], -1)
        parts = [raw.unflatten(-1, (self.num_kv_heads, -1))]  # type: ignore[no-untyped-call]
        if self.gate_up is not None:
            seen = flat if self.gate_down is None else wide_linear(flat, self.gate_down)
            gates = wide_linear(seen, self.gate_up, self.gate_bias).sigmoid()
            parts.append(gates.unflatten(-1, (self.num_kv_heads, -1)))  # type: ignore[no-untyped-call]
        return torch.cat(parts, -1).transpose(1, 2)

    def angles(self, context: Context) -> Tensor:
        """Angles of all keys, ``(batch, num_kv_heads, keys, pairs)``, radians, in float64 where there is one."""
        gates = {None: 0, "head": 1, "pair": self.pairs}[self.gate]
        wide = float64_if_supported(context.k.device)
        state = token_state_of("SelectiveRoPE", context, (self.num_kv_heads, self.pairs + gates), wide)
        raw = state[..., : self.pairs]
        used, previous = context.sequence.token_order or single_sequence(raw.shape[2], raw.device)
        if self.taps is None:
            phi = raw - _stepped(raw, previous)
        else:
            taps = self.taps.to(wide).view(len(self.taps), self.num_kv_heads, 1, self.pairs)
            phi, back = raw * taps[0], raw
            for tap in taps[1:]:
                back = _stepped(back, previous)
                phi = phi + back * tap
            phi = F.silu(phi) if self.activation else phi
        if self.bias is not None:
            phi = phi + self.bias.to(wide).exp().unsqueeze(-2)
        if gates:
            phi = phi * state[..., self.pairs :]
        if used is not None:
            phi = torch.where(used[:, None, :, None], phi, 0.0)
        if self.temperature is None:
            return phi.cumsum(-2) * constant(self._temperatures, raw.dtype, raw.device)
        return phi.cumsum(-2) * self.temperature.to(wide)

    def absorb_into_qk(self, context: Context) -> tuple[Tensor, Tensor]:
        q, k = context.q, context.k
        check_width(self, self.head_dim, q)
        check_key_heads(self, self.num_kv_heads, k)
        return rotate_by_angles(q, k, self.angles(context))

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        return replace_products(scores, context, *self.absorb_into_qk(context))

    def extra_repr(self) -> str:
        shape = f"{self.dim}, head_dim={self.head_dim}, num_kv_heads={self.num_kv_heads}"
        return f"{shape}, rank={self.rank}, taps={self.span}, gate={self.gate!r}"


def _temperatures(head_dim: int, base: float) -> list[float]:
    """Of each pair, the largest 1."""
    check_number("base", base, above=0)
    if base >= 1:
        check_base(base)
        return geometric(head_dim, base)
    pairs = head_dim // 2
    tangents = [math.tan(base * math.pi / 2 * j / max(1, pairs - 1)) for j in range(pairs)]
    return [t / (tangents[-1] or 1.0) for t in tangents]


def _stepped(x: Tensor, before: Tensor) -> Tensor:
    """What the token before each one has, ``(batch, heads, keys, width)``; 0 where a text begins."""
    rows = (before + 1)[:, None, :, None].expand(*x.shape)
    return F.pad(x, (0, 0, 1, 0)).gather(2, rows)


ENTRY = Entry(
    name="selective_rope",
    encoding=SelectiveRoPE,
    title="Selective RoPE: rotation by the sum of angles that tokens choose",
    formula="s_ij = scale · R(angle_i)q_i · R(angle_j)k_j,  angle_t = temperature ⊙ Σ_{l ≤ t} phi(x_l)",
    source="Movahedi et al., arXiv 2511.17388",
    parameters="rank × (dim + num_kv_heads · head_dim/2) + 4 × num_kv_heads · head_dim/2 per layer",
    cost="a small projection, a running sum, a rotation of q and all keys; head_dim/2 numbers per key in the cache",
    past_training="sums of angles keep growing, modulo a full rotation",
    reads="content",
    extension="none of its own",
    used_in="its paper's own models; no other is known to us",
    avoid="where keys are not in the order of the text: angles are sums over the tokens so far",
    defaults=a_key_head_per_query_head,
    exempt=IN_ORDER,
)
