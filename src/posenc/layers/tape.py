"""The attention layer of TAPE: its weights also read the position states of the tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from posenc.backends.call import Backend
from posenc.encoding import Encoding, ScoreEncoding, Table
from posenc.layers.cache import KVCache, StaticKVCache
from posenc.layers.self_attention import SelfAttention
from posenc.rotary._tape_states import TAPEWithStates
from posenc.rotary.tape import TAPE


class TAPEAttention(nn.Module):
    """Self-attention with position states, ``x (batch, tokens, dim), states → (batch, tokens, dim), states``.

    A block is ``y, states = layer(norm(x), states=states); x = x + y; m = mlp(norm(x));
    states = layer.tape.updated(states, m); x = x + m``; the first one's states are None. A cache keeps the states with
    the values, three times their width.

    Args:
        dim: width of x, and of what the MLP puts out.
        num_heads: query, key and value heads.
        head_dim: width of a head, default ``dim // num_heads``.
        position_size, base: see `TAPE`.
        encodings: others to combine with it, such as biases; no rotations, and nothing that reads values or adds to
            them, since the states follow the values here. A `TAPE` among them replaces the default one.
        qk_norm, bias, causal, scale, backend: see `SelfAttention`.

    >>> first, second = TAPEAttention(64, 4), TAPEAttention(64, 4)
    >>> x = torch.randn(1, 10, 64)
    >>> y, states = first(x)
    >>> y, states = second(x + y, states=first.tape.updated(states, x))
    >>> y.shape, states[0].shape
    (torch.Size([1, 10, 64]), torch.Size([1, 4, 10, 16]))
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        position_size: int = 64,
        base: float = 10_000.0,
        encodings: Sequence[Encoding] = (),
        qk_norm: bool = False,
        bias: bool = False,
        causal: bool = True,
        scale: float | None = None,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        make = partial(
            _Wide, dim, num_heads,
            head_dim=head_dim, qk_norm=qk_norm, bias=bias, causal=causal, scale=scale, backend=backend,
        )  # fmt: skip
        if not any(isinstance(e, TAPE) for e in encodings):
            width = dim // num_heads if head_dim is None else head_dim
            encodings = [TAPE(width, num_heads=num_heads, dim=dim, position_size=position_size, base=base), *encodings]
        self.attention = make(encodings=encodings)

    @property
    def tape(self) -> TAPE:
        """The encoding, for `TAPE.updated` after the MLP."""
        return self.attention.tape

    def forward(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        *,
        states: Table | None = None,
        attention_mask: Tensor | None = None,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        cache: KVCache | None = None,
        window: int | None = None,
    ) -> tuple[Tensor, Table]:
        """What is added to the stream, and the states after attention, two of ``(batch, heads, tokens, head_dim)``.

        Args:
            x, positions, attention_mask, mask, segments, window: see `SelfAttention`.
            states: of these tokens, of the layer before; None: the first layer's, of their positions.
            cache: a `KVCache` of this layer's own.
        """
        if isinstance(cache, StaticKVCache):
            raise ValueError("cache must be a KVCache: a static one has no room for states in addition to values")
        inner = self.attention
        if states is None:
            here = inner.token_positions(x, positions, attention_mask, segments, cache)
            states = self.tape.table(here, like=x)
            if states[0].ndim == 3:  # positions are the same in all rows
                states = states[0].unsqueeze(0), states[1].unsqueeze(0)
        shape = (x.shape[0], inner.num_heads, x.shape[1], inner.head_dim)
        table = states[0].expand(shape), states[1].expand(shape)
        joined = inner(
            x,
            positions,
            attention_mask=attention_mask,
            mask=mask,
            segments=segments,
            cache=cache,
            tables=[table],
            window=window,
        )
        y, cos, sin = torch.split(joined, [inner.dim, shape[1] * shape[3], shape[1] * shape[3]], -1)
        read = (
            torch.unflatten(cos, -1, shape[1::2]).transpose(1, 2),
            torch.unflatten(sin, -1, shape[1::2]).transpose(1, 2),
        )
        return y, self.tape.attended(table, read)

    if TYPE_CHECKING:  # nn.Module types calls as Any
        __call__ = forward


class _Wide(SelfAttention):
    """Self-attention whose values are followed by the states, and its results by what the weights read of them."""

    @property
    def tape(self) -> TAPE:
        (tape,) = (e for e in self._acting() if isinstance(e, TAPE))
        return tape

    def token_positions(
        self,
        x: Tensor,
        positions: Tensor | None,
        attention_mask: Tensor | None,
        segments: Tensor | None,
        cache: KVCache | None,
    ) -> Tensor:
        """Positions of the tokens of x."""
        here, _ = self._positions(x, positions, attention_mask, segments, cache)
        assert here is not None  # as a rotation reads them
        return here

    def _project(
        self,
        x: Tensor,
        attention_mask: Tensor | None,
        segments: Tensor | None,
        cache: KVCache | StaticKVCache | None,
        tables: Sequence[Table] | None,
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
        q, k, v, last = super()._project(x, attention_mask, segments, cache, tables)
        (states,) = tables or ()
        return q, k, torch.cat([v, *(state.to(v.dtype) for state in states)], -1), last

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, call: Callable[..., Tensor]) -> Tensor:
        """Where an encoding reads unrotated q and k, they are rotated here, by the states that follow the values."""
        acting = self._acting()
        if not any(isinstance(e, ScoreEncoding) and e.reads.unrotated for e in acting):
            return call(q, k, v)
        _, *states = v.chunk(3, -1)
        by_states = [TAPEWithStates(e, (states[0], states[1])) if isinstance(e, TAPE) else e for e in acting]
        return call(q, k, v, encodings=by_states)

    def _merge(self, out: Tensor, x: Tensor) -> Tensor:
        values, *read = out.chunk(3, -1)
        return torch.cat([super()._merge(values, x), *(of_states.transpose(1, 2).flatten(2) for of_states in read)], -1)
