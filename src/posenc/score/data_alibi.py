"""Data-dependent ALiBi: distances whose steps the tokens choose, toward the past, in both directions, or per query.

    log f_l = logsigmoid(weight · x_l + bias) · post_log_scale
    s_ij ← s_ij + Σ_{j < l ≤ i} log f_l                              form "causal", and "bidirectional" for j < i
    s_ij ← s_ij + Σ_{i < l ≤ j} log f′_l                             "bidirectional" for j > i: gates of their own
    s_ij ← s_ij + Σ_{j ≤ l < i} log g_il                             form "rows"
    log g_il = logsigmoid(q̃_i · k̃_l / √gate_dim) · post_log_scale    q̃, k̃ = small projections of x

x the layer's input; one gate per query head. l runs over the keys that query i sees, in the order of their indices,
which must be that of the sequence; hidden keys count for nothing. Queries are the last of the keys. Gates start near 1
(bias 5): a fresh model forgets 1/150 of the past with each token, where FoX forgets a half. Past the training length
far tokens fade on.
Source: x-transformers' DataDependentAlibi and PerRowDataDependentAlibi, after Lin et al., Forgetting Transformer,
    arXiv 2503.02130, section on forgetting attention; the forms "rows" and "bidirectional" are x-transformers' own.
Checked against: x-transformers' two classes; biases, weights and results.
Departs from the source: sums run from near to far per query, which float32 represents at any length; decoding with a
    cache works, where the source has the gates of the current call's tokens alone; hidden keys do not count, which it
    counts.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_heads, check_number, check_table, check_whole
from posenc.encoding import Context, Reads, ScoreEncoding
from posenc.entry import IN_ORDER, Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import HeadAxis
from posenc.score._inputs import own_index, sum_of_later_gates, token_state_of, wide_linear
from posenc.structure import Decay

Form = Literal["causal", "bidirectional", "rows"]


class DataDependentALiBi(ScoreEncoding):
    """Data-dependent ALiBi. It needs the layer's input: ``attention(..., x=x)``.

    Args:
        dim: width of the layer's input.
        num_heads: query heads.
        form: ``"causal"`` is FoX's forget gate; ``"bidirectional"`` has further gates for keys after the query, for
            ``causal=False``; ``"rows"`` asks query and key, causal only.
        bias_init: initial bias of the gates; "rows" has none.
        post_log_scale: factor on the logarithms of all gates.
        gate_dim: width of the small queries and keys of "rows".
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: at construction for an unknown form or sizes below 1; at a call without x or token_states, or for
            x of another width.

    >>> from posenc import attention
    >>> x, (q, k, v) = torch.randn(1, 16, 512), torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [DataDependentALiBi(512, num_heads=8, form="bidirectional")], x=x, causal=False).shape
    torch.Size([1, 8, 16, 64])
    """

    axes = 0
    shared_by_layers = False

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        form: Form = "causal",
        bias_init: float = 5.0,
        post_log_scale: float = 1.0,
        gate_dim: int = 8,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_heads("num_heads", num_heads)
        check_whole("gate_dim", gate_dim)
        check_table("num_heads, gate_dim and dim", 2 * num_heads, gate_dim if form == "rows" else 1, dim)
        check_number("bias_init", bias_init)
        check_number("post_log_scale", post_log_scale)
        if form not in get_args(Form):
            raise ValueError(f"form must be one of {get_args(Form)}, got {form!r}")
        self.dim, self.num_heads, self.form, self.gate_dim = dim, num_heads, form, gate_dim
        self.causal_only = form == "rows"
        self.bias_init, self.post_log_scale = float(bias_init), float(post_log_scale)
        rows = {"causal": num_heads, "bidirectional": 2 * num_heads, "rows": 2 * num_heads * gate_dim}[form]
        self.reads = Reads(rotated=False, key_order=True, own_key=form != "causal")
        self.weight = nn.Parameter(torch.empty(rows, dim))
        self.bias = None if form == "rows" else nn.Parameter(torch.empty(rows))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Weights drawn anew as PyTorch's linear layers; biases back to their first value."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            nn.init.constant_(self.bias, self.bias_init)

    def head_axes(self) -> dict[str, HeadAxis]:
        of_each = HeadAxis(repeats=1 if self.form == "causal" else 2)
        return dict.fromkeys((name for name, _ in self.named_parameters()), of_each)

    def token_state(self, x: Tensor) -> Tensor | None:
        """Of each token, in float32 or better: log gates ``(batch, heads, tokens, 1 | 2)``, or q̃ and k̃ end to end."""
        projected = wide_linear(x, self.weight, self.bias)
        parts = projected.view(*x.shape[:2], 1 if self.form == "causal" else 2, self.num_heads, -1)
        of_heads = parts.permute(0, 3, 1, 2, 4).flatten(3)  # (batch, heads, tokens, parts · width)
        return of_heads if self.form == "rows" else F.logsigmoid(of_heads) * self.post_log_scale

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        width = {"causal": 1, "bidirectional": 2, "rows": 2 * self.gate_dim}[self.form]
        token_states = token_state_of("DataDependentALiBi", context, (self.num_heads, width), scores.dtype)
        if self.form == "causal":
            return scores + sum_of_later_gates(token_states.mT, context.mask)
        own_key = own_index(scores.shape[-2], token_states).unsqueeze(-1)
        keys = torch.arange(scores.shape[-1], device=scores.device)
        if self.form == "rows":
            return scores + self._of_rows(token_states, own_key, keys < own_key, context.mask)
        before, after = keys <= own_key, keys > own_key
        if context.mask is not None:
            before, after = before & context.mask, after & context.mask
        past, future = token_states.mT.unsqueeze(-2).unbind(2)  # (batch, heads, 1, keys)
        return scores + torch.where(
            keys < own_key, sum_of_later_gates(past, before), torch.where(after, future, 0.0).cumsum(-1)
        )

    def fast_form(self, context: Context, *, future: bool) -> tuple[Decay] | None:
        if self.form != "causal":
            return None
        dtype = torch.promote_types(context.q.dtype, torch.float32)
        return (Decay(token_state_of("DataDependentALiBi", context, (self.num_heads, 1), dtype).squeeze(-1)),)

    def _of_rows(self, token_states: Tensor, own_key: Tensor, earlier: Tensor, mask: Tensor | None) -> Tensor:
        """The bias of form "rows"; queries before the first key, which attend to none, take any numbers."""
        of_queries, of_keys = token_states.chunk(2, -1)
        q = of_queries.index_select(2, own_key.flatten().clamp(min=0))
        gates = F.logsigmoid(q @ of_keys.mT * self.gate_dim**-0.5) * self.post_log_scale
        seen = earlier if mask is None else earlier & mask
        return torch.where(seen, gates, 0.0).flip(-1).cumsum(-1).flip(-1)

    def extra_repr(self) -> str:
        extra = f"gate_dim={self.gate_dim}" if self.form == "rows" else f"bias_init={self.bias_init:g}"
        extra += f", post_log_scale={self.post_log_scale:g}"
        return f"{self.dim}, num_heads={self.num_heads}, form={self.form!r}, {extra}"


ENTRY = Entry(
    name="data_alibi",
    encoding=DataDependentALiBi,
    title="Data-dependent ALiBi",
    formula="s_ij ← s_ij + Σ_{j < l ≤ i} log f_l · post_log_scale, or other gates for later keys",
    source="x-transformers, after Lin et al., arXiv 2503.02130",
    parameters="(dim + 1) × heads per layer, twice that in both directions; 2 × gate_dim × dim × heads per query",
    cost="one small projection, a running sum over all logits; a product of small queries and keys for form 'rows'",
    past_training="logits keep decaying with distance; nothing new appears",
    reads="content",
    extension="none needed by its definition",
    used_in="none known to us; a part of x-transformers",
    exempt=IN_ORDER,
)
