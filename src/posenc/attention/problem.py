"""One call of attention, checked and sorted by place: what every path is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from posenc import positions as position
from posenc.encoding import (
    BiasEncoding,
    Context,
    EmbeddingEncoding,
    Encoding,
    RotaryEncoding,
    ScoreEncoding,
    WeightEncoding,
    place_of,
)

Causal = bool | Literal["positions"]


class Problem(NamedTuple):
    """Queries and keys are rotated already; ``bias``, ``score`` and ``weight`` are what is left of the list."""

    q: Tensor  # (batch, heads, queries, head_dim)
    k: Tensor  # (batch, kv_heads, keys, head_dim)
    v: Tensor  # (batch, kv_heads, keys, value_dim)
    q_pos: Tensor  # (*batch, queries)
    k_pos: Tensor  # (*batch, keys)
    aligned: bool  # positions are the default: keys 0 … n − 1, queries the last of them
    bias: tuple[BiasEncoding, ...]
    score: tuple[tuple[ScoreEncoding, Tensor | None], ...]  # with the features that each remembered
    weight: WeightEncoding | None
    weight_features: Tensor | None
    mask: Tensor | None  # (batch | 1, heads | 1, queries | 1, keys) bool
    segments: tuple[Tensor, Tensor] | None  # of queries (batch | 1, queries) and keys (batch | 1, keys)
    causal: Causal
    scale: float

    @property
    def training(self) -> bool:
        """Whether a backward pass may follow."""
        parameters = [p for b in self.bias for p in b.parameters()]
        return torch.is_grad_enabled() and any(t.requires_grad for t in (self.q, self.k, self.v, *parameters))

    @property
    def masked(self) -> bool:
        """Whether visibility depends on more than the order of the indices."""
        return self.mask is not None or self.segments is not None or self.causal == "positions"

    def visible(self, start: int = 0, stop: int | None = None) -> Tensor | None:
        """Which keys queries ``start … stop − 1`` may see, (batch | 1, heads | 1, rows, keys) bool; None = all."""
        queries, keys = self.q.shape[2], self.k.shape[2]
        stop = queries if stop is None else stop
        parts = []
        if self.causal == "positions":
            allowed = self.k_pos.unsqueeze(-2) <= self.q_pos[..., start:stop].unsqueeze(-1)
            parts.append(allowed.view(-1, 1, stop - start, keys))
        elif self.causal:
            newest = torch.arange(start, stop, device=self.q.device) + (keys - queries)
            parts.append((torch.arange(keys, device=self.q.device) <= newest[:, None])[None, None])
        if self.segments is not None:
            of_queries, of_keys = self.segments
            parts.append((of_queries[:, start:stop, None] == of_keys[:, None, :]).unsqueeze(1))
        if self.mask is not None:
            parts.append(self.mask if self.mask.shape[2] == 1 else self.mask[:, :, start:stop])
        if not parts:
            return None
        together = parts[0]
        for part in parts[1:]:
            together = together & part
        return together

    def bias_of(self, start: int = 0, stop: int | None = None) -> Tensor | None:
        """The summed bias for queries ``start … stop − 1``, (batch | 1, heads, rows, keys); None if there is none."""
        total: Tensor | None = None
        for encoding in self.bias:
            q_pos, k_pos = (precise(p, self.q.dtype) for p in (self.q_pos[..., start:stop], self.k_pos))
            term: Tensor = encoding(q_pos, k_pos)
            term = term if term.ndim == 4 else term.unsqueeze(0)
            total = term if total is None else total + term
        return total

    def context(self, mask: Tensor | None, features: Tensor | None) -> Context:
        """What a score or weight encoding sees, in float32 or better."""
        q, k = widen(self.q), widen(self.k)
        return Context(q, k, self.q_pos, self.k_pos, mask, features, self.scale)


def widen(x: Tensor) -> Tensor:
    """float32 or better: the precision in which scores live."""
    return x if x.dtype == torch.float64 else x.float()


def precise(positions: Tensor, dtype: torch.dtype) -> Tensor:
    """Positions in float64 for a float64 problem, so that a bias made of them is float64 as well."""
    return positions.double() if dtype == torch.float64 else positions


def pose(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Sequence[Encoding],
    *,
    q_pos: Tensor | None,
    k_pos: Tensor | None,
    x: Tensor | None,
    features: Sequence[Tensor | None] | None,
    mask: Tensor | None,
    segments: Tensor | tuple[Tensor, Tensor] | None,
    causal: Causal,
    scale: float | None,
) -> Problem:
    """Check a call, fill in its defaults, rotate queries and keys. Raises ValueErrors that name the argument."""
    check_tensors(q, k, v)
    encodings = check_encodings(encodings, q.shape[1])
    if causal not in (True, False, "positions"):
        raise ValueError(f"causal must be True, False or 'positions', got {causal!r}")
    aligned = q_pos is None and k_pos is None
    q_pos, k_pos = fill_positions(q, k, q_pos, k_pos, max([1, *(e.axes for e in encodings)]))
    if causal == "positions" and max([1, *(e.axes for e in encodings)]) > 1:
        raise ValueError("causal='positions' compares one coordinate; positions here have several: use causal=True")
    remembered = remember(encodings, x, features, k)
    for encoding in encodings:
        if isinstance(encoding, RotaryEncoding):
            q, k = encoding(q, k, q_pos, k_pos)
    pairs = list(zip(encodings, remembered, strict=True))
    weights = [(e, f) for e, f in pairs if isinstance(e, WeightEncoding)]
    weight, weight_features = weights[0] if weights else (None, None)
    return Problem(
        q,
        k,
        v,
        q_pos,
        k_pos,
        aligned,
        tuple(e for e in encodings if isinstance(e, BiasEncoding)),
        tuple((e, f) for e, f in pairs if isinstance(e, ScoreEncoding)),
        weight,
        weight_features,
        check_mask(mask, q, k),
        check_segments(segments, q, k),
        causal,
        q.shape[-1] ** -0.5 if scale is None else float(scale),
    )


def check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise a ValueError unless q, k and v fit together."""
    shapes = f"got q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(f"q, k and v must be (batch, heads, tokens, width), {shapes}")
    if not q.shape[0] == k.shape[0] == v.shape[0]:
        raise ValueError(f"q, k and v must have the same batch, {shapes}")
    if k.shape[1:3] != v.shape[1:3]:
        raise ValueError(f"k and v must have the same heads and tokens, {shapes}")
    if q.shape[3] != k.shape[3]:
        raise ValueError(f"q and k must have the same width, {shapes}")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"heads of q must be a multiple of the heads of k, {shapes}")
    if k.shape[2] == 0:
        raise ValueError(f"k must hold at least one key, {shapes}")
    if not q.dtype == k.dtype == v.dtype or not q.is_floating_point():
        raise ValueError(f"q, k and v must have one floating dtype, got {q.dtype}, {k.dtype}, {v.dtype}")


def check_encodings(encodings: Sequence[Encoding], num_heads: int) -> list[Encoding]:
    """The encodings as a list; a ValueError where one cannot take part in attention."""
    if isinstance(encodings, Encoding):
        raise ValueError(f"encodings must be a list, got one encoding: pass [{type(encodings).__name__}(...)]")
    encodings = list(encodings)
    for encoding in encodings:
        if not isinstance(encoding, Encoding):
            raise ValueError(f"encodings must hold encodings, got {type(encoding).__name__}")
        place_of(encoding)
        if isinstance(encoding, EmbeddingEncoding):
            name = type(encoding).__name__
            raise ValueError(f"encodings: {name} acts on token embeddings; call it on x before the projections")
        heads = getattr(encoding, "num_heads", num_heads)
        if heads != num_heads:
            raise ValueError(f"num_heads of {type(encoding).__name__} is {heads}, but q has {num_heads} heads")
    if sum(isinstance(e, WeightEncoding) for e in encodings) > 1:
        raise ValueError("encodings must hold at most one that takes the place of softmax")
    return encodings


def fill_positions(
    q: Tensor, k: Tensor, q_pos: Tensor | None, k_pos: Tensor | None, axes: int
) -> tuple[Tensor, Tensor]:
    """Positions checked, or the default: keys 0 … n − 1, queries the last of them."""
    queries, keys = q.shape[2], k.shape[2]
    either = k_pos if q_pos is None else q_pos
    if either is None:
        if axes > 1:
            raise ValueError(f"q_pos and k_pos must be given: these encodings want {axes} coordinates a position")
        counted = torch.arange(keys, device=q.device)
        return (counted if queries == keys else torch.arange(keys - queries, keys, device=q.device)), counted
    if (q_pos is None or k_pos is None) and queries != keys:
        missing = "q_pos" if q_pos is None else "k_pos"
        raise ValueError(f"{missing} must be given as well: q has {queries} tokens, k has {keys}")
    of_queries, of_keys = either if q_pos is None else q_pos, either if k_pos is None else k_pos
    position.check("q_pos", of_queries, queries, q.shape[0], axes)
    position.check("k_pos", of_keys, keys, q.shape[0], axes)
    return of_queries.to(q.device), of_keys.to(q.device)


def check_mask(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """The mask as (batch | 1, heads | 1, queries | 1, keys) bool."""
    if mask is None:
        return None
    batch, heads, queries, keys = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
    wanted = f"(queries, keys) = ({queries}, {keys}), (batch, queries, keys) or (batch, heads, queries, keys)"
    if mask.dtype != torch.bool:
        raise ValueError(
            f"mask must be bool, True where a query may look, got {mask.dtype}: mask.bool() converts 0 and 1"
        )
    shape = tuple(mask.shape)
    if mask.ndim == 2 and shape != (queries, keys) and shape == (batch, keys):
        raise ValueError(f"mask must be {wanted}; for padding of shape (batch, keys) pass mask[:, None, :]")
    if not 2 <= mask.ndim <= 4:
        raise ValueError(f"mask must be {wanted}, got {shape}")
    mask = mask[None, None] if mask.ndim == 2 else mask.unsqueeze(1) if mask.ndim == 3 else mask
    if any(
        got not in allowed
        for got, allowed in zip(mask.shape, ((1, batch), (1, heads), (1, queries), (keys,)), strict=True)
    ):
        raise ValueError(f"mask must be {wanted}, got {shape}")
    return mask.to(q.device)


def check_segments(
    segments: Tensor | tuple[Tensor, Tensor] | None, q: Tensor, k: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Segments of queries and of keys, each (batch | 1, tokens)."""
    if segments is None:
        return None
    queries, keys, batch = q.shape[2], k.shape[2], q.shape[0]
    if isinstance(segments, Tensor):
        if segments.shape[-1] != keys or queries > keys:
            raise ValueError(
                f"segments must be (tokens,) or (batch, tokens) for {keys} keys, whose last {queries} are the queries, "
                f"got {tuple(segments.shape)}; or pass a pair (of queries, of keys)"
            )
        segments = (segments[..., keys - queries :], segments)
    for name, part, tokens in (("queries", segments[0], queries), ("keys", segments[1], keys)):
        if part.ndim not in (1, 2) or part.shape[-1] != tokens or (part.ndim == 2 and part.shape[0] not in (1, batch)):
            raise ValueError(f"segments of {name} must be (*batch, {tokens}), got {tuple(part.shape)}")
    of_queries, of_keys = (part.to(q.device).view(-1, part.shape[-1]) for part in segments)
    return of_queries, of_keys


def remember(
    encodings: Sequence[Encoding], x: Tensor | None, features: Sequence[Tensor | None] | None, k: Tensor
) -> list[Tensor | None]:
    """What each encoding keeps of the keys' tokens: given, or made from x; None where it keeps nothing."""
    if features is not None:
        if x is not None:
            raise ValueError("features and x must not both be given: features are what remember(x) gave")
        if len(features) != len(encodings):
            raise ValueError(f"features must hold one entry per encoding ({len(encodings)}), got {len(features)}")
        return list(features)
    if x is None:
        return [None] * len(encodings)
    if x.ndim != 3 or x.shape[:2] != (k.shape[0], k.shape[2]):
        raise ValueError(f"x must be (batch, keys, dim) = ({k.shape[0]}, {k.shape[2]}, dim), got {tuple(x.shape)}")
    return [e.remember(x) if isinstance(e, ScoreEncoding) else None for e in encodings]
