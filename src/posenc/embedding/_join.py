"""How an embedding of positions meets the embedding of tokens, and the validation that all embeddings share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from posenc.positions import checking as position

Combine = Literal["add", "concat"]


def check_combine(combine: str) -> None:
    """Raise a ValueError unless ``combine`` is known."""
    if combine not in get_args(Combine):
        raise ValueError(f"combine must be one of {get_args(Combine)}, got {combine!r}")


def checked_positions(x: Tensor, positions: Tensor | None, dim: int, combine: Combine, axes: int = 1) -> Tensor:
    """The positions on the device of ``x``, by default counted from 0; a ValueError unless both fit ``dim``.

    Tokens with several coordinates have no default: their number does not say how many rows and columns there are.
    """
    if x.ndim != 3 or (combine == "add" and x.shape[-1] != dim):
        width = dim if combine == "add" else "any width"
        raise ValueError(f"x must be (batch, tokens, {width}), got {tuple(x.shape)}")
    if positions is None:
        if axes > 1:
            raise ValueError(
                f"positions must be given where axes is {axes}, such as posenc.positions.grid(rows, columns)"
            )
        return torch.arange(x.shape[1], device=x.device)
    position.check("positions", positions, tokens=x.shape[1], batch=x.shape[0], axes=axes)
    return positions.to(x.device)


def by_axis(positions: Tensor, axes: int) -> Tensor:
    """Positions as coordinates ``(*batch, tokens, axes)``; a ValueError unless they are that, or ``axes`` is 1."""
    position.check_dtype("positions", positions)
    if axes == 1:
        return positions.unsqueeze(-1)
    if positions.ndim < 2 or positions.shape[-1] != axes:
        raise ValueError(f"positions must be (*batch, tokens, {axes}), got {tuple(positions.shape)}")
    return positions


def with_waves(
    x: Tensor,
    positions: Tensor | None,
    encode: Callable[[Tensor, torch.dtype], Tensor],
    *,
    dim: int,
    axes: int = 1,
    combine: Combine = "add",
) -> Tensor:
    """``x`` joined with ``encode(positions, dtype)``, validated, in float64 where ``x`` is, else float32."""
    at = checked_positions(x, positions, dim, combine, axes)
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return join(x, encode(at, dtype), combine)


def join(x: Tensor, encoded: Tensor, combine: Combine) -> Tensor:
    """``x`` (batch, tokens, width) with ``encoded`` (*batch, tokens, dim) added or appended, in the dtype of ``x``.

    The sum is taken in the wider dtype of the two and rounded once.
    """
    if combine == "add":
        return (x + encoded).to(x.dtype)
    return torch.cat([x, encoded.to(x.dtype).expand(*x.shape[:-1], -1)], -1)
