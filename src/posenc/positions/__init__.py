"""Where tokens are: builders of positions and segments for the ways in which batches are laid out.

Positions are plain tensors: integers (exact) or float32/float64, ``(tokens,)`` or ``(batch, tokens)``;
grids add a last axis of coordinates. Segments number the documents of a packed row: a query sees keys of
its own segment only. Every function returns int64 tensors on the device of its argument.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def from_mask(mask: Tensor) -> Tensor:
    """Positions of padded rows: real tokens count from 0, wherever the padding is.

    Args:
        mask: ``(batch, tokens)``, True or 1 at real tokens, as Hugging Face's ``attention_mask``.

    Returns:
        ``(batch, tokens)``. Padding before the first real token gets 0 and padding after it repeats a
        position, both in the range of real ones: harmless, as long as the mask hides padding from attention
        (``attention(..., mask=mask[:, None, :])``).

    >>> from_mask(torch.tensor([[1, 1, 1], [0, 0, 1]]))
    tensor([[0, 1, 2],
            [0, 0, 0]])
    """
    if mask.ndim != 2:
        raise ValueError(f"mask must be (batch, tokens), got {tuple(mask.shape)}")
    return (mask.bool().long().cumsum(-1) - 1).clamp(min=0)


def from_segments(segments: Tensor) -> Tensor:
    """Positions that restart at 0 with each segment.

    Args:
        segments: ``(*batch, tokens)``, equal numbers at neighbouring tokens of one document.

    >>> from_segments(torch.tensor([0, 0, 0, 1, 1]))
    tensor([0, 1, 2, 0, 1])
    """
    if segments.ndim not in (1, 2):
        raise ValueError(f"segments must be (tokens,) or (batch, tokens), got {tuple(segments.shape)}")
    index = torch.arange(segments.shape[-1], device=segments.device).expand(segments.shape)
    starts = torch.ones_like(segments, dtype=torch.bool)
    starts[..., 1:] = segments[..., 1:] != segments[..., :-1]
    return index - torch.where(starts, index, 0).cummax(-1).values


def segments_from_cu_seqlens(cu_seqlens: Tensor, total: int | None = None) -> Tensor:
    """Segment numbers ``(total,)`` of documents packed end to end.

    Args:
        cu_seqlens: ``(documents + 1,)``, cumulative lengths starting at 0, as for flash-attention's varlen functions.
        total: tokens in the row; default ``cu_seqlens[-1]``. Tokens past the last document form a segment of their own.

    >>> segments_from_cu_seqlens(torch.tensor([0, 3, 5]))
    tensor([0, 0, 0, 1, 1])
    """
    if cu_seqlens.ndim != 1 or cu_seqlens.numel() < 2 or cu_seqlens.is_floating_point():
        raise ValueError(
            f"cu_seqlens must be integers (documents + 1,), got {cu_seqlens.dtype} {tuple(cu_seqlens.shape)}"
        )
    if int(cu_seqlens[0]) != 0 or bool((cu_seqlens.diff() < 0).any()):
        raise ValueError(f"cu_seqlens must start at 0 and never fall, got {cu_seqlens.tolist()}")
    last = int(cu_seqlens[-1])
    if total is not None and total < last:
        raise ValueError(f"total must be at least cu_seqlens[-1] = {last}, got {total}")
    index = torch.arange(last if total is None else total, device=cu_seqlens.device)
    return torch.bucketize(index, cu_seqlens[1:].long(), right=True)


def from_cu_seqlens(cu_seqlens: Tensor, total: int | None = None) -> Tensor:
    """Positions ``(total,)`` of documents packed end to end: each document counts from 0.

    >>> from_cu_seqlens(torch.tensor([0, 3, 5]))
    tensor([0, 1, 2, 0, 1])
    """
    return from_segments(segments_from_cu_seqlens(cu_seqlens, total))


def after(past: int | Tensor, tokens: int = 1) -> Tensor:
    """Positions of the next ``tokens`` tokens of a decoding step.

    Args:
        past: tokens that each row already has; an int, or ``(batch,)`` for rows of different lengths.

    Returns:
        ``(tokens,)``, or ``(batch, tokens)``.

    >>> after(torch.tensor([5, 2]), 2)
    tensor([[5, 6],
            [2, 3]])
    """
    if tokens < 1:
        raise ValueError(f"tokens must be at least 1, got {tokens}")
    if isinstance(past, int):
        if past < 0:
            raise ValueError(f"past must not be negative, got {past}")
        return torch.arange(past, past + tokens)
    if past.ndim != 1 or past.is_floating_point():
        raise ValueError(f"past must be an int or integers (batch,), got {past.dtype} {tuple(past.shape)}")
    return past.long()[:, None] + torch.arange(tokens, device=past.device)


def zigzag(length: int, rank: int, world: int) -> Tensor:
    """Positions ``(length / world,)`` that one rank holds in zigzag context parallelism.

    The sequence is cut into ``2 · world`` equal chunks; rank r holds chunks r and 2 · world − 1 − r, which
    balances causal work. Attend with ``causal="positions"``: order in memory is not order in the text.

    >>> zigzag(8, rank=0, world=2)
    tensor([0, 1, 6, 7])
    """
    if world < 1 or not 0 <= rank < world:
        raise ValueError(f"rank must be in 0..world - 1, got rank {rank} of world {world}")
    if length < 1 or length % (2 * world):
        raise ValueError(f"length must be a multiple of 2 * world = {2 * world}, got {length}; pad the sequence")
    chunk = length // (2 * world)
    first, second = rank * chunk, (2 * world - 1 - rank) * chunk
    return torch.cat([torch.arange(first, first + chunk), torch.arange(second, second + chunk)])


def grid(*sizes: int) -> Tensor:
    """Integer coordinates ``(product of sizes, axes)`` of a grid, row by row: the last axis moves fastest.

    >>> grid(2, 2)
    tensor([[0, 0],
            [0, 1],
            [1, 0],
            [1, 1]])
    """
    if not sizes or min(sizes) < 1:
        raise ValueError(f"sizes must be positive, one per axis, got {sizes}")
    axes = torch.meshgrid(*(torch.arange(size) for size in sizes), indexing="ij")
    return torch.stack(axes, -1).flatten(0, -2)


def abacus(input_ids: Tensor, digit_tokens: Tensor | Sequence[int], *, shift: int = 0) -> Tensor:
    """Ids for `Abacus` (arXiv 2405.17399): 1, 2, 3, … along each run of digits, 0 at all other tokens.

    Args:
        input_ids: integers ``(tokens,)`` or ``(batch, tokens)``. While decoding, give the whole row and keep the last
            ids: a new digit may continue a number.
        digit_tokens: the token ids of the digits; numbers have their least significant digit first.
        shift: added to the ids above 0. In training a number that the caller draws anew for each batch.

    >>> abacus(torch.tensor([5, 5, 9, 5]), digit_tokens=[4, 5], shift=10)
    tensor([11, 12,  0, 11])
    """
    if input_ids.ndim not in (1, 2) or not _whole(input_ids):
        raise ValueError(
            f"input_ids must be integers (tokens,) or (batch, tokens), got {input_ids.dtype} {tuple(input_ids.shape)}"
        )
    digits = torch.as_tensor(digit_tokens if isinstance(digit_tokens, Tensor) else list(digit_tokens))
    if digits.ndim != 1 or not digits.numel() or not _whole(digits):
        raise ValueError(f"digit_tokens must be integers (digits,), got {digits.dtype} {tuple(digits.shape)}")
    if shift < 0:
        raise ValueError(f"shift must not be negative, got {shift}")
    is_digit = torch.isin(input_ids.long(), digits.to(input_ids.device).long())
    index = torch.arange(1, input_ids.shape[-1] + 1, device=input_ids.device)
    ids = index - torch.where(is_digit, 0, index).cummax(-1).values  # cummax: the newest token that is no digit
    return ids + shift * is_digit


def randomised(
    tokens: int, max_length: int, *, batch: int | None = None, generator: torch.Generator | None = None
) -> Tensor:
    """Random positions in rising order, out of 0 … max_length − 1: in training, short texts then meet far positions.

    Randomised positional encodings (Ruoss et al., arXiv 2305.16843); any encoding that takes positions can be trained
    so. Draw anew at each step. A row costs max_length random numbers: 0.5 ms at 100,000 on one core.

    Args:
        tokens: positions in a row.
        max_length: the longest text that is to be met later, at least ``tokens``.
        batch: rows, each drawn for itself; default one draw ``(tokens,)`` for all, as the authors do.
        generator: decides the draw, and on which device; default PyTorch's own on the CPU.

    Returns:
        ``(tokens,)`` or ``(batch, tokens)``.

    >>> randomised(3, 3)
    tensor([0, 1, 2])
    """
    if not 1 <= tokens <= max_length:
        raise ValueError(f"tokens must be in 1..max_length = {max_length}, got {tokens}")
    if batch is not None and batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    device = None if generator is None else generator.device
    drawn = [torch.randperm(max_length, generator=generator, device=device)[:tokens] for _ in range(batch or 1)]
    rows = torch.stack(drawn).sort(-1).values
    return rows[0] if batch is None else rows


NOWHERE = -(2**31)  # exact in every dtype that positions may have


def nowhere(positions: Tensor, axes: int) -> Tensor:
    """Which tokens have no place, bool ``(*batch, tokens)``: class and register tokens, whose first coordinate says so.

    Rotations leave them as they are, embeddings of a grid add a row of their own or nothing, and biases give them
    numbers of their own or none. Their last coordinate, where there are several, counts them: 0, 1, ….

    >>> nowhere(torch.tensor([[NOWHERE, 0], [0, 0], [0, 1]]), axes=2)
    tensor([ True, False, False])
    """
    return (positions if axes == 1 else positions[..., 0]) == NOWHERE


def check(name: str, positions: Tensor, tokens: int, batch: int, axes: int = 1) -> None:
    """Raise a ValueError that names ``name`` unless the positions fit ``tokens`` tokens of ``batch`` rows."""
    if not isinstance(positions, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(positions).__name__}: torch.tensor(...) makes one")
    wanted = "(tokens,) or (batch, tokens)" if axes == 1 else f"(tokens, {axes}) or (batch, tokens, {axes})"
    shape = tuple(positions.shape)
    if axes > 1:
        if positions.ndim < 2 or shape[-1] != axes:
            raise ValueError(f"{name} must be {wanted}, got {shape}")
        shape = shape[:-1]
    if len(shape) not in (1, 2) or shape[-1] != tokens or (len(shape) == 2 and shape[0] not in (1, batch)):
        raise ValueError(f"{name} must be {wanted} for {tokens} tokens and batch {batch}, got {tuple(positions.shape)}")
    check_dtype(name, positions)


def span(positions: Tensor) -> Tensor:
    """Tokens that a row spans, its last position + 1: ``(*batch, 1)`` for positions ``(*batch, tokens)``.

    >>> span(torch.tensor([[0, 1, 2], [7, 5, 6]]))
    tensor([[3],
            [8]])
    """
    last = positions.amax(-1, keepdim=True)
    return (last.floor() if last.is_floating_point() else last) + 1


def wide(positions: Tensor) -> Tensor:
    """Integer positions as int64, in which no difference wraps around; floating ones as they are."""
    return positions if positions.is_floating_point() else positions.long()


def check_dtype(name: str, positions: Tensor) -> None:
    """Raise a ValueError for positions that cannot count: bool, complex, float16, bfloat16 (exact only to 256)."""
    dtype = positions.dtype
    if dtype in (torch.bool, torch.float16, torch.bfloat16) or dtype.is_complex:
        raise ValueError(
            f"{name} must be integers (exact), float32 or float64, got {dtype}: positions.long() keeps them exact"
        )


def _whole(numbers: Tensor) -> bool:
    return not (numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool)
