"""The door of attention, second half: order, numbers, masks and documents; see `checks`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.arguments import LONGEST, shown, truth_of
from posenc.attention.visibility import Causal as Causal


def order_of(causal: object, axes: int = 1) -> Causal:
    """The order that ``causal`` means: True, False or "positions". Numbers and numpy's bools count by their value.

    Args:
        causal: as it was given; None: True, where positions have one coordinate.
        axes: coordinates of a position, 0 where nobody reads any.
    """
    if causal is None and axes < 2:
        return True
    if causal is None:
        raise ValueError(
            f"causal must be stated where positions have {axes} coordinates: causal=False for the patches of an image, "
            "which attend to one another in both directions, causal=True for tokens of a stream in their order"
        )
    if isinstance(causal, str) and causal == "positions":
        return "positions"
    truth = truth_of(causal)
    if truth is not None:
        return truth
    hint = ": take .item() of it" if isinstance(causal, Tensor) else ""
    raise ValueError(f"causal must be True, False or 'positions', got {shown(causal)}{hint}")


def check_window(window: int | None) -> int | None:
    """Raise a ValueError unless a window is a whole number of tokens."""
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= LONGEST):
        raise ValueError(f"window must be an integer from 1 to 2^53, the tokens that a query sees, got {shown(window)}")
    return window


def check_tolerance(tolerance: float) -> float:
    """Raise a ValueError unless a tolerance is a share of a row's weight."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
        raise ValueError(
            f"tolerance must be at least 0 and below 1, a share of each row's weight, got {shown(tolerance)}"
        )
    return float(tolerance)


def check_scale(scale: float | None, head_dim: int) -> float:
    """The factor on q·k; a ValueError unless it is a finite number."""
    if scale is None:
        return float(head_dim**-0.5)
    scalar = type(scale).__module__ == "numpy" and getattr(scale, "ndim", 0) == 0
    number = scale.item() if scalar else scale  # type: ignore[attr-defined]
    if not isinstance(number, bool) and isinstance(number, int | float | torch.SymFloat) and _finite(number):
        return float(number)
    hint = ": multiply q by it" if isinstance(scale, Tensor) else ""
    raise ValueError(f"scale must be a finite number, or None for 1/√head_dim, got {shown(scale)}{hint}")


def _finite(number: float | torch.SymFloat) -> bool:
    try:
        return -math.inf < float(number) < math.inf  # compilers cannot trace math.isfinite of a symbol
    except OverflowError:  # an integer beyond all floats
        return False


def check_mask(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """The mask as (batch | 1, heads | 1, queries | 1, keys) bool."""
    if mask is None:
        return None
    batch, heads, queries, keys = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
    if not isinstance(mask, Tensor):
        raise ValueError(f"mask must be a bool tensor {_mask_of(queries, keys)}, got {shown(mask)}")
    if mask.dtype != torch.bool:
        hint = "mask >= 0 converts one of 0 and -inf" if mask.is_floating_point() else "mask.bool() converts 0 and 1"
        raise ValueError(f"mask must be bool, True where a query may look, got {mask.dtype}: {hint}")
    shape = tuple(mask.shape)
    if mask.ndim == 2 and shape == (batch, keys) and batch not in (1, queries):
        raise ValueError(
            f"mask must be {_mask_of(queries, keys)}; for padding of shape (batch, keys) pass mask[:, None, :]"
        )
    if not 2 <= mask.ndim <= 4:
        raise ValueError(f"mask must be {_mask_of(queries, keys)}, got {shape}")
    mask = mask[None, None] if mask.ndim == 2 else mask.unsqueeze(1) if mask.ndim == 3 else mask
    of_batch, of_heads, of_queries, of_keys = mask.shape
    fits = (of_batch == 1 or of_batch == batch) and (of_heads == 1 or of_heads == heads)
    if not (fits and (of_queries == 1 or of_queries == queries) and of_keys == keys):
        raise ValueError(f"mask must be {_mask_of(queries, keys)}, got {shape}")
    return mask.to(q.device)


def _mask_of(queries: int, keys: int) -> str:
    """What a mask may look like; made for an error alone, as a compiler fixes every size that it sees in a text."""
    return f"(queries, keys) = ({queries}, {keys}), (batch, queries, keys) or (batch, heads, queries, keys)"


def check_segments(
    segments: Tensor | tuple[Tensor, Tensor] | None, q: Tensor, k: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Segments of queries and of keys, each (batch | 1, tokens)."""
    if segments is None:
        return None
    queries, keys, batch = q.shape[2], k.shape[2], q.shape[0]
    if isinstance(segments, Tensor):
        if segments.ndim not in (1, 2) or segments.shape[-1] != keys or queries > keys:
            raise ValueError(
                f"segments must be (tokens,) or (batch, tokens) for {keys} keys, whose last {queries} are the queries, "
                f"got {tuple(segments.shape)}; or pass a pair (of queries, of keys)"
            )
        segments = (segments[..., keys - queries :], segments)
    if not isinstance(segments, tuple | list) or len(segments) != 2:
        raise ValueError(f"segments must be a tensor or a pair (of queries, of keys), got {shown(segments)}")
    for name, part, tokens in (("queries", segments[0], queries), ("keys", segments[1], keys)):
        if not isinstance(part, Tensor):
            raise ValueError(f"segments of {name} must be a tensor (*batch, {tokens}), got {shown(part)}")
        fits = part.ndim in (1, 2) and part.shape[-1] == tokens
        if fits and part.ndim == 2:  # by ==, as a compiler's symbols of one size need not be members of one another
            fits = part.shape[0] == 1 or part.shape[0] == batch
        if not fits:
            raise ValueError(f"segments of {name} must be (*batch, {tokens}), got {tuple(part.shape)}")
    of_queries, of_keys = (part.to(q.device) for part in segments)
    return of_queries if of_queries.ndim == 2 else of_queries[None], of_keys if of_keys.ndim == 2 else of_keys[None]
