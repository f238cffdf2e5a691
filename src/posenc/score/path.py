"""PaTH: every token between a query and a key reflects what they share; a position is the product of reflections.

    H_t = I − beta_t · w_t w_tᵀ                      beta_t in (0, 2), |w_t| = 1: from a projection to a reflection
    A_ij = q_i · (H_i H_{i−1} … H_{j+1}) · k_j
    s_ij ← s_ij + scale · (A_ij − q_i·k_j)
    w_t = normalised(silu(Σ_s conv_s ⊙ w̃_{t−s})),   w̃_t = up · down · x_t,   beta_t = 2 · sigmoid(beta_weight · x_t + b)

x the layer's input; one w and beta per key head, shared by the query heads of its group. Tokens count in the order of
their indices, which must be that of the sequence; positions are not read. Queries are the last of the keys, of the same
documents. Tokens that no query of the call may see (padding) reflect nothing; a mask must not hide others that lie
between visible ones (attention sinks, by a mask). A window hides keys and changes no w: their convolution reads the
text before it.
Defined for causal attention: later keys are met without any reflection. Past the training length nothing but longer
products appears. It takes the place of a rotation: beside RoPE nothing is relative.
PaTH-FoX is a list, ``[PaTH(...), ForgetGate(dim, num_heads=heads, scaled=True)]``; its authors have the gates inside
the scale.
The definition builds scores as a matrix; the path "tiled" goes by blocks, in memory that grows with the length.
Source: Yang et al., PaTH Attention: Position Encoding via Accumulating Householder Transformations, arXiv 2505.16381,
    sections on the encoding and on products by the UT transform; projections as in the authors' layer.
Checked against: the authors' naive_path_attn (flash-linear-attention, fla/ops/path_attn) for given w and beta.
Departs from the source: w and beta are float32, where theirs rounds w to float16. A cache keeps k, w̃ and beta, and
    every call reflects anew, where theirs rewrites the cached keys step by step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_heads, check_number, check_table, check_whole
from posenc.encoding import Context, Reads, Scope, ScoreEncoding, softcapped
from posenc.entry import IN_ORDER, Entry, a_key_head_per_query_head
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import KEYS, HeadAxis
from posenc.heads import by_key_head
from posenc.score._inputs import check_key_heads, check_width, products, token_state_of, wide_linear
from posenc.structure import Reflections, single_sequence
from posenc.tracing import tracing

_EPS = 1e-6  # added to |w|², as in the authors' l2_norm
_BLOCK = 64  # tokens whose reflections are solved for together


class PaTH(ScoreEncoding):
    """Accumulated Householder products. It needs the layer's input: ``attention(..., x=x)``.

    Args:
        dim: width of the layer's input.
        num_kv_heads: key heads.
        head_dim: width of a query head.
        rank: of the projection to w; the authors' 32 is for as many key heads as query heads. None: a full matrix, as
            they have it for grouped queries.
        conv: tokens that the short convolution over w̃ spans, the own one included; 1: the own one alone.
        init_std: standard deviation of the initial projections.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: at construction for sizes below 1; at a call for another ``head_dim``, without x or token_states, or
            for x of another width.

    >>> from posenc import attention
    >>> x, (q, k, v) = torch.randn(1, 16, 512), torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [PaTH(512, head_dim=64, num_kv_heads=8)], x=x).shape
    torch.Size([1, 8, 16, 64])
    """

    axes = 0
    scope = Scope(by_rows=False)  # which tokens reflect nothing is found from all queries of a call:
    reads = Reads(token_order=True, key_order=True, own_key=True)
    shared_by_layers = False

    def __init__(
        self,
        dim: int,
        *,
        num_kv_heads: int,
        head_dim: int,
        rank: int | None = 32,
        conv: int = 3,
        init_std: float = 0.02,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_whole("head_dim", head_dim)
        check_heads("num_kv_heads", num_kv_heads)
        check_whole("conv", conv, most=1024)
        if rank is not None:
            check_whole("rank", rank)
        check_number("init_std", init_std, least=0)
        check_table("num_kv_heads, head_dim and rank or dim", num_kv_heads, head_dim, dim if rank is None else rank)
        check_table("num_kv_heads, head_dim and conv", num_kv_heads, head_dim, conv)
        self.dim, self.head_dim, self.num_kv_heads = dim, head_dim, num_kv_heads
        self.rank, self.conv, self.init_std = rank, conv, init_std
        self.scope = Scope(by_rows=False, look_back=max(0, conv - 2))  # by the reflection of the oldest key but one
        width = num_kv_heads * head_dim
        self.down = None if rank is None else nn.Parameter(torch.empty(rank, dim))
        self.up = nn.Parameter(torch.empty(width, dim if rank is None else rank))
        self.taps = nn.Parameter(torch.empty(conv, width))  # tap s meets the token s steps back
        self.beta_weight = nn.Parameter(torch.empty(num_kv_heads, dim))
        self.beta_bias = nn.Parameter(torch.empty(num_kv_heads))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Projections drawn anew, normal; the convolution as PyTorch's; beta around 1."""
        for weight in (self.down, self.up, self.beta_weight):
            if weight is not None:
                nn.init.normal_(weight, std=self.init_std)
        nn.init.uniform_(self.taps, -(self.conv**-0.5), self.conv**-0.5)
        nn.init.zeros_(self.beta_bias)

    def head_axes(self) -> dict[str, HeadAxis]:
        return {"up": KEYS, "taps": HeadAxis(1, of_keys=True), "beta_weight": KEYS, "beta_bias": KEYS}

    def token_state(self, x: Tensor) -> Tensor | None:
        """w̃ and beta end to end, ``(batch, num_kv_heads, tokens, head_dim + 1)``, in float32 or better."""
        beta = 2 * torch.sigmoid(wide_linear(x, self.beta_weight, self.beta_bias))
        raw = wide_linear(x if self.down is None else wide_linear(x, self.down), self.up)
        together = torch.cat([raw.view(*x.shape[:2], self.num_kv_heads, -1), beta.unsqueeze(-1)], -1)
        return together.transpose(1, 2)

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        w, beta = self.directions(context, scores.dtype)
        missed = context.scale * reflected(context.q, context.k, w, beta)
        if context.softcap is None:
            return scores - missed
        before = products(context)
        return scores + (softcapped(before - missed, context.softcap) - softcapped(before, context.softcap))

    def structure(self, context: Context, *, future: bool) -> tuple[Reflections] | None:
        if future:
            return None
        return (Reflections(*self.directions(context, torch.promote_types(context.q.dtype, torch.float32))),)

    def directions(self, context: Context, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """w ``(batch, num_kv_heads, keys, head_dim)`` and beta ``(batch, num_kv_heads, keys)`` of a call's keys."""
        check_width(self, self.head_dim, context.q)
        check_key_heads(self, self.num_kv_heads, context.k)
        token_states = token_state_of("PaTH", context, (self.num_kv_heads, self.head_dim + 1), dtype)
        order = context.sequence.token_order or single_sequence(token_states.shape[2], token_states.device)
        raw, beta = token_states[..., :-1], token_states[..., -1]
        if order.used is not None:
            beta = torch.where(order.used.unsqueeze(1), beta, 0.0)
        w = self._convolved(raw, order.previous)
        w = w * (w.square().sum(-1, keepdim=True) + _EPS).rsqrt()
        if context.k.shape[1] != self.num_kv_heads:  # keys were repeated for their query heads
            w, beta = (t.repeat_interleave(context.k.shape[1] // self.num_kv_heads, 1) for t in (w, beta))
        return w, beta

    def _convolved(self, raw: Tensor, previous: Tensor) -> Tensor:
        """silu of the short convolution over w̃, each token's predecessor being ``previous`` (batch | 1, keys)."""
        taps = self.taps.to(raw.dtype).view(self.conv, self.num_kv_heads, 1, self.head_dim)
        none_before = F.pad(raw, (0, 0, 1, 0))  # row 0 is nothing, row t + 1 is token t
        total, back = raw * taps[0], torch.arange(raw.shape[2], device=raw.device)[None] + 1
        for step in range(1, self.conv):
            # one step back for all; a token without a predecessor (−1) comes to row 0, and stays there
            back = F.pad(previous + 1, (1, 0)).expand(len(previous), -1).gather(1, back.expand(len(previous), -1))
            rows = back[:, None, :, None].expand(*raw.shape[:2], -1, self.head_dim)
            total = total + none_before.gather(2, rows) * taps[step]
        return F.silu(total)

    def extra_repr(self) -> str:
        sizes = f"{self.dim}, head_dim={self.head_dim}, num_kv_heads={self.num_kv_heads}"
        return f"{sizes}, rank={self.rank}, conv={self.conv}"


def reflected(q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> Tensor:
    """q_i·k_j − A_ij, ``(batch, heads, queries, keys)``: what the reflections after key j up to query i take away.

    A query that has met tokens i, i − 1, …, l + 1 gives up c_il = beta_l · w_l·(q_i − Σ_{m > l} c_im w_m) to token l: a
    triangular system. Key j then misses Σ_{l > j} c_il · w_l·k_j. Keys come in blocks, the newest first, and a query
    goes on from each with what is left of it: so the systems are as small as a block, whatever the length.

    Args:
        q: ``(batch, heads, queries, head_dim)``, of the last keys.
        k, w: ``(batch, num_kv_heads, keys, head_dim)``, w of length 1.
        beta: ``(batch, num_kv_heads, keys)``, in 0 … 2.

    Raises:
        ValueError: for shapes that do not fit.

    >>> q, k, w = torch.randn(3, 1, 2, 6, 4)
    >>> scores = (q @ k.mT - reflected(q, k, F.normalize(w, dim=-1), torch.full((1, 2, 6), 1.5))) * 4**-0.5
    >>> scores.shape
    torch.Size([1, 2, 6, 6])
    """
    _check_shapes(q, k, w, beta)
    queries, keys = q.shape[2], k.shape[2]
    steps = beta.unsqueeze(-1) * w
    if tracing():  # one block, for a graph of any length
        return _block(q, q, k, w, steps, keys - queries)[0]
    left, taken = q, list[Tensor]()
    for start in reversed(range(0, keys, _BLOCK)):
        first = max(0, start - (keys - queries))  # queries before it have met nothing of the block
        own_key = first + keys - queries - start
        k_b, w_b, steps_b = (t[:, :, start : start + _BLOCK] for t in (k, w, steps))
        missed, rest = _block(q[:, :, first:], left[:, :, first:], k_b, w_b, steps_b, own_key)
        taken.append(F.pad(missed, (0, 0, first, 0)))
        left = torch.cat([left[:, :, :first], rest], -2)
    return torch.cat(taken[::-1], -1)


def _check_shapes(q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> None:
    """Raise a ValueError unless the four fit together."""
    for name, tensor, shape in (("w", w, k.shape), ("beta", beta, k.shape[:3])):
        if tensor.shape != shape:
            raise ValueError(f"{name} must be {tuple(shape)}, as k is {tuple(k.shape)}, got {tuple(tensor.shape)}")
    if q.ndim != 4 or q.shape[1] % k.shape[1]:
        raise ValueError(f"q must be queries with heads in whole groups, got {tuple(q.shape)}, k {tuple(k.shape)}")


def _block(q: Tensor, left: Tensor, k: Tensor, w: Tensor, steps: Tensor, own_key: int) -> tuple[Tensor, Tensor]:
    """What the keys of one block miss, ``(batch, heads, queries, tokens)``, and what is left of queries.

    Args:
        q, left: queries before any reflection and after those of newer blocks, ``(batch, heads, queries, head_dim)``.
        k, w, steps: of the block's tokens, ``(batch, num_kv_heads, tokens, head_dim)``; steps is beta · w.
        own_key: index in the block of the first query's own token; past its end if that comes later.
    """
    queries, tokens = left.shape[2], w.shape[2]
    # a query is reflected by its own token and all older ones, a key only by those after it: hence the tril(-1) below
    met = torch.arange(tokens, device=q.device) <= (torch.arange(queries, device=q.device) + own_key)[:, None]
    solved = _solved(w @ steps.mT, torch.where(met, by_key_head(left, steps.mT), 0.0))
    # q − left is what newer blocks took of the query, which every key of this one misses
    missed = by_key_head(solved, (w @ k.mT).tril(-1)) + by_key_head(q - left, k.mT)
    return missed, left - by_key_head(solved, w)


def _solved(system: Tensor, alone: Tensor) -> Tensor:
    """c of c · (1 + the lower triangle of ``system`` (batch, num_kv_heads, tokens, tokens)) = ``alone``."""
    batch, heads, queries, tokens = alone.shape
    group = heads // system.shape[1]
    if tracing():  # as in `by_key_head`
        grouped, system = alone.view(batch, -1, group, queries, tokens), system.unsqueeze(2)
    else:
        grouped = alone.reshape(batch, -1, group * queries, tokens)
    solved: Tensor = torch.linalg.solve_triangular(system, grouped, upper=False, left=False, unitriangular=True)
    return solved.reshape(alone.shape)


ENTRY = Entry(
    name="path",
    encoding=PaTH,
    title="PaTH: accumulated Householder reflections",
    formula="s_ij = scale · q_i · H_i H_{i−1} … H_{j+1} · k_j,  H_t = I − beta_t w_t w_tᵀ",
    source="Yang et al., arXiv 2505.16381",
    parameters="rank × (dim + num_kv_heads · head_dim) + (dim + 1 + 3 · head_dim) × num_kv_heads per layer",
    cost="a second product of queries with every 128 keys; head_dim + 1 numbers per key head and token cached",
    past_training="longer products of the same reflections",
    reads="content",
    extension="none of its own; its paper joins it with forget gates",
    used_in="its paper's own models; no other is known to us",
    avoid="next to a rotation: reflections of rotated vectors depend on no distance",
    defaults=a_key_head_per_query_head,
    exempt=IN_ORDER,
)
