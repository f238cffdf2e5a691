"""Multi-head self-attention that takes any list of encodings: grouped queries, qk-norm, padding, packing, a cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from posenc import positions as position
from posenc.attention import attention
from posenc.attention.call import Path
from posenc.attention.checks import check_causal, check_encodings, check_mask, check_window
from posenc.attention.rotation import check_length
from posenc.encoding import EmbeddingEncoding, Encoding, RotaryEncoding, ScoreEncoding, Table, WeightEncoding
from posenc.layers.cache import KVCache, StaticKVCache
from posenc.layers.counting import counted
from posenc.layers.sight import alone, among_slots, beside, window_is_all


class SelfAttention(nn.Module):
    """Causal or bidirectional self-attention, ``x (batch, tokens, dim) → (batch, tokens, dim)``.

    Args:
        dim: width of x.
        num_heads: query heads.
        kv_heads: key and value heads, default ``num_heads``; must divide it.
        head_dim: width of a head, default ``dim // num_heads``.
        encodings: any list; embeddings act on x at the layer's door, the others in attention.
        qk_norm: RMS norm of queries and keys per head, before their rotation.
        bias: whether the projections have one.
        causal: whether a token sees only tokens up to itself.
        scale: factor on q·k, default 1/√head_dim; T5 has 1.
        path: see `attention`.

    >>> from posenc import RoPE
    >>> layer = SelfAttention(64, 4, kv_heads=2, encodings=[RoPE(16)])
    >>> x = torch.randn(1, 10, 64)
    >>> cache = KVCache()
    >>> first, second = layer(x[:, :6], cache=cache), layer(x[:, 6:], cache=cache)
    >>> torch.allclose(torch.cat([first, second], 1), layer(x), atol=1e-5)
    True
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        encodings: Sequence[Encoding] = (),
        qk_norm: bool = False,
        bias: bool = False,
        causal: bool = True,
        scale: float | None = None,
        path: Path = "auto",
    ) -> None:
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads must be at least 1, got {num_heads}")
        kv_heads = num_heads if kv_heads is None else kv_heads
        if head_dim is None and dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads = {num_heads}, got {dim}; or give head_dim")
        if kv_heads < 1 or num_heads % kv_heads:
            raise ValueError(f"kv_heads must divide num_heads = {num_heads}, got {kv_heads}")
        head_dim = dim // num_heads if head_dim is None else head_dim
        inside = [e for e in encodings if not isinstance(e, EmbeddingEncoding)]
        check_encodings(inside, num_heads)
        axes = check_causal(causal, encodings)
        self.axes = max(axes, 1) if causal == "positions" else axes  # coordinates of a position; 0: nobody reads any
        self.dim, self.num_heads, self.kv_heads, self.head_dim = dim, num_heads, kv_heads, head_dim
        self.causal, self.scale, self.path = causal, scale, path
        self.q_proj = nn.Linear(dim, num_heads * head_dim, bias=bias)
        self.k_proj = nn.Linear(dim, kv_heads * head_dim, bias=bias)
        self.v_proj = nn.Linear(dim, kv_heads * head_dim, bias=bias)
        self.o_proj = nn.Linear(num_heads * head_dim, dim, bias=bias)
        self.q_norm: nn.Module = nn.RMSNorm(head_dim) if qk_norm else nn.Identity()
        self.k_norm: nn.Module = nn.RMSNorm(head_dim) if qk_norm else nn.Identity()
        self.embeddings = nn.ModuleList(e for e in encodings if isinstance(e, EmbeddingEncoding))
        self.encodings = nn.ModuleList(inside)

    def forward(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        *,
        padding: Tensor | None = None,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        cache: KVCache | StaticKVCache | None = None,
        tables: Sequence[Table] | None = None,
        length: int | None = None,
        window: int | None = None,
    ) -> Tensor:
        """Attend among the tokens of ``x`` and, with a cache, the tokens before them.

        Args:
            x: ``(batch, tokens, dim)``.
            positions: ``(*batch, tokens)``; default: count on from the tokens in the cache, else from 0, padding not
                counted and each document by itself, so that a row has those that it would have alone. Encodings of
                several axes want ``(*batch, tokens, axes)`` in every call: `posenc.positions` makes them.
            padding: bool ``(batch, tokens)``, True at real tokens of x, as Hugging Face's attention_mask; kept
                in the cache. A window counts real tokens.
            mask: bool, True where a token may look, as in `attention`, over the cache's keys and x's: those that the
                cache keeps, or all that it has seen.
            segments: documents of a packed row, ``(*batch, tokens)``; kept in the cache.
            cache: grows by x's tokens.
            tables: what `RotaryEncoding.table` gave for ``positions``, one per rotary encoding, where
                several layers share them.
            length: tokens that length-dependent rotations shall span, the same in all calls that share a cache.
                Undeclared, they span each row's own keys so far, and keys are cached un-rotated: a decoding step
                then equals the last row of one call over the same tokens, but earlier rows would turn anew.
            window: tokens that a token sees, its own included, as in `attention`; default: the cache's, else all.
                The cache forgets what is behind it, and no later call may then see further.
        """
        self._check(x, positions, padding)
        check_length(length)
        window = check_window(window)
        here, derived = self._here(x, positions, padding, segments, cache)
        for embedding in self.embeddings:
            x = embedding(x, here)
        q, k, v, last = self._project(x, padding, segments, cache)
        acting = self._acting()
        now = self._rotates_here(acting, length, tables)
        if now:
            q, k = self._rotate(acting, q, k, here, tables, length)
        features = [e.remember(x) if isinstance(e, ScoreEncoding) else None for e in acting]
        given = positions is not None
        if cache is None:
            sight = alone(here, given, padding, q.shape[2], window)
        elif isinstance(cache, StaticKVCache):
            self._check_static(x, mask, segments, window, cache)
            slots = cache.extended(
                k, v, features, positions=here, padding=padding, in_order=q.shape[2] > 1 or any(map(_by_order, acting))
            )
            k, v, features, sight = slots.k, slots.v, slots.features, among_slots(here, slots)
        else:
            draft = cache.extended(
                k, v, features,
                positions=here if derived or given else None,
                derived=derived, padding=padding, segments=segments, rotated=now, length=length,
                axes=max(self.axes, 1), window=window,
                droppable=self._forgets(acting, cache, window, given),
                in_place=not (torch.is_grad_enabled() and self._learns(x, acting)),
            )  # fmt: skip
            k, v, features, segments = draft.k, draft.v, draft.features, draft.segments
            sight = beside(here, draft)
            mask = mask if mask is None else draft.columns(mask)
        left = [(e, f) for e, f in zip(acting, features, strict=True) if not (now and isinstance(e, RotaryEncoding))]
        q_pos, k_pos = sight.positions([e for e, _ in left], self.causal)
        out = attention(
            q, k, v, [e for e, _ in left],
            q_pos=q_pos,
            k_pos=k_pos,
            features=[f for _, f in left],
            mask=sight.hidden(check_mask(mask, q, k)),
            segments=segments,
            causal=self.causal,
            scale=self.scale,
            length=None if now else length,
            window=sight.window,
            path=self.path,
        )  # fmt: skip
        merged = self._merge(out, x)
        if isinstance(cache, StaticKVCache):  # only now: a call that fails leaves the cache as it was
            cache.take(slots)
        elif cache is not None:
            cache.take(draft, last)
        return merged

    def static_cache(
        self,
        batch_size: int,
        capacity: int,
        *,
        window: int | None = None,
        position_dtype: torch.dtype = torch.int64,
    ) -> StaticKVCache:
        """A cache of fixed size for this layer, in its precision and on its device, for compilers and exporters.

        Args:
            batch_size: rows.
            capacity: tokens that there is room for, padding included.
            window: tokens that a token sees, its own included; None: all.
            position_dtype: floating for positions that are not whole.
        """
        with torch.no_grad():
            weight = self.q_proj.weight
            token = weight.new_zeros(1, 1, self.dim)
            _, k, v, last = self._project(token, None, None, None)
            remembered = [e.remember(token) if isinstance(e, ScoreEncoding) else None for e in self._acting()]
        if last:
            raise ValueError(f"static_cache: {type(self).__name__} keeps more of its newest token than keys and values")
        return StaticKVCache(
            [k, v, *remembered], batch_size, capacity,
            axes=max(self.axes, 1), window=window, position_dtype=position_dtype,
        )  # fmt: skip

    def _forgets(self, acting: Sequence[Encoding], cache: KVCache, window: int | None, given: bool) -> bool:
        """Whether what lies behind the window may be forgotten."""
        if window is None and cache.window is None:
            return False
        return window_is_all(acting, self.causal, given or cache.given)

    def shift(self, cache: KVCache, by: int) -> None:
        """Move what this layer's cache keeps by so many positions; see `KVCache.shift`."""
        embeddings = [e for e in self.embeddings if isinstance(e, Encoding)]
        cache.shift(by, [*embeddings, *self._acting()])

    def _acting(self) -> list[Encoding]:
        """The encodings that act inside attention."""
        return [e for e in self.encodings if isinstance(e, Encoding)]

    def _check_static(
        self, x: Tensor, mask: Tensor | None, segments: Tensor | None, window: int | None, cache: StaticKVCache
    ) -> None:
        """Raise a ValueError for what a cache of fixed size does not serve."""
        for name, given in (("mask", mask), ("segments", segments)):
            if given is not None:
                raise ValueError(f"{name} cannot serve beside a static cache: give padding, or a KVCache")
        if window is not None and window != cache.window:
            raise ValueError(f"window must be the static cache's {cache.window}, got {window}")
        if torch.is_grad_enabled() and not torch.compiler.is_exporting() and self._learns(x, self._acting()):
            raise ValueError("cache: no gradient flows through a static cache: use torch.no_grad(), or a KVCache")

    def _check(self, x: Tensor, positions: Tensor | None, padding: Tensor | None) -> None:
        if x.ndim != 3 or x.shape[-1] != self.dim:
            raise ValueError(f"x must be (batch, tokens, {self.dim}), got {tuple(x.shape)}")
        if positions is not None and self.axes:
            position.check("positions", positions, x.shape[1], x.shape[0], self.axes)
        elif self.axes > 1:
            raise ValueError(
                f"positions must be given: these encodings want {self.axes} coordinates a position, "
                f"(tokens, {self.axes}) or (batch, tokens, {self.axes})"
            )
        if padding is not None and (padding.dtype != torch.bool or padding.shape != x.shape[:2]):
            raise ValueError(
                f"padding must be bool (batch, tokens) = {tuple(x.shape[:2])}, True at real tokens, "
                f"got {padding.dtype} {tuple(padding.shape)}"
            )

    def _project(
        self, x: Tensor, padding: Tensor | None, segments: Tensor | None, cache: KVCache | StaticKVCache | None
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
        """q ``(batch, heads, tokens, head_dim)``, k and v ``(batch, kv_heads, tokens, head_dim)``; `KVCache.last`."""
        batch, tokens, _ = x.shape
        q = self.q_proj(x).view(batch, tokens, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, tokens, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, tokens, self.kv_heads, self.head_dim).transpose(1, 2)
        return self.q_norm(q), self.k_norm(k), v, ()

    def _merge(self, out: Tensor, x: Tensor) -> Tensor:
        """The heads' results ``(batch, heads, tokens, head_dim)`` as ``(batch, tokens, dim)``."""
        merged: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return merged

    def _here(
        self,
        x: Tensor,
        positions: Tensor | None,
        padding: Tensor | None,
        segments: Tensor | None,
        cache: KVCache | StaticKVCache | None,
    ) -> tuple[Tensor | None, bool]:
        """Positions of the tokens of x, None where nobody reads any; and whether they follow from the batch."""
        if not self.axes or positions is not None:
            return positions if self.axes else None, False
        if isinstance(cache, StaticKVCache):
            return cache.following(x.shape[1], padding), True
        if cache is not None:
            cache.check_positions(positions)
        found = counted(x.shape[1], x.device, padding=padding, segments=segments, cache=cache)
        return found, found.ndim == 2

    def _learns(self, x: Tensor, acting: Sequence[Encoding]) -> bool:
        """Whether a backward pass may follow a call."""
        modules = (self, *acting)  # borrowed encodings are not among the layer's own
        return x.requires_grad or any(p.requires_grad for module in modules for p in module.parameters())

    def _rotates_here(
        self, acting: Sequence[Encoding], length: int | None, tables: Sequence[Table] | None
    ) -> bool:
        """Whether keys may be rotated before they are cached; otherwise `attention` does it, call by call."""
        fixed = all(e.fixed(length) for e in acting if isinstance(e, RotaryEncoding))
        if any(isinstance(e, ScoreEncoding) and e.looks_at_content for e in acting):
            if tables is not None and not fixed:
                raise ValueError("tables cannot serve beside an encoding that looks at content: declare length instead")
            return False
        return fixed or tables is not None

    def _rotate(
        self,
        acting: Sequence[Encoding],
        q: Tensor,
        k: Tensor,
        positions: Tensor | None,
        tables: Sequence[Table] | None,
        length: int | None,
    ) -> tuple[Tensor, Tensor]:
        rotary = [e for e in acting if isinstance(e, RotaryEncoding)]
        if tables is None:
            for encoding in rotary:  # each makes one table for both, and turns them as one where that is faster
                if encoding.length_dependent:
                    q, k = encoding(q, k, positions, positions, length)
                else:
                    q, k = encoding(q, k, positions, positions)
            return q, k
        if len(tables) != len(rotary):
            raise ValueError(f"tables must hold one per rotary encoding ({len(rotary)}), got {len(tables)}")
        for encoding, table in zip(rotary, tables, strict=True):
            q, k = encoding.rotate(q, table), encoding.rotate(k, table)
        return q, k

    def extra_repr(self) -> str:
        return f"{self.dim}, num_heads={self.num_heads}, kv_heads={self.kv_heads}, head_dim={self.head_dim}"


def _by_order(encoding: Encoding) -> bool:
    """Whether an encoding takes queries for the last of the keys, whatever their positions."""
    return isinstance(encoding, ScoreEncoding | WeightEncoding)
