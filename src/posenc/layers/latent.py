"""Multi-head latent attention: keys and values of all heads from one small vector per token, plus a rotated key.

    c_t = norm(W_kv x_t),   r_t = W_r x_t                          kv_rank numbers, and rope_dim that all heads share
    k_th = [ R(p_t) r_t | K_h c_t ],   v_th = V_h c_t              rope_dim | nope_dim, and value_dim channels
    q_th = [ R(p_t) q^r_th | q^n_th ],   q_t = Q x_t, or Q norm(W_q x_t) with q_rank
    s_ij = scale · q_ih · k_jh,        scale = (nope_dim + rope_dim)^−½ · softmax_factor

A cache keeps c and the rotated r, kv_rank + rope_dim numbers a token, whatever the number of heads. Few queries attend
to c directly, by q^n_h · K_h c = (K_hᵀ q^n_h) · c, so that a decode step expands no key; many queries attend to
expanded keys and values. Both are the same up to rounding.
Source: DeepSeek-AI, DeepSeek-V2, arXiv 2405.04434, section 2.1; the scale with mscale² in DeepSeek-V3's code.
Checked against: transformers' DeepSeek-V2 and V3 attention, with and without q_rank, at given positions.
Departs from the source: nothing in the formula. Weights q_a_proj, q_a_layernorm, q_b_proj, kv_a_proj_with_mqa,
    kv_a_layernorm and kv_b_proj are here q_down, q_down_norm, q_proj, kv_down, kv_norm and kv_up, in their shapes and
    order of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from posenc.arguments import check_number, check_whole
from posenc.backends import Backend
from posenc.encoding import Encoding, RotaryEncoding, ScoreEncoding
from posenc.layers.cache import KVCache, StaticKVCache
from posenc.layers.self_attention import SelfAttention
from posenc.rotary._leading import Leading
from posenc.validate import as_list

FEW = 16  # queries that attend to latents without expanding them


class LatentAttention(SelfAttention):
    """Latent attention with decoupled rotation, ``x (batch, tokens, dim) → (batch, tokens, dim)``.

    Called as `SelfAttention`, with a `KVCache` or without.

    Args:
        dim: width of x.
        num_heads: query heads.
        kv_rank: width of the latents of keys and values.
        nope_dim: channels of a head that are not rotated.
        rope_dim: channels of a head that turn; their key is one for all heads.
        value_dim: width of a value head, default ``nope_dim``.
        q_rank: width of the latents of queries; None: queries come from x itself.
        encodings: rotations of ``rope_dim`` channels, such as ``RoPE(rope_dim)``; biases; and what else reads no
            numbers of queries and keys, such as forget gates, temperatures and sinks.
        softmax_factor: on the scale, mscale² under YaRN with mscale_all_dim.
        scale: instead of (nope_dim + rope_dim)^−½, times the factor.
        norm_eps: added to the mean square in the norms of latents.
        bias: whether the projections down to latents have one.
        backend: see `attention`.

    Raises:
        ValueError: for sizes below 1, and for an encoding that reads queries or keys, whose form changes here.

    >>> from posenc import RoPE
    >>> layer = LatentAttention(64, 4, kv_rank=16, nope_dim=8, rope_dim=4, encodings=[RoPE(4)])
    >>> x, cache = torch.randn(1, 10, 64), KVCache()
    >>> pieces = [layer(part, cache=cache) for part in x.split([6, 1, 3], dim=1)]
    >>> torch.allclose(torch.cat(pieces, 1), layer(x), atol=1e-5), cache.k.shape, cache.v.shape[-1]
    (True, torch.Size([1, 1, 10, 20]), 0)
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        kv_rank: int,
        nope_dim: int,
        rope_dim: int,
        value_dim: int | None = None,
        q_rank: int | None = None,
        encodings: Sequence[Encoding] = (),
        softmax_factor: float = 1.0,
        scale: float | None = None,
        norm_eps: float = 1e-6,
        bias: bool = False,
        backend: Backend = "auto",
    ) -> None:
        value_dim = nope_dim if value_dim is None else value_dim
        sizes = {"kv_rank": kv_rank, "nope_dim": nope_dim, "rope_dim": rope_dim, "value_dim": value_dim}
        for name, size in (sizes if q_rank is None else {**sizes, "q_rank": q_rank}).items():
            check_whole(name, size)
        check_number("softmax_factor", softmax_factor, above=0)
        check_number("norm_eps", norm_eps, least=0)
        acting = [_suited(encoding, rope_dim) for encoding in as_list(encodings)]
        head_dim = nope_dim + rope_dim
        super().__init__(
            dim, num_heads, num_kv_heads=1, head_dim=head_dim, encodings=acting, bias=bias, scale=scale, backend=backend
        )
        self.kv_rank, self.q_rank, self.nope_dim, self.rope_dim, self.value_dim = (
            kv_rank, q_rank, nope_dim, rope_dim, value_dim,
        )  # fmt: skip
        self.softmax_factor = float(softmax_factor)
        self.scale = (head_dim**-0.5 if scale is None else scale) * self.softmax_factor
        del self.k_proj, self.v_proj
        self.q_down = None if q_rank is None else nn.Linear(dim, q_rank, bias=bias)
        self.q_down_norm = None if q_rank is None else nn.RMSNorm(q_rank, eps=norm_eps)
        self.q_proj = nn.Linear(dim if q_rank is None else q_rank, num_heads * head_dim, bias=False)
        self.kv_down = nn.Linear(dim, kv_rank + rope_dim, bias=bias)
        self.kv_norm = nn.RMSNorm(kv_rank, eps=norm_eps)
        self.kv_up = nn.Linear(kv_rank, num_heads * (nope_dim + value_dim), bias=False)
        self.o_proj = nn.Linear(num_heads * value_dim, dim, bias=bias)

    def _project(
        self,
        x: Tensor,
        attention_mask: Tensor | None,
        segments: Tensor | None,
        cache: KVCache | StaticKVCache | None,
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
        """q with the rotated channels first; what all heads share of keys, r and c, instead of k; no values."""
        if self.q_down is not None and self.q_down_norm is not None:
            q = self.q_proj(self.q_down_norm(self.q_down(x)))
        else:
            q = self.q_proj(x)
        q = q.view(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)
        q = torch.cat([q[..., self.nope_dim :], q[..., : self.nope_dim]], -1)
        latent, turning = self.kv_down(x).split([self.kv_rank, self.rope_dim], -1)
        k = torch.cat([turning, self.kv_norm(latent)], -1).unsqueeze(1)
        return q, k, k[..., :0], ()

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, call: Callable[..., Tensor]) -> Tensor:
        up = self.kv_up.weight.view(self.num_heads, self.nope_dim + self.value_dim, self.kv_rank)
        to_keys, to_values = up[:, : self.nope_dim], up[:, self.nope_dim :]
        turning, latent = k[..., : self.rope_dim], k[..., self.rope_dim :]
        if q.shape[2] <= FEW and q.shape[2] < k.shape[2]:
            still = q[..., self.rope_dim :] @ to_keys  # (batch, heads, tokens, kv_rank)
            return call(torch.cat([q[..., : self.rope_dim], still], -1), k, latent) @ to_values.mT
        shared = turning.expand(-1, self.num_heads, -1, -1)
        keys = torch.cat([shared, latent @ to_keys.mT], -1)
        return call(q, keys, latent @ to_values.mT)

    def extra_repr(self) -> str:
        widths = f"kv_rank={self.kv_rank}, nope_dim={self.nope_dim}, rope_dim={self.rope_dim}"
        return f"{self.dim}, num_heads={self.num_heads}, {widths}, value_dim={self.value_dim}, q_rank={self.q_rank}"


def _suited(encoding: Encoding, rope_dim: int) -> Encoding:
    """An encoding as it acts here; a ValueError where it reads what has two forms."""
    if isinstance(encoding, RotaryEncoding):
        return Leading(encoding, rope_dim)
    reads = encoding.reads.rotated or encoding.reads.unrotated if isinstance(encoding, ScoreEncoding) else False
    if reads:
        raise ValueError(
            f"encodings: {type(encoding).__name__} reads queries and keys, which latent attention has in two forms"
        )
    return encoding
