"""CoPE: positions count what a query chooses to count, so that "the third sentence back" is a position.

    g_ij = sigmoid(scale · q_i · key_j)                  key_j by `gates`; 0 for hidden keys
    p_ij = min( Σ_{l ≥ j} g_il, max_position )           from the newest key back to key j
    z_i = q_i · table,   z_i[p] between z_i[⌊p⌋] and z_i[⌈p⌉] in proportion
    s_ij ← s_ij + z_i[p_ij]                              scaled: + scale · z_i[p_ij]

Keys count in the order of their indices, which must be text order; positions of tokens are read for `relative`
alone. table (head_dim, max_position + 1) starts at zero and is shared by the heads of a layer. Past the training length
a model meets nothing unseen where its counts had reached max_position in training. Defined for causal attention;
without a causal mask counting starts at the last key of the row.
Source: Golovneva et al., Contextual Position Encoding, arXiv 2405.18719, section 4 and the listing in its appendix.
Checked against: the authors' ContextPosSelfAttn (facebookresearch/RAM, projects/cope): both scalings, separate keys,
    clamped counts, padding, a decoding step; values and gradients.
Departs from the source: nothing in the formula. The default is the scaling of the paper's listing; the repository's
    default is scaled=True. max_position is its npos − 1. `relative` ("cope+rel") is a table by the distance of tokens
    with distance 0 first, where the repository has it last.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import LONGEST, check_flag, check_heads, check_table, check_whole
from posenc.encoding import Context, Reads, ScoreEncoding
from posenc.entry import IN_ORDER, Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import KEYS, HeadAxis
from posenc.heads import by_key_head
from posenc.score._inputs import check_key_heads, check_width
from posenc.structure import Counts, Structure, Vectors

Gates = Literal["keys", "separate", "values"]


class CoPE(ScoreEncoding):
    """Contextual position encoding.

    Args:
        head_dim: width of a query head.
        dim: width of the layer's input; read for ``"separate"`` alone.
        num_kv_heads: key heads; read for ``"separate"`` alone.
        max_position: the largest count; larger ones are clamped to it. The source's npos − 1.
        scaled: whether the term carries attention's scale, (q·k + z)·scale, as the authors' repository has it by
            default; else it is added to q·k·scale, as in the paper's listing.
        gates: what queries meet in the gates: ``"keys"`` the keys themselves, ``"separate"`` keys of a projection of
            their own, which a cache keeps too, ``"values"`` the values, whose width must then be ``head_dim``.
        relative: add q_i · e[p_i − p_j] · scale too, with learned vectors up to this distance in tokens ("cope+rel");
            farther keys share the last. Needs integer positions.
        rotated: whether gates and z read queries and keys after the rotations of the list, rather than their content
            alone. Only with ``gates="keys"``.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: at construction for sizes that are missing or below 1, or options that exclude each other; at a call
            for another ``head_dim``, values of another width, fractional positions, or a missing ``x``.

    >>> from posenc import attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [CoPE(64, max_position=16)]).shape
    torch.Size([1, 8, 16, 64])
    """

    lr_multiplier = 10.0
    shared_by_layers = False

    def __init__(
        self,
        head_dim: int,
        *,
        dim: int | None = None,
        num_kv_heads: int | None = None,
        max_position: int,
        scaled: bool = False,
        gates: Gates = "keys",
        relative: int | None = None,
        rotated: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("head_dim", head_dim)
        check_whole("max_position", max_position, most=LONGEST)
        check_table("max_position and head_dim", max_position + 1, head_dim)
        if gates not in get_args(Gates):
            raise ValueError(f"gates must be one of {get_args(Gates)}, got {gates!r}")
        scaled, rotated = check_flag("scaled", scaled), check_flag("rotated", rotated)
        if rotated and gates != "keys":
            raise ValueError(f"rotated needs gates='keys', got {gates!r}: nothing rotates those")
        if relative is not None:
            check_whole("relative", relative, most=LONGEST)
            check_table("relative and head_dim", relative + 1, head_dim)
        self.head_dim, self.max_position, self.relative = head_dim, max_position, relative
        self.scaled, self.gates, self.rotated = scaled, gates, rotated
        self.reads = Reads(rotated=rotated, unrotated=not rotated, values=gates == "values", key_order=True)
        self.axes = 0 if relative is None else 1
        self.table = nn.Parameter(torch.empty(head_dim, max_position + 1))
        self.relative_table = None if relative is None else nn.Parameter(torch.empty(head_dim, relative + 1))
        self.num_kv_heads = num_kv_heads if gates == "separate" else None
        self.gate_weight: nn.Parameter | None = None  # (num_kv_heads · head_dim, dim)
        if gates == "separate":
            if dim is None or num_kv_heads is None:
                raise ValueError(
                    f"dim and num_kv_heads must be given for gates='separate', got {dim} and {num_kv_heads}"
                )
            check_whole("dim", dim)
            check_heads("num_kv_heads", num_kv_heads)
            check_table("num_kv_heads, head_dim and dim", num_kv_heads, head_dim, dim)
            self.gate_weight = nn.Parameter(torch.empty(num_kv_heads * head_dim, dim))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        """A quarter of the training length, which counts reach in training."""
        return {"max_position": max(1, train_length // 4)}

    def reset_parameters(self) -> None:
        """The table back to zero; the others drawn as in the authors' code."""
        nn.init.zeros_(self.table)
        if self.relative_table is not None:
            nn.init.normal_(self.relative_table, std=self.head_dim**-0.5)
        if self.gate_weight is not None:
            nn.init.kaiming_uniform_(self.gate_weight, a=math.sqrt(5))  # as nn.Linear

    def head_axes(self) -> dict[str, HeadAxis]:
        return {} if self.gate_weight is None else {"gate_weight": KEYS}

    def token_state(self, x: Tensor) -> Tensor | None:
        """Gate keys ``(batch, num_kv_heads, tokens, head_dim)`` in the dtype of x, where they are separate."""
        if self.gate_weight is None:
            return None
        if x.shape[-1] != self.gate_weight.shape[1]:
            raise ValueError(f"x must be (batch, tokens, dim = {self.gate_weight.shape[1]}), got {tuple(x.shape)}")
        wide = torch.promote_types(x.dtype, torch.float32)
        keys = F.linear(x.to(wide), self.gate_weight.to(wide)).to(x.dtype)
        return keys.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        q = context.q if self.rotated else context.q_content
        self._check(q)
        counts = self.counts(q, context)
        by_position = q @ self.table.to(q.dtype)  # (batch, heads, queries, max_position + 1)
        # rows are constants of the gradient: it reaches counts through the share alone, as for linear interpolation
        below = counts.detach().floor()
        share = counts - below
        first, second = (rows.long().clamp(0, self.max_position) for rows in (below, counts.detach().ceil()))  # NaN too
        term = by_position.gather(-1, first) * (1 - share) + by_position.gather(-1, second) * share
        scores = scores + (term * context.scale if self.scaled else term)
        return scores if self.relative_table is None else scores + self._relative(q, context) * context.scale

    def structure(self, context: Context, *, future: bool) -> tuple[Structure, ...]:
        q = context.q if self.rotated else context.q_content
        wide = torch.promote_types(q.dtype, torch.float32)
        self._check(q)
        same_q = q is context.q
        content, keys = None if same_q else q.to(wide), self._gate_keys(context)
        gates = None if same_q and keys is context.k else keys.to(wide)
        # Kernels of a GPU widen the table as they read it: a step is spared a launch.
        table = self.table if q.is_cuda and not torch.is_grad_enabled() else self.table.to(wide)
        counts = Counts(table, context.scale if self.scaled else 1.0, content, gates)
        if self.relative_table is None:
            return (counts,)
        return counts, Vectors(self.relative_table.to(wide).T.unsqueeze(0), 0, content=content)

    def counts(self, q: Tensor, context: Context) -> Tensor:
        """The positions p of keys for each query, ``(batch, heads, queries, keys)``; differentiable."""
        gates = (by_key_head(q, self._gate_keys(context).mT) * context.scale).sigmoid()
        if context.mask is not None:
            gates = torch.where(context.mask, gates, 0.0)
        # from the key on to the newest: the query's own gate counts, and hidden keys were set to 0
        return gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.max_position)

    def _check(self, q: Tensor) -> None:
        check_width(self, self.head_dim, q)

    def _gate_keys(self, context: Context) -> Tensor:
        """What queries meet in the gates, ``(batch, num_kv_heads, keys, head_dim)``."""
        if self.gates == "keys":
            return context.k if self.rotated else context.k_content
        if self.gates == "values":
            if context.v.shape[-1] != self.head_dim:
                raise ValueError(
                    f"value_dim must be head_dim = {self.head_dim} for gates='values', got {context.v.shape[-1]}"
                )
            return context.v
        if context.token_state is None:
            raise ValueError(
                "x must be given to attention for gates='separate', or token_states = what token_state(x) gave"
            )
        check_key_heads(self, self.num_kv_heads or 1, context.k)
        heads, tokens = context.token_state.shape[1:3]
        if context.q.shape[1] % heads or tokens != context.k.shape[2]:
            raise ValueError(
                f"num_kv_heads of this CoPE must divide the heads of q, and token_states hold {context.k.shape[2]} "
                f"keys: got token_states {tuple(context.token_state.shape)} with q {tuple(context.q.shape)}"
            )
        return context.token_state.to(context.q.dtype)

    def _relative(self, q: Tensor, context: Context) -> Tensor:
        """q_i · e[p_i − p_j], distances clamped to 0 … relative."""
        if self.relative_table is None or self.relative is None:
            raise RuntimeError("no relative table")
        if context.q_pos.is_floating_point() or context.k_pos.is_floating_point():
            raise ValueError("q_pos and k_pos must be integers for CoPE's relative: a table has no rows between rows")
        distance = (context.q_pos.unsqueeze(-1) - context.k_pos.unsqueeze(-2)).clamp(0, self.relative).unsqueeze(-3)
        by_distance = q @ self.relative_table.to(q.dtype)
        return by_distance.gather(-1, distance.expand(*q.shape[:3], -1))

    def extra_repr(self) -> str:
        extra = "" if self.relative is None else f", relative={self.relative}"
        extra += ", rotated=True" if self.rotated else ""
        return f"{self.head_dim}, max_position={self.max_position}, scaled={self.scaled}, gates={self.gates!r}{extra}"


ENTRY = Entry(
    name="cope",
    encoding=CoPE,
    title="CoPE: positions that count what a query chooses to count",
    formula="s_ij ← s_ij + (q_i·table)[min(Σ_{l ≥ j} sigmoid(scale·q_i·k_l), max_position)]",
    source="Golovneva et al., arXiv 2405.18719, section 4",
    parameters="head_dim × (max_position + 1) per layer",
    cost="a running sum and a gather over all logits",
    past_training="nothing new, if counts reached max_position in training",
    reads="content",
    extension="none needed once counts have reached max_position",
    used_in="its paper's own models; no other is known to us",
    avoid="where keys are not in the order of the text, or counts may exceed max_position",
    exempt=IN_ORDER,
)
