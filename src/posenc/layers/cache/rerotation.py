"""Moves cached rotated keys to other positions by rotating them further.

    R(p + n) k = R(n) R(p) k,   R(n) from a table of n and one of 0, whose quotient has neither gain nor offset

That holds wherever a rotation rotates pairs of channels by frequencies that are the same at all positions. It does not
for a spectrum that spans the length of a row, unless that is declared; for LongRoPE with other frequencies for its
first tokens; for generators that do not commute (LieRE).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.encoding import EmbeddingEncoding, Encoding, RotaryEncoding, Table
from posenc.rotary._leading import Leading


def rerotate(
    k: Tensor,
    encodings: RotaryEncoding | Sequence[Encoding],
    shift: int | Tensor,
    *,
    length: int | None = None,
) -> Tensor:
    """Move rotated keys by ``shift`` tokens, correct to one rounding of their dtype.

    Args:
        k: ``(batch, num_kv_heads, tokens, head_dim)``, rotated by ``encodings`` at any positions.
        encodings: a rotary encoding, or a list; what is not rotary in it is skipped.
        shift: positions to move by, negative toward the start: an int for all tokens and coordinates, or a tensor
            ``(*batch, tokens)``, with a last axis of coordinates where positions have one. Tokens without a place
            (`positions.NO_POSITION`) want a shift of 0.
        length: tokens that were declared for length-dependent rotations.

    Returns:
        New keys, of the shape and dtype of k.

    Raises:
        ValueError: for a rotation that a token's shift alone does not tell.

    >>> from posenc import RoPE
    >>> rope, k = RoPE(64), torch.randn(1, 8, 16, 64)
    >>> at = lambda first: rope.rotate(k, rope.table(torch.arange(first, first + 16)))
    >>> torch.allclose(rerotate(at(100), rope, -100), at(0), atol=1e-5)
    True
    """
    listed = [encodings] if isinstance(encodings, Encoding) else list(encodings)
    check_movable([e for e in listed if not isinstance(e, EmbeddingEncoding)], length)
    if isinstance(shift, Tensor) and (shift.dtype == torch.bool or shift.is_complex()):
        raise ValueError(f"shift must be numbers of tokens, got {shift.dtype}")
    for encoding in listed:
        if isinstance(encoding, RotaryEncoding):
            k = encoding.rotate(k, _turn(encoding, shift, length, k))
    return k


def check_movable(encodings: Sequence[Encoding], length: int | None, *, rotated: bool = True) -> None:
    """Raise a ValueError unless keys under these encodings can move, cached rotated ones by rotating them further."""
    rotary = [e for e in encodings if isinstance(e, RotaryEncoding)]
    for encoding in encodings:
        if isinstance(encoding, EmbeddingEncoding):
            name = type(encoding).__name__
            raise ValueError(
                f"encodings: keys cannot move under {name}, which is part of the tokens they were computed from"
            )
    if not rotated:
        return
    for encoding in rotary:
        reason = _why_not(encoding, length)
        if reason is not None:
            raise ValueError(f"encodings: keys cannot be turned on under {type(encoding).__name__}: {reason}")
    if len(rotary) > 1 and len({getattr(e, "layout", None) for e in rotary}) > 1:
        names = ", ".join(type(e).__name__ for e in rotary)
        raise ValueError(f"encodings: keys cannot be turned on under {names}: they pair channels in different ways")


def _why_not(encoding: RotaryEncoding, length: int | None) -> str | None:
    """What keeps keys under an encoding from being rotated further; None: nothing."""
    encoding = encoding.inner if isinstance(encoding, Leading) else encoding
    if not encoding.composes_by_shift:
        return "it is not a rotation, so its effect at one position tells nothing about another"
    if not encoding.cacheable(length):
        return "its frequencies depend on the length of a row: declare a length"
    spectrum = getattr(encoding, "spectrum", None)
    if spectrum is not None and spectrum(length).start is not None:
        return "its first tokens are rotated by other frequencies than the rest"
    head_dim = int(getattr(encoding, "head_dim", 0))
    table = encoding.table(torch.zeros((1, encoding.axes) if encoding.axes > 1 else 1), length)
    pairs = len(table) == 2 and table[0].shape == table[1].shape and table[0].shape[-1] <= head_dim // 2
    return None if pairs else "it does not rotate pairs of channels"


def _turn(encoding: RotaryEncoding, shift: int | Tensor, length: int | None, k: Tensor) -> Table:
    """The table of R(shift) alone, in the precision of a rotation of k."""
    exact = torch.empty((), dtype=torch.float64, device=k.device if k.device.type != "mps" else "cpu")
    if not isinstance(shift, Tensor):
        shift = torch.full((1, encoding.axes) if encoding.axes > 1 else (1,), shift, device=k.device)
    there, start = (encoding.table(at, length, like=exact) for at in (shift, torch.zeros_like(shift)))
    (cos, sin), (first_cos, first_sin) = there, start
    squared = first_cos.square() + first_sin.square()
    wide = torch.promote_types(k.dtype, torch.float32)
    return tuple(
        (part / squared).to(k.device, wide)
        for part in (cos * first_cos + sin * first_sin, sin * first_cos - cos * first_sin)
    )
