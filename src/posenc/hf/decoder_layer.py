"""The layer of `posenc.hf.modeling`: attention with any encodings, and SwiGLU, each on the normalised stream.

Parameters have the names and shapes of Llama's, so that a model with RoPE alone is one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from posenc.encoding import Encoding, RotaryEncoding, Table
from posenc.layers import KVCache, SelfAttention


class Attention(SelfAttention):
    """Causal self-attention that owns some of its encodings; the others belong to the model, for all layers.

    Args:
        dim: width of x.
        num_heads: query heads.
        encodings: all of them, in their order.
        borrowed: those among them that the model owns, so that their parameters have one name.
        num_kv_heads: key and value heads.
        head_dim: width of a head.
        qk_norm: RMS norm of queries and keys per head.
        bias: whether the projections have one.
        window: tokens that a token sees in this layer, itself included; None: all.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        encodings: Sequence[Encoding],
        borrowed: Collection[Encoding],
        num_kv_heads: int,
        head_dim: int,
        qk_norm: bool,
        bias: bool,
        window: int | None = None,
    ) -> None:
        super().__init__(
            dim, num_heads,
            num_kv_heads=num_kv_heads, head_dim=head_dim, encodings=encodings, qk_norm=qk_norm, bias=bias,
        )  # fmt: skip
        self.window = window
        own = [e for e in encodings if e not in borrowed]
        self.encodings = nn.ModuleList(own)
        # A tuple registers nothing; an own one is found by its number, in case something wraps it.
        self._order = tuple(e if e in borrowed else own.index(e) for e in encodings)

    def _acting(self) -> list[Encoding]:
        found = [self.encodings[e] if isinstance(e, int) else e for e in self._order]
        return [e for e in found if isinstance(e, Encoding)]

    def in_order(self) -> list[Encoding]:
        """All encodings that act here, own and borrowed."""
        return self._acting()


class SwiGLU(nn.Module):
    """The feed-forward layer: a gate times a value, projected back."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` (batch, tokens, dim) to the same shape."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class PosencDecoderLayer(GradientCheckpointingLayer):
    """One layer: attention and feed-forward, each on the normalised stream and added to it."""

    def __init__(self, attention: Attention, *, hidden: int, eps: float) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(attention.dim, eps=eps)
        self.self_attn = attention
        self.post_attention_layernorm = nn.RMSNorm(attention.dim, eps=eps)
        self.mlp = SwiGLU(attention.dim, hidden)

    def forward(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        past_key_values: KVCache | None = None,
        tables: dict[Encoding, Table] | None = None,
        length: int | None = None,
    ) -> Tensor:
        """``x`` (batch, tokens, dim) to the same shape; ``tables`` by rotation; see `SelfAttention` for the rest."""
        attend = self.self_attn
        own = None if tables is None else [tables[e] for e in attend.in_order() if isinstance(e, RotaryEncoding)]
        x = x + attend(
            self.input_layernorm(x), positions,
            attention_mask=attention_mask, cache=past_key_values, tables=own, length=length, window=attend.window,
        )  # fmt: skip
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out
