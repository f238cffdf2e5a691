"""FoX: the forget gates of recurrent networks, for softmax attention: each token decides how much of the past stays.

    log f_l = logsigmoid(weight · x_l + bias)           kind "data"; per head
    log f_l = logsigmoid(bias)                          kind "bias"
    log f_l = −1 / T                                    kind "fixed", T from decay_time: ALiBi with slopes 1/T
    D_ij = Σ_{j < l ≤ i} log f_l
    D_ij = Σ_{i < l ≤ j} log f′_l  for j > i            kind "bidirectional": further gates for keys after the query
    D_ij = Σ_{j ≤ l < i} logsigmoid(q̃_i · k̃_l / √gate_dim)   kind "rows": q̃, k̃ small projections of x
    s_ij ← s_ij + D_ij                                  scaled: + scale · D_ij

x the layer's input; D_ii = 0. l runs over the keys that query i sees, in the order of their indices, which must be that
of the text (positions are not read: no shuffled keys). Hidden keys have no gates, so padding, packing and evicted keys
change nothing. Defined for causal attention; without a causal mask l runs to the last key of the sequence, and later
keys are preferred; kind "bidirectional" is for that. Past the training length far tokens keep decaying; nothing unseen
appears. To combine it, use a list: ``[RoPE(64), ForgetGate(512, num_heads=8)]``. Data-dependent ALiBi, by name
"data_alibi", is this gate with ``bias_init=5``: a fresh model forgets 1/150 of the past with each token, FoX a half.
Source: Lin et al., Forgetting Transformer: Softmax Attention with a Forget Gate, arXiv 2503.02130, section on
    forgetting attention; initial values and decay times as in the authors' code (zhixuan-lin/forgetting-transformer).
    CABLE is this gate with weight and bias negated; Veisi et al., Context-aware Biases for Length Extrapolation, arXiv
    2503.08067. Kinds "bidirectional" and "rows": x-transformers' DataDependentAlibi and PerRowDataDependentAlibi.
Checked against: the authors' reference of forgetting_attention and their ForgettingAttentionLayer (data and fixed
    gates, decoding, gates so strong that running sums pass −100), and CABLE's CausalSelfAttention; values and
    gradients. x-transformers' two classes; biases, weights and results.
Departs from the source: sums run per query from the newest key back, not from the start of the sequence, where float32
    loses 1e-2 at 131,072 tokens. Where a mask hides tokens between visible ones (attention sinks beside a window), the
    hidden ones forget nothing; the authors' code knows causal masks and left padding only. decay_time is their
    decay_time_min and decay_time_max; `scaled` is how PaTH's authors combine the two. x-transformers has the gates of
    the current call's tokens alone, counts hidden keys, and draws its weights uniformly: "data_alibi" draws normal
    ones of the same variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_flag, check_heads, check_number, check_table, check_whole
from posenc.constants import constant
from posenc.encoding import Context, Reads, ScoreEncoding
from posenc.entry import IN_ORDER, Entry, Shape
from posenc.factory_kwargs import Device, assign, place_parameters
from posenc.head_shares import HeadAxis, HeadShare
from posenc.score._inputs import checked_token_state, log_gates, own_index, sum_of_later_gates, wide_linear
from posenc.structure import Decay

Kind = Literal["data", "bias", "fixed", "bidirectional", "rows"]


class ForgetGate(ScoreEncoding):
    """Let a gate per head and token decide how much of the past stays.

    Kinds that depend on tokens need the layer's input: ``attention(..., x=x)``.

    Args:
        dim: width of the layer's input.
        num_heads: query heads.
        kind: ``"data"`` gates depend on the token, ``"bias"`` are learned numbers, ``"fixed"`` are given ones;
            ``"bidirectional"`` has the gates of "data" and further ones for keys after the query, for
            ``causal=False``; ``"rows"`` reads query and key, causal only. Queries are the last of the keys in both.
        decay_time: tokens after which a head has forgotten all but 1/e, from the first head's to the last one's, spaced
            evenly in their logarithms. Where "bias" starts (default: gates of 1/2) and where "fixed" stays; not for
            "data", whose gates start around 1/2.
        init_std: standard deviation of the initial weights.
        bias_init: initial bias, where there is one and no ``decay_time``: 0 for gates of 1/2.
        post_log_scale: factor on the logarithms of all gates.
        gate_dim: width of the small queries and keys of "rows".
        scaled: whether D carries attention's scale as q·k does.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: at construction for an unknown kind, sizes below 1, or decay times that are missing or out of place;
            at a call without x or token_states, or for x of another width.

    >>> from posenc import attention
    >>> x, (q, k, v) = torch.randn(1, 16, 512), torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [ForgetGate(512, num_heads=8)], x=x).shape
    torch.Size([1, 8, 16, 64])
    >>> ForgetGate(512, num_heads=2, kind="fixed", decay_time=(1, 64))
    ForgetGate(512, num_heads=2, kind='fixed', decay_time=(1, 64))
    """

    axes = 0
    shared_by_layers = False

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        kind: Kind = "data",
        decay_time: tuple[float, float] | None = None,
        init_std: float = 0.02,
        bias_init: float = 0.0,
        post_log_scale: float = 1.0,
        gate_dim: int = 8,
        scaled: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_heads("num_heads", num_heads)
        check_number("init_std", init_std, least=0)
        check_number("bias_init", bias_init)
        check_number("post_log_scale", post_log_scale)
        check_whole("gate_dim", gate_dim)
        if kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {get_args(Kind)}, got {kind!r}")
        if kind not in ("bias", "fixed") and decay_time is not None:
            raise ValueError(f"decay_time is for kind 'bias' or 'fixed', got {decay_time} for {kind!r}")
        if kind == "fixed" and decay_time is None:
            raise ValueError("decay_time must be given for kind 'fixed': tokens of the first and of the last head")
        if decay_time is not None:
            if not isinstance(decay_time, Sequence) or len(decay_time) != 2:
                raise ValueError(f"decay_time must be two positive numbers of tokens, got {decay_time!r}")
            for time in decay_time:
                check_number("decay_time", time, above=0)
        self.dim, self.num_heads, self.kind = dim, num_heads, kind
        self.scaled = check_flag("scaled", scaled)
        self.decay_time, self.init_std, self.bias_init = decay_time, init_std, float(bias_init)
        self.post_log_scale, self.gate_dim = float(post_log_scale), gate_dim
        self.causal_only = kind == "rows"
        self.reads = Reads(rotated=False, key_order=True, own_key=kind in ("bidirectional", "rows"))
        rows = {"bidirectional": 2, "rows": 2 * gate_dim}.get(kind, 1) * num_heads
        check_table("num_heads, gate_dim and dim", rows, dim)
        self._decay_times: tuple[float, ...] | None = None
        if decay_time is not None:
            first, last = (math.log(t) for t in decay_time)
            self._decay_times = tuple(
                math.exp(first + (last - first) * head / max(1, num_heads - 1)) for head in range(num_heads)
            )
        self.weight = None if kind in ("bias", "fixed") else nn.Parameter(torch.empty(rows, dim))
        self.bias = None if kind in ("fixed", "rows") else nn.Parameter(torch.empty(rows))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Weights drawn anew, normal; biases back to their first value, or to where gates have their decay times."""
        if self.weight is not None:
            nn.init.normal_(self.weight, std=self.init_std)
        if self.bias is not None:
            nn.init.constant_(self.bias, self.bias_init)
            if self.decay_time is not None:
                biases = [-1 / t - math.log(-math.expm1(-1 / t)) for t in self.decay_times()]  # logsigmoid(bias) = −1/T
                assign(self.bias, torch.tensor(biases, dtype=self.bias.dtype, device="cpu"))

    def decay_times(self) -> list[float]:
        """T of each head, tokens, as the constructor was told."""
        if self._decay_times is None:
            raise ValueError("decay_time was not given")
        return list(self._decay_times)

    def head_axes(self) -> dict[str, HeadAxis]:
        repeats = 2 if self.kind in ("bidirectional", "rows") else 1  # past and future, or queries and keys
        return dict.fromkeys((name for name, _ in self.named_parameters()), HeadAxis(repeats=repeats))

    def _keep_heads(self, share: HeadShare) -> None:
        super()._keep_heads(share)
        if self._decay_times is not None:
            self._decay_times = self._decay_times[share.heads]

    def token_state(self, x: Tensor) -> Tensor | None:
        """Of each token, in float32 or better: log gates ``(batch, heads, tokens)``, where they depend on x.

        With a last axis for the gates of both directions, or for q̃ and k̃ end to end.
        """
        if self.weight is None:
            return None
        if self.kind == "data":
            gates = log_gates(x, self.weight, self.bias)
            return gates if self.post_log_scale == 1 else gates * self.post_log_scale
        projected = wide_linear(x, self.weight, self.bias)
        parts = projected.view(*x.shape[:2], 2, self.num_heads, -1).permute(0, 3, 1, 2, 4).flatten(3)
        return parts if self.kind == "rows" else F.logsigmoid(parts) * self.post_log_scale

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        if self.kind == "rows":
            decay = self._decay_by_rows(scores, context)
        elif self.kind == "bidirectional":
            decay = self._decay_both_ways(scores, context)
        else:
            gates = self._log_gates(context.token_state, context.k, scores.dtype)
            decay = sum_of_later_gates(gates.unsqueeze(-2), context.mask)
        return scores + (decay * context.scale if self.scaled else decay)

    def structure(self, context: Context, *, future: bool) -> tuple[Decay] | None:
        if self.kind in ("rows", "bidirectional"):
            return None
        gates = self._log_gates(context.token_state, context.k, torch.promote_types(context.q.dtype, torch.float32))
        return (Decay(gates * context.scale if self.scaled else gates),)

    def _log_gates(self, token_states: Tensor | None, k: Tensor, dtype: torch.dtype) -> Tensor:
        """log f of the keys, ``(batch | 1, heads, keys)``."""
        if self.kind == "data":
            return checked_token_state("ForgetGate", token_states, k, (self.num_heads,), dtype)
        if self.bias is None:
            gates = constant(tuple(-1 / t for t in self.decay_times()), dtype, k.device)
        else:
            gates = F.logsigmoid(self.bias.to(dtype))
        return (gates * self.post_log_scale).view(1, -1, 1).expand(1, -1, k.shape[2])

    def _decay_both_ways(self, scores: Tensor, context: Context) -> Tensor:
        gates = checked_token_state("ForgetGate", context.token_state, context.k, (self.num_heads, 2), scores.dtype)
        own_key = own_index(scores.shape[-2], gates).unsqueeze(-1)
        keys = torch.arange(scores.shape[-1], device=scores.device)
        before, after = keys <= own_key, keys > own_key
        if context.mask is not None:
            before, after = before & context.mask, after & context.mask
        past, future = gates.mT.unsqueeze(-2).unbind(2)  # (batch, heads, 1, keys)
        # the own token's gate forgets what lies before it; of the future each token forgets what lies behind it, so
        # that sum includes key j itself
        return torch.where(keys < own_key, sum_of_later_gates(past, before), torch.where(after, future, 0.0).cumsum(-1))

    def _decay_by_rows(self, scores: Tensor, context: Context) -> Tensor:
        """Queries before the first key, which attend to none, take any numbers."""
        sizes = (self.num_heads, 2 * self.gate_dim)
        projected = checked_token_state("ForgetGate", context.token_state, context.k, sizes, scores.dtype)
        own_key = own_index(scores.shape[-2], projected).unsqueeze(-1)
        seen = torch.arange(scores.shape[-1], device=scores.device) < own_key
        seen = seen if context.mask is None else seen & context.mask
        all_q, k = projected.chunk(2, -1)
        q = all_q.index_select(2, own_key.flatten().clamp(min=0))
        gates = F.logsigmoid(q @ k.mT * self.gate_dim**-0.5) * self.post_log_scale
        # no structure: every query has gates of its own, so the sums are no difference of two running sums
        return torch.where(seen, gates, 0.0).flip(-1).cumsum(-1).flip(-1)

    def extra_repr(self) -> str:
        extra = "" if self.decay_time is None else f", decay_time=({', '.join(f'{t:g}' for t in self.decay_time)})"
        extra += f", bias_init={self.bias_init:g}" if self.bias_init else ""
        extra += f", post_log_scale={self.post_log_scale:g}" if self.post_log_scale != 1 else ""
        extra += f", gate_dim={self.gate_dim}" if self.kind == "rows" else ""
        return (
            f"{self.dim}, num_heads={self.num_heads}, kind={self.kind!r}{extra}{', scaled=True' if self.scaled else ''}"
        )


def _remembering(shape: Shape) -> dict[str, object]:
    """Gates near 1, and weights as PyTorch's linear layers have them."""
    dim = shape.get("dim")
    return {"bias_init": 5.0} | ({"init_std": (3 * dim) ** -0.5} if isinstance(dim, int) and dim > 0 else {})


ENTRIES = (
    Entry(
        name="fox",
        encoding=ForgetGate,
        title="FoX: the forget gates of the Forgetting Transformer",
        formula="s_ij ← s_ij + Σ_{j < l ≤ i} log f_l,  f_l = sigmoid(weight · x_l + bias)",
        source="Lin et al., arXiv 2503.02130; with the opposite sign CABLE, Veisi et al., arXiv 2503.08067",
        parameters="(dim + 1) × heads per layer",
        cost="one small projection, a running sum over all logits; one number per head and token in the cache",
        past_training="logits keep decaying with distance; nothing new appears",
        reads="content",
        extension="none needed by its definition",
        used_in="its paper's own models; no other is known to us",
        avoid="where only queries, keys and values are available: gates need the layer's input",
        exempt=IN_ORDER,
    ),
    Entry(
        name="data_alibi",
        encoding=ForgetGate,
        title="Data-dependent ALiBi",
        formula="s_ij ← s_ij + Σ_{j < l ≤ i} log f_l · post_log_scale, or other gates for later keys",
        source="x-transformers, after Lin et al., arXiv 2503.02130",
        parameters="(dim + 1) × heads per layer, twice that in both directions; 2 × gate_dim × dim × heads per query",
        cost="one small projection, a running sum over all logits; a product of small queries and keys for kind 'rows'",
        past_training="logits keep decaying with distance; nothing new appears",
        reads="content",
        extension="none needed by its definition",
        used_in="none known to us; a part of x-transformers",
        avoid="where only queries, keys and values are available: gates need the layer's input",
        defaults=_remembering,
        exempt=IN_ORDER,
    ),
)
