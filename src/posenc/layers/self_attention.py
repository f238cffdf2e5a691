"""Multi-head self-attention that takes any list of encodings: grouped queries, qk-norm, padding, packing, a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from posenc.arguments import check_flag, check_kv_heads, check_whole, shown
from posenc.attend import attention, check_backend
from posenc.backends import Backend
from posenc.dropout import check_dropout
from posenc.encoding import EmbeddingEncoding, Encoding, RotaryEncoding, ScoreEncoding, Table
from posenc.layers.cache import KVCache, StaticKVCache
from posenc.layers.cache.by_kernels import attend_newest, is_step
from posenc.layers.cache.keys import Keys, NewTokens, mask_for, positions_for, window_bounds, without_cache
from posenc.layers.cache.static import by_order
from posenc.layers.cache.token_buffers import one_thread
from posenc.layers.default_positions import default_positions
from posenc.positions.checking import check
from posenc.positions.videos import on_all_axes
from posenc.rotate import near_origin
from posenc.validate import (
    as_list,
    axes_of,
    causal_order,
    check_encodings,
    check_length,
    check_scale,
    check_softcap,
    check_window,
    is_plain,
    plain_axes,
    token_state_of,
)

# What calls read of their layer, also kept in one tuple: before each call a compiler compares every attribute that it
# read of every layer, but a tuple of constants as one.
SETTINGS = (
    "dim", "head_dim", "axes", "plain_positions", "causal", "scale", "softcap", "window", "backend", "dropout",
    "training",
)  # fmt: skip
NORMS = ("q_norm", "k_norm", "head_norm")  # of which the tuple says whether they are there


class SelfAttention(nn.Module):
    """Causal or bidirectional self-attention, ``x (batch, tokens, dim) → (batch, tokens, dim)``.

    Args:
        dim: width of x.
        num_heads: query heads.
        num_kv_heads: key and value heads, default ``num_heads``; must divide it.
        head_dim: width of a head, default ``dim // num_heads``.
        encodings: any list; embeddings act on the layer's input x, the others in attention.
        qk_norm: RMS norm of queries and keys per head, before their rotation.
        head_norm: group norm of each head's result, before the output projection. The layer of stick-breaking has it
            (Tan et al., arXiv 2410.17980): without it the size of a result would tell how much of the stick is left.
        bias: whether the projections have one.
        causal: whether a token attends only to tokens up to itself. None: True, and an error where positions have two
            or more coordinates, as of images, which must state it.
        window: tokens that a token attends to, its own included, unless a call gives another; None: all.
        scale: factor on q·k, default 1/√head_dim; T5 has 1.
        backend: see `attention`.
        softcap: bound of the scores' products, as in `attention` (Gemma 2: 50).
        dropout: probability with which a weight is dropped in training; none in evaluation.

    >>> from posenc import RoPE
    >>> layer = SelfAttention(64, 4, num_kv_heads=2, encodings=[RoPE(16)])
    >>> x = torch.randn(1, 10, 64)
    >>> cache = KVCache()
    >>> first, second = layer(x[:, :6], cache=cache), layer(x[:, 6:], cache=cache)
    >>> torch.allclose(torch.cat([first, second], 1), layer(x), atol=1e-5)
    True
    """

    _settings: tuple[Any, ...]

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        encodings: Sequence[Encoding] = (),
        qk_norm: bool = False,
        head_norm: bool = False,
        bias: bool = False,
        causal: bool | None = None,
        window: int | None = None,
        scale: float | None = None,
        backend: Backend = "auto",
        softcap: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        num_kv_heads, head_dim = check_widths(dim, num_heads, num_kv_heads, head_dim)
        encodings = as_list(encodings)
        inside = [e for e in encodings if not isinstance(e, EmbeddingEncoding)]
        check_encodings(inside, num_heads)
        axes = axes_of(encodings)
        self.plain_positions = plain_axes(encodings, axes)
        order = causal_order(True if causal is None and self.plain_positions else causal, encodings, axes)
        self.axes = max(axes, 1) if order == "positions" else axes  # coordinates of a position; 0: not read
        self.dim, self.num_heads, self.num_kv_heads, self.head_dim = dim, num_heads, num_kv_heads, head_dim
        check_scale(scale, head_dim)
        check_backend(backend)
        self.window = check_window(window)
        self.causal, self.scale, self.backend = order, scale, backend
        qk_norm, bias = check_flag("qk_norm", qk_norm), check_flag("bias", bias)
        self.softcap = check_softcap(softcap)
        self.dropout = dropout if check_dropout(dropout) is not None else 0.0
        self.q_proj = nn.Linear(dim, num_heads * head_dim, bias=bias)
        self.k_proj = nn.Linear(dim, num_kv_heads * head_dim, bias=bias)
        self.v_proj = nn.Linear(dim, num_kv_heads * head_dim, bias=bias)
        self.o_proj = nn.Linear(num_heads * head_dim, dim, bias=bias)
        self.q_norm: nn.Module | None = nn.RMSNorm(head_dim) if qk_norm else None
        self.k_norm: nn.Module | None = nn.RMSNorm(head_dim) if qk_norm else None
        self.head_norm: nn.Module | None = None
        if check_flag("head_norm", head_norm):
            self.head_norm = nn.GroupNorm(num_heads, num_heads * head_dim, eps=1e-5)
        self.embeddings = nn.ModuleList(e for e in encodings if isinstance(e, EmbeddingEncoding))
        self.encodings = nn.ModuleList(inside)

    def __setattr__(self, name: str, value: Tensor | nn.Module) -> None:
        super().__setattr__(name, value)
        if name in SETTINGS or name in NORMS:
            held = vars(self)
            normed = (self._modules.get(norm) is not None for norm in NORMS)
            held["_settings"] = (*(held.get(setting) for setting in SETTINGS), *normed)

    def forward(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
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
            attention_mask: ``(batch, tokens)``, bool or 0 and 1, True at real tokens of x, as in transformers;
                kept in the cache. A window counts real tokens.
            mask: bool, True where a token may attend, as in `attention`, over the cache's keys and x's: those that the
                cache keeps, or all tokens that ever came.
            segments: documents of a packed row, ``(*batch, tokens)``; kept in the cache.
            cache: grows by x's tokens.
            tables: what `RotaryEncoding.table` gave for ``positions``, one per rotary encoding, where
                several layers share them.
            length: tokens that length-dependent rotations shall span, the same in all calls that share a cache.
                Undeclared, they span each row's own keys so far, and keys are cached un-rotated: a decoding step
                then equals the last row of one call over the same tokens, but not the earlier rows.
            window: tokens that a token attends to, its own included, as in `attention`; default: the layer's, else the
                cache's, else all.
                The cache forgets tokens behind it, and no later call may then attend further.
        """
        with one_thread(cache):
            dim, _, axes, plain_positions, _, _, _, own_window, *_ = self._settings
            if not isinstance(x, Tensor) or x.ndim != 3 or x.shape[-1] != dim:
                raise ValueError(f"x must be a tensor (batch, tokens, {dim}), got {shown(x)}")
            positions = checked_positions(positions, x, axes, plain_positions=plain_positions)
            attention_mask = None if attention_mask is None else real_tokens(attention_mask, x)
            _check_others(x, segments, cache, tables)
            length = None if length is None else check_length(length)
            window = own_window if window is None else check_window(window)
            here, per_row = _followed(x, positions, attention_mask, segments, cache, axes)
            for embedding in _members(self, "embeddings"):
                x = embedding(x, here)
            q, k, v, last = self._project(x, attention_mask, segments, cache)
            acting = self._acting()
            states: list[Tensor | None] = []
            for encoding in acting:
                states.append(token_state_of(encoding, x) if isinstance(encoding, ScoreEncoding) else None)
            new = NewTokens(
                k, v, states, here, positions is not None, per_row, attention_mask, segments, mask, window, length,
                rotates_before_cache(acting, length, tables), axes or 1,
            )  # fmt: skip
            learns = cache is not None and torch.is_grad_enabled() and may_learn((self, *acting), x)
            out, keys = self._attended(q, new, acting, tables, cache, learns=learns)
            merged = self._merge(out, x)
            if cache is not None:
                cache._take(keys, last)  # only now: a call that fails leaves the cache as it was
            return merged

    if TYPE_CHECKING:  # nn.Module types calls as Any
        __call__ = forward

    def _attended(
        self,
        q: Tensor,
        new: NewTokens,
        acting: list[Encoding],
        tables: Sequence[Table] | None,
        cache: KVCache | StaticKVCache | None,
        *,
        learns: bool,
    ) -> tuple[Tensor, Keys]:
        """What the heads make of the tokens ``new`` and those before them, and all these keys; q and k not rotated."""
        _, _, _, _, causal, scale, softcap, _, backend, dropout, training, *_ = self._settings
        rotate = partial(_rotate, acting, q, new.k, new.positions, tables, new.length, cached=cache is not None)
        plain = backend in ("auto", "triton") and not (training and dropout > 0)
        if isinstance(cache, StaticKVCache) and is_step(q) and plain and type(self)._attend is SelfAttention._attend:
            stepped = attend_newest(
                q, new, cache, acting, rotate, causal=causal, scale=scale, softcap=softcap,
                tabled=tables is not None, learns=learns,
            )  # fmt: skip
            if stepped is not None:
                return stepped
        if new.rotated:
            q, k = rotate()
            new = NewTokens(k, *new[1:])
        keys = without_cache(new) if cache is None else cache._extended(new, acting, causal, learns=learns)
        left: list[Encoding] = []
        states_left: list[Tensor | None] = []
        for encoding, state in zip(acting, keys.token_states, strict=True):
            if not (new.rotated and isinstance(encoding, RotaryEncoding)):
                left.append(encoding)
                states_left.append(state)
        q_pos = k_pos = all_masks = None
        if left or causal == "positions":
            q_pos, k_pos = positions_for(new, keys, left, causal)
        if not (keys.mask is None and keys.attention_mask is None and keys.visible is None):
            all_masks = mask_for(keys, q)
        call = partial(
            attention, encodings=left, q_pos=q_pos, k_pos=k_pos, token_states=states_left or None,
            mask=all_masks, segments=keys.segments, causal=causal,
            scale=scale, length=None if new.rotated else new.length, window=keys.window, backend=backend,
            softcap=softcap, dropout=dropout if training else 0.0,
        )  # fmt: skip
        return self._attend(q, keys.k, keys.v, call), keys

    def static_cache(
        self,
        batch_size: int,
        capacity: int,
        *,
        window: int | None = None,
        length: int | None = None,
        position_dtype: torch.dtype = torch.int64,
    ) -> StaticKVCache:
        """A cache of fixed size for this layer, in its precision and on its device, for compilers and exporters.

        Args:
            batch_size: rows.
            capacity: tokens that there is room for, padding included.
            window: tokens that a token attends to, its own included; default: the layer's, else all.
            length: what all calls declare for length-dependent rotations; see the layer's call.
            position_dtype: floating for positions that are not whole.
        """
        window = self.window if window is None else check_window(window)
        if window is not None and not window_bounds(self._acting(), self.causal, positions_from_caller=True):
            raise ValueError("window: tokens behind it still count for this layer, so slots cannot be reused")
        check_length(length)
        with torch.no_grad():
            token = self.q_proj.weight.new_zeros(1, 1, self.dim)
            _, k, v, last = self._project(token, None, None, None)
            states = [token_state_of(e, token) for e in self._acting()]
        if last:
            raise ValueError(f"static_cache: {type(self).__name__} keeps more of its newest token than keys and values")
        return StaticKVCache(
            [k, v, *states], batch_size, capacity,
            axes=max(self.axes, 1), window=window, position_dtype=position_dtype,
            rotated=rotates_before_cache(self._acting(), length, None), length=length,
            newest_last=by_order(self._acting()),
        )  # fmt: skip

    def shift(self, cache: KVCache, by: int) -> None:
        """Move what this layer's cache keeps by so many positions; see `KVCache.shift`."""
        cache.shift(by, self._all_encodings())

    def keep(self, cache: KVCache | StaticKVCache, indices: Tensor, *, close_up: bool = False) -> None:
        """Forget all tokens of this layer's cache but some; see `KVCache.keep`."""
        cache.keep(indices, self._all_encodings(), close_up=close_up)

    def drop(self, cache: KVCache | StaticKVCache, indices: Tensor, *, close_up: bool = False) -> None:
        """Forget some tokens of this layer's cache; see `KVCache.drop`."""
        cache.drop(indices, self._all_encodings(), close_up=close_up)

    def join(self, cache: KVCache | StaticKVCache, prefix: KVCache) -> None:
        """Put a prefix before the tokens of this layer's cache; see `KVCache.join`."""
        cache.join(prefix, self._all_encodings())

    def _all_encodings(self) -> list[Encoding]:
        """Of x and inside attention."""
        return [*(e for e in self.embeddings if isinstance(e, Encoding)), *self._acting()]

    def _acting(self) -> list[Encoding]:
        """The encodings that act inside attention."""
        return cast("list[Encoding]", _members(self, "encodings"))

    def _project(
        self,
        x: Tensor,
        attention_mask: Tensor | None,
        segments: Tensor | None,
        cache: KVCache | StaticKVCache | None,
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
        """q ``(batch, heads, tokens, head_dim)``, k, v ``(batch, num_kv_heads, tokens, head_dim)``; `KVCache.last`."""
        (batch, tokens, _), (_, width, *_, q_normed, k_normed, _) = x.shape, self._settings
        # As many heads as the projections give: under tensor parallelism those of the rank.
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q = q.view(batch, tokens, q.shape[-1] // width, width).transpose(1, 2)
        k = k.view(batch, tokens, k.shape[-1] // width, width).transpose(1, 2)
        v = v.view(batch, tokens, v.shape[-1] // width, width).transpose(1, 2)
        q = self.q_norm(q) if q_normed and self.q_norm is not None else q
        k = self.k_norm(k) if k_normed and self.k_norm is not None else k
        return q, k, v, ()

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, call: Callable[..., Tensor]) -> Tensor:
        """Results of the heads, ``(batch, heads, tokens, value_dim)``; ``call`` is `attention` with all but these."""
        return call(q, k, v)

    def _merge(self, out: Tensor, x: Tensor) -> Tensor:
        """The heads' results ``(batch, heads, tokens, head_dim)`` as ``(batch, tokens, dim)``."""
        tokens = out.transpose(1, 2).flatten(2)
        if self._settings[-1] and self.head_norm is not None:
            tokens = self.head_norm(tokens.flatten(0, 1)).view(tokens.shape)  # each token is a row of its own
        merged: Tensor = self.o_proj(tokens)
        return merged

    def extra_repr(self) -> str:
        return f"{self.dim}, num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, head_dim={self.head_dim}"


def _members(layer: nn.Module, name: str) -> list[Any]:
    """The modules of a list, whose own methods a compiler would compare as well; see SETTINGS."""
    held = layer._modules[name]
    return [] if held is None else [*held._modules.values()]


def checked_positions(positions: Tensor | None, x: Tensor, axes: int, *, plain_positions: bool) -> Tensor | None:
    """Positions of the tokens of ``x``, those of text on all axes; a ValueError where they do not fit."""
    if positions is not None and axes:
        if plain_positions and is_plain(positions, x[:, None], axes):
            positions = on_all_axes(positions, axes)
        check("positions", positions, x.shape[1], x.shape[0], axes)
    elif axes > 1 and not plain_positions:
        raise ValueError(
            f"positions must be given: these encodings need {axes} coordinates a position, (tokens, {axes}) or (batch, "
            f"tokens, {axes}); posenc.positions.grid(rows, columns) makes an image's"
        )
    return positions


def _check_others(
    x: Tensor, segments: Tensor | None, cache: KVCache | StaticKVCache | None, tables: Sequence[Table] | None
) -> None:
    """Raise a ValueError where documents, a cache or tables are not what a layer's call takes."""
    if segments is not None:
        _check_segments(segments, x)
    if cache is not None and not isinstance(cache, KVCache | StaticKVCache):
        raise ValueError(f"cache must be a KVCache, a StaticKVCache or None, got {shown(cache)}")
    if tables is not None and not (
        isinstance(tables, list | tuple) and all(isinstance(table, tuple) for table in tables)
    ):
        raise ValueError(f"tables must hold the result of each rotary encoding's table(...), got {shown(tables)}")


def _followed(
    x: Tensor,
    positions: Tensor | None,
    attention_mask: Tensor | None,
    segments: Tensor | None,
    cache: KVCache | StaticKVCache | None,
    axes: int,
) -> tuple[Tensor | None, bool]:
    """Positions of the tokens of x, None where no encoding reads any; and whether each row has its own."""
    if axes == 0 or positions is not None:
        return positions if axes else None, False
    if isinstance(cache, StaticKVCache):
        return cache._following(x.shape[1], attention_mask), True
    if cache is not None and cache.positions_from_caller:
        cache._check_goes_on()
    counted = default_positions(x.shape[1], x.device, attention_mask=attention_mask, segments=segments, cache=cache)
    return on_all_axes(counted, axes) if axes > 1 else counted, counted.ndim == 2


def rotates_before_cache(encodings: Sequence[Encoding], length: int | None, tables: Sequence[Table] | None) -> bool:
    """Whether keys may be cached rotated; otherwise `attention` rotates all of them in every call.

    That is exact only while a token's rotation depends on its position alone: under frequencies that depend on the
    length, and for encodings that read unrotated keys, the cache keeps keys as they were projected.
    """
    fixed, reads_unrotated = True, False
    for encoding in encodings:
        if isinstance(encoding, RotaryEncoding):
            fixed = fixed and encoding.cacheable(length)
        elif isinstance(encoding, ScoreEncoding):
            reads_unrotated = reads_unrotated or encoding.reads.unrotated
    if reads_unrotated:
        if tables is not None and not fixed:
            raise ValueError("tables cannot serve with an encoding that reads unrotated keys: declare length instead")
        return False
    return fixed or tables is not None


def _rotate(
    encodings: Sequence[Encoding],
    q: Tensor,
    k: Tensor,
    positions: Tensor | None,
    tables: Sequence[Table] | None,
    length: int | None,
    *,
    cached: bool,
) -> tuple[Tensor, Tensor]:
    """q and k after all rotations, by the tables if a caller passed them; ``cached``: other calls rotate other keys."""
    if tables is None:
        for encoding in encodings:  # each makes one table for both, and rotates them together where that is faster
            if not isinstance(encoding, RotaryEncoding):
                continue
            assert positions is not None, "a rotation reads positions"
            at = (positions, positions) if cached else near_origin(encoding, encodings, positions, positions)
            q, k = encoding(q, k, *at, length) if encoding.length_dependent else encoding(q, k, *at)
        return q, k
    rotary = [e for e in encodings if isinstance(e, RotaryEncoding)]
    if len(tables) != len(rotary):
        raise ValueError(f"tables must hold one per rotary encoding ({len(rotary)}), got {len(tables)}")
    for encoding, table in zip(rotary, tables, strict=True):
        q, k = encoding.rotate_queries(q, table), encoding.rotate(k, table)
    return q, k


def may_learn(modules: Iterable[nn.Module], x: Tensor) -> bool:
    """Whether a backward pass may follow a call; encodings that a layer borrows are not among its own modules."""
    return x.requires_grad or any(p.requires_grad for module in modules for p in module.parameters())


def check_widths(dim: int, num_heads: int, num_kv_heads: int | None, head_dim: int | None) -> tuple[int, int]:
    """Key heads and the width of a head; a ValueError unless the sizes of a layer fit together."""
    check_whole("dim", dim)
    num_kv_heads = check_kv_heads(num_heads, num_kv_heads)
    if head_dim is None:
        if dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads = {num_heads}, got {dim}; or give head_dim")
        return num_kv_heads, dim // num_heads
    check_whole("head_dim", head_dim)
    return num_kv_heads, head_dim


def _check_segments(segments: Tensor, x: Tensor) -> None:
    """Raise a ValueError unless documents fit the tokens of x."""
    fits = isinstance(segments, Tensor) and segments.ndim in (1, 2) and segments.shape[-1] == x.shape[1]
    if fits and (segments.ndim == 1 or segments.shape[0] == 1 or segments.shape[0] == x.shape[0]):
        return
    got = tuple(segments.shape) if isinstance(segments, Tensor) else shown(segments)
    raise ValueError(f"segments must be (tokens,) or (batch, tokens) = {tuple(x.shape[:2])}, got {got}")


def real_tokens(attention_mask: Tensor, x: Tensor) -> Tensor:
    """Padding as bool; integers 0 and 1, as tokenizers of transformers give them, stand for False and True."""
    mask = attention_mask
    if isinstance(mask, Tensor) and not mask.is_floating_point() and not mask.is_complex():
        mask = mask.bool()
    if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == x.shape[:2]:
        return mask
    raise ValueError(
        f"attention_mask must be bool (batch, tokens) = {tuple(x.shape[:2])}, True at real tokens, got {shown(mask)}"
    )
