"""FoX (Pro): forgetting attention over keys and values mixed with the previous token's, with norms and an output gate.

    q_t = norm(W_q x_t)                                            per head; then any rotation
    k_t = norm(α_t · k̃_{t−1} + (1 − α_t) · k̃_t),   k̃ = W_k x,       α_t = sigmoid(w_α · x_t), one per head
    v_t = β_t · ṽ_{t−1} + (1 − β_t) · ṽ_t,         ṽ = W_v x,       β_t likewise
    o = attention(q, k, v, [..., ForgetGate])
    y_t = W_o ( norm(o_t) ⊙ sigmoid(W_g x_t) )                     norm per head

norm(x) = weight ⊙ x / √(mean(x²) + eps), eps 1e-5 for q and k, `norm_eps` for o. The token before is the last real one
of the same document; there is none (zeros) before a document's first, so padding and packing change no row. A cache
keeps the newest k̃ and ṽ with keys, values and log gates, and chunks of any size decode exactly.
Source: Lin et al., Forgetting Transformer: Softmax Attention with a Forget Gate, arXiv 2503.02130, section on the Pro
    block; order, eps and initial values as in the authors' code (zhixuan-lin/forgetting-transformer).
Checked against: the authors' ForgettingAttentionLayer (Pro and LLaMA variants, decoding step by step).
Departs from the source: several tokens after a non-empty cache read the token before them, where the source's shift
    forgets it; grouped queries are supported, where it refuses them. The names of its weights, k_proj.linear,
    k_proj.shift_proj, ogate_proj, output_norm and fgate_proj, are here k_proj, k_shift, out_gate, out_norm and those of
    the ForgetGate in encodings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_flag, check_number
from posenc.backends import Backend
from posenc.dtypes import widened
from posenc.encoding import Encoding
from posenc.layers.cache import KVCache, StaticKVCache
from posenc.layers.self_attention import SelfAttention
from posenc.score.forget import ForgetGate
from posenc.validate import as_list

QK_EPS = 1e-5


class FoXPro(SelfAttention):
    """The attention layer of FoX (Pro), ``x (batch, tokens, dim) → (batch, tokens, dim)``; called as `SelfAttention`.

    The authors set it behind an RMS norm, before an MLP. Its block without these parts is
    ``SelfAttention(dim, num_heads, encodings=[ForgetGate(dim, num_heads=num_heads)])``.

    Args:
        dim: width of x.
        num_heads: query heads, each with a forget gate.
        num_kv_heads: key and value heads, default ``num_heads``; must divide it.
        head_dim: width of a head, default ``dim // num_heads``.
        encodings: others to combine with the forget gate, such as RoPE; a `ForgetGate` among them replaces the default
            one, which depends on the data.
        shared_qk_norm: whether all heads share the weights of the norms of q and k, as in the paper's own models.
        norm_eps: of the output norm.
        init_std: standard deviation of the initial projections.
        backend: see `attention`.

    >>> layer = FoXPro(64, 4)
    >>> x, cache = torch.randn(1, 10, 64), KVCache()
    >>> pieces = [layer(part, cache=cache) for part in x.split([6, 1, 3], dim=1)]
    >>> torch.allclose(torch.cat(pieces, 1), layer(x), atol=1e-5)
    True
    """

    q_norm: HeadNorm
    k_norm: HeadNorm

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        encodings: Sequence[Encoding] = (),
        shared_qk_norm: bool = False,
        norm_eps: float = 1e-6,
        init_std: float = 0.02,
        backend: Backend = "auto",
    ) -> None:
        check_number("norm_eps", norm_eps, least=0)
        check_number("init_std", init_std, least=0)
        shared_qk_norm = check_flag("shared_qk_norm", shared_qk_norm)
        encodings = as_list(encodings)
        gates = [] if any(isinstance(e, ForgetGate) for e in encodings) else [ForgetGate(dim, num_heads=num_heads)]
        super().__init__(
            dim,
            num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            encodings=[*encodings, *gates],
            backend=backend,
        )
        width, kv_width = num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        self.q_proj = Projection(dim, width, init_std)
        self.k_proj = Projection(dim, kv_width, init_std)
        self.v_proj = Projection(dim, kv_width, init_std)
        self.o_proj = Projection(width, dim, init_std)
        self.k_shift = Projection(dim, self.num_kv_heads, init_std)
        self.v_shift = Projection(dim, self.num_kv_heads, init_std)
        self.out_gate = Projection(dim, width, init_std)
        self.q_norm = HeadNorm(1 if shared_qk_norm else num_heads, self.head_dim, QK_EPS)
        self.k_norm = HeadNorm(1 if shared_qk_norm else self.num_kv_heads, self.head_dim, QK_EPS)
        self.out_norm = HeadNorm(num_heads, self.head_dim, norm_eps)

    def _project(
        self,
        x: Tensor,
        attention_mask: Tensor | None,
        segments: Tensor | None,
        cache: KVCache | StaticKVCache | None,
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
        if isinstance(cache, StaticKVCache):
            raise ValueError(
                "cache must be a KVCache: a static one has no room for what FoXPro keeps of a row's newest"
            )
        q, k, v = (p(x).unflatten(-1, (-1, self.head_dim)) for p in (self.q_proj, self.k_proj, self.v_proj))
        last = self._last(k, cache)
        links = token_links(x, attention_mask, segments, last[2:])
        alphas = (torch.sigmoid(widened(shift(x))).unsqueeze(-1) for shift in (self.k_shift, self.v_shift))
        mixed, newest = [], []
        for raw, before, alpha in zip((k, v), last, alphas, strict=False):
            with_last = torch.cat([before.to(raw.dtype).unsqueeze(1), raw], 1)
            mixed.append((alpha * links.before(with_last) + (1 - alpha) * raw).to(raw.dtype).transpose(1, 2))
            newest.append(links.newest(with_last))
        k, v = mixed
        return self.q_norm(q.transpose(1, 2)), self.k_norm(k), v, (*newest, *links.segment)

    def _last(self, k: Tensor, cache: KVCache | None) -> tuple[Tensor, ...]:
        """k̃ and ṽ of each row's newest token, ``(batch, num_kv_heads, head_dim)``, zeros at first; its document."""
        if cache is None or len(cache) == 0:
            nothing = k.new_zeros(k.shape[0], *k.shape[2:])
            return nothing, nothing
        if not cache.last or cache.last[0].shape != (k.shape[0], *k.shape[2:]):
            shapes = [tuple(t.shape) for t in cache.last[:1]]
            raise ValueError(
                f"cache must have been filled by this layer with a batch of {k.shape[0]}: its last has {shapes}"
            )
        return cache.last

    def _merge(self, out: Tensor, x: Tensor) -> Tensor:
        normed = widened(self.out_norm(widened(out))).transpose(1, 2).flatten(2)
        merged: Tensor = self.o_proj((normed * torch.sigmoid(widened(self.out_gate(x)))).to(out.dtype))
        return merged


class Projection(nn.Linear):
    """A linear layer without bias, drawn as the authors draw theirs."""

    def __init__(self, width: int, out_width: int, init_std: float) -> None:
        self.init_std = init_std
        super().__init__(width, out_width, bias=False)

    def reset_parameters(self) -> None:
        """Draw the weight anew: normal."""
        nn.init.normal_(self.weight, std=self.init_std)


class HeadNorm(nn.Module):
    """RMS norm of each head, ``(batch, heads, tokens, head_dim)``, in float32 or better.

    Args:
        heads: heads with weights of their own; 1: all share them.
        head_dim: width of a head.
        eps: added to the mean square.
    """

    def __init__(self, heads: int, head_dim: int, eps: float) -> None:
        super().__init__()
        self.head_dim, self.eps = head_dim, eps
        self.weight = nn.Parameter(torch.empty(heads * head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights back to one."""
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        precise = widened(x)
        unit = precise * (precise.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (unit * self.weight.to(unit.dtype).view(-1, 1, self.head_dim)).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.weight.numel() // self.head_dim}, {self.head_dim}, eps={self.eps:g}"


class TokenLinks(NamedTuple):
    """Which token stands before each: rows of ``[newest token so far, token 0, token 1, …]``; None: the neighbour."""

    rows: Tensor | None  # (batch, tokens)
    joined: Tensor | None  # (batch, tokens) bool, whether that token is of the same document
    last: Tensor | None  # (batch, 1), the row of the newest real token
    segment: tuple[Tensor, ...]  # its document, (batch,), where there are documents

    def before(self, with_last: Tensor) -> Tensor:
        """The token before each, ``(batch, tokens, heads, width)``; zeros where a document begins."""
        previous = with_last[:, :-1] if self.rows is None else _pick(with_last, self.rows)
        return previous if self.joined is None else torch.where(self.joined[:, :, None, None], previous, 0.0)

    def newest(self, with_last: Tensor) -> Tensor:
        """The newest real token of each row, ``(batch, heads, width)``."""
        return with_last[:, -1] if self.last is None else _pick(with_last, self.last).squeeze(1)


def token_links(
    x: Tensor, attention_mask: Tensor | None, segments: Tensor | None, last_segment: tuple[Tensor, ...]
) -> TokenLinks:
    """The last real token before each token of ``x``, looking through padding, within its document."""
    batch, tokens = x.shape[:2]
    if attention_mask is None and segments is None:
        return TokenLinks(None, None, None, ())
    index = torch.arange(1, tokens + 1, device=x.device).expand(batch, -1)
    newest = index if attention_mask is None else torch.where(attention_mask, index, 0).cummax(-1).values
    rows = F.pad(newest, (1, 0))[:, :-1]
    if segments is None:
        return TokenLinks(rows, None, newest[:, -1:], ())
    here = segments.expand(batch, -1) if segments.ndim == 2 else segments[None].expand(batch, -1)
    first = last_segment[0].unsqueeze(1) if last_segment else here[:, :1]
    documents = torch.cat([first, here], 1)
    return TokenLinks(
        rows, documents.gather(1, rows) == here, newest[:, -1:], (documents.gather(1, newest[:, -1:])[:, 0],)
    )


def _pick(tokens: Tensor, rows: Tensor) -> Tensor:
    return tokens.gather(1, rows[:, :, None, None].expand(-1, -1, *tokens.shape[2:]))
