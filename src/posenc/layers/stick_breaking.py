"""Stick-breaking self-attention as in the authors' 3B models: a vector a head for the remainder, then a norm a head.

    o_i = Σ_j a_ij v_j + remainder_i · vector_h        vector (num_heads, head_dim), zero at first
    y_i = W_o · GroupNorm(o_i)                         each head of each token by itself, eps 1e-5, affine

Without the norm the size of o_i would tell how much of the stick its keys have left.
Source: Tan et al., Scaling Stick-Breaking Attention, arXiv 2410.17980; the layer of dolomite-engine.
Checked against: the golden numbers of `posenc.weight.stick_breaking`, and the order of steps in that layer.
Departs from the source: padding and packing are masks, instead of rows of different lengths end to end.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from posenc.arguments import check_flag
from posenc.attend import Backend
from posenc.encoding import Encoding
from posenc.layers.self_attention import SelfAttention
from posenc.layers.validation import check_widths
from posenc.validate import as_list
from posenc.weight.stick_breaking import Remainder, StickBreaking


class StickBreakingAttention(SelfAttention):
    """Causal self-attention under stick-breaking, ``x (batch, tokens, dim) → (batch, tokens, dim)``.

    Everything else is `SelfAttention`: grouped heads, qk-norm, padding, packing, a `KVCache`. Keys must lie in the
    order of the sequence.

    Args:
        dim: width of x.
        num_heads: query heads.
        num_kv_heads: key and value heads, default ``num_heads``; must divide it.
        head_dim: width of a head, default ``dim // num_heads``.
        encodings: more encodings; the source has none.
        attend_current: whether a token may look at itself.
        remainder: who gets what the keys leave; see `StickBreaking`. ``"vector"`` as in the source.
        norm: whether heads are normalised before the output projection, as in the source.
        qk_norm: RMS norm of queries and keys per head.
        bias: whether the projections have one.
        scale: factor on q·k, default 1/√head_dim.
        backend: see `attention`.

    Raises:
        ValueError: for sizes that do not fit, an unknown remainder, or a second encoding instead of softmax.

    >>> import torch
    >>> from posenc.layers import KVCache
    >>> layer, x, cache = StickBreakingAttention(64, 4), torch.randn(1, 10, 64), KVCache()
    >>> first, second = layer(x[:, :6], cache=cache), layer(x[:, 6:], cache=cache)
    >>> torch.allclose(torch.cat([first, second], 1), layer(x), atol=1e-5)
    True
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        encodings: Sequence[Encoding] = (),
        attend_current: bool = False,
        remainder: Remainder = "vector",
        norm: bool = True,
        qk_norm: bool = False,
        bias: bool = False,
        scale: float | None = None,
        backend: Backend = "auto",
    ) -> None:
        norm = check_flag("norm", norm)
        _, width = check_widths(dim, num_heads, num_kv_heads, head_dim)
        stick = StickBreaking(
            attend_current=attend_current,
            remainder=remainder,
            num_heads=num_heads if remainder == "vector" else None,
            value_dim=width if remainder == "vector" else None,
        )
        super().__init__(
            dim, num_heads,
            num_kv_heads=num_kv_heads, head_dim=head_dim, encodings=[*as_list(encodings), stick],
            qk_norm=qk_norm, bias=bias, scale=scale, backend=backend,
        )  # fmt: skip
        self.norm = nn.GroupNorm(num_heads, num_heads * width, eps=1e-5) if norm else nn.Identity()

    def _merge(self, out: Tensor, x: Tensor) -> Tensor:
        tokens = out.transpose(1, 2).flatten(2)
        normed = self.norm(tokens.flatten(0, 1)).view(tokens.shape)  # each token is a row of its own
        merged: Tensor = self.o_proj(normed)
        return merged
