"""The door of attention: every argument is checked and brought to one form before a path sees it.

All errors are ValueErrors that name the argument, say what was expected and what came. Values are not looked at,
only shapes and dtypes, so that compilers and accelerators never have to wait.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from posenc import positions as position
from posenc.attention.visibility import Causal as Causal
from posenc.encoding import EmbeddingEncoding, Encoding, WeightEncoding, place_of


def check_causal(causal: Causal, encodings: Sequence[Encoding]) -> int:
    """Raise a ValueError for an unknown order; returns the coordinates that a position has, 0: nobody reads any."""
    several = sorted({encoding.axes for encoding in encodings if encoding.axes})
    axes = several[-1] if several else 0
    if causal not in (True, False, "positions"):
        raise ValueError(f"causal must be True, False or 'positions', got {causal!r}")
    if causal == "positions" and axes > 1:
        raise ValueError("causal='positions' compares one coordinate; positions here have several: use causal=True")
    if len(several) > 1:
        raise ValueError(f"encodings must agree on how many coordinates a position has, got {several}")
    return axes


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
    for name, given, tokens in (("q_pos", q_pos, queries), ("k_pos", k_pos, keys)):
        if given is not None:
            position.check(name, given, tokens, q.shape[0], axes)
    of_queries, of_keys = either if q_pos is None else q_pos, either if k_pos is None else k_pos
    return position.wide(of_queries.to(q.device)), position.wide(of_keys.to(q.device))


def without_coordinates(positions: Tensor | None, of: Tensor) -> Tensor | None:
    """Positions that nobody reads, ``(tokens, axes)`` or ``(batch, tokens, axes)`` brought to one coordinate."""
    if not isinstance(positions, Tensor):
        return positions
    batch, tokens = of.shape[0], of.shape[2]
    rows = positions.ndim == 2 and positions.shape[0] == tokens and positions.shape[0] not in (1, batch)
    return positions[..., 0] if positions.ndim == 3 or rows else positions


def check_window(window: int | None) -> int | None:
    """Raise a ValueError unless a window is a whole number of tokens."""
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise ValueError(f"window must be an integer of at least 1, the tokens that a query sees, got {window!r}")
    return window


def check_tolerance(tolerance: float) -> float:
    """Raise a ValueError unless a tolerance is a share of a row's weight."""
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance must be at least 0 and below 1, a share of each row's weight, got {tolerance!r}")
    return float(tolerance)


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
    if mask.ndim == 2 and shape == (batch, keys) and batch not in (1, queries):
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
    if len(segments) != 2:
        raise ValueError(f"segments must be a tensor or a pair (of queries, of keys), got {len(segments)} parts")
    for name, part, tokens in (("queries", segments[0], queries), ("keys", segments[1], keys)):
        if part.ndim not in (1, 2) or part.shape[-1] != tokens or (part.ndim == 2 and part.shape[0] not in (1, batch)):
            raise ValueError(f"segments of {name} must be (*batch, {tokens}), got {tuple(part.shape)}")
    of_queries, of_keys = (part.to(q.device).view(-1, part.shape[-1]) for part in segments)
    return of_queries, of_keys
