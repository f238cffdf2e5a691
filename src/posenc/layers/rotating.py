"""Rotations inside a layer: at its door where keys may be cached rotated, else call by call in `attention`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from posenc.encoding import Encoding, RotaryEncoding, ScoreEncoding, Table


def rotates_here(acting: Sequence[Encoding], length: int | None, tables: Sequence[Table] | None) -> bool:
    """Whether keys may be rotated before they are cached; otherwise `attention` does it, call by call."""
    fixed, looked_at = True, False
    for encoding in acting:
        if isinstance(encoding, RotaryEncoding):
            fixed = fixed and encoding.fixed(length)
        elif isinstance(encoding, ScoreEncoding):
            looked_at = looked_at or encoding.reads.unrotated
    if looked_at:
        if tables is not None and not fixed:
            raise ValueError("tables cannot serve beside an encoding that looks at content: declare length instead")
        return False
    return fixed or tables is not None


def rotate(
    acting: Sequence[Encoding],
    q: Tensor,
    k: Tensor,
    positions: Tensor | None,
    tables: Sequence[Table] | None,
    length: int | None,
) -> tuple[Tensor, Tensor]:
    """q and k through all rotations, by their tables where these are given."""
    rotary = [e for e in acting if isinstance(e, RotaryEncoding)]
    if tables is None:
        for encoding in rotary:  # each makes one table for both, and turns them as one where that is faster
            span = (length,) if encoding.length_dependent else ()
            q, k = nn.Module.__call__(encoding, q, k, positions, positions, *span)
        return q, k
    if len(tables) != len(rotary):
        raise ValueError(f"tables must hold one per rotary encoding ({len(rotary)}), got {len(tables)}")
    for encoding, table in zip(rotary, tables, strict=True):
        q, k = encoding.rotate_queries(q, table), encoding.rotate(k, table)
    return q, k
