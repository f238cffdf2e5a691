"""What positions must be, and which tokens have none: used wherever positions come in."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from posenc.arguments import MOST_AXES, check_whole, shown
from posenc.tracing import may_keep, stand_ins, tracing

NO_POSITION = -(2**31)  # exact in int32, float32 and whatever is wider
_DEFAULTS: WeakValueDictionary[tuple[int, torch.device], Tensor] = WeakValueDictionary()
_LATEST: dict[torch.device, Tensor] = {}  # one for each GPU, which launches nothing for positions that nobody reads
DEFAULT_MARK = "_posenc_default"  # an attribute of the tensor itself: no view and no result of an operation has it
SPAN = 1024  # tokens: so many more calls share the numbers, and rotations their table, as a text grows
FARTHEST = 2**18  # tokens: 2 MiB of numbers


class Counted(NamedTuple):
    """What a tensor of `default_positions` is marked with."""

    numbers: Tensor  # from 0 on, of which it is a part
    start: int


def default_positions(tokens: int, device: torch.device, start: int = 0) -> Tensor:
    """The numbers from ``start`` to ``start + tokens`` − 1, int64; not to be written into.

    They are part of longer ones that calls share for as long as somebody keeps them, so that a rotation knows its table
    again without looking at a value. Numbers that were written into all the same are never handed out again.
    """
    stop = start + tokens
    if tracing() or start < 0 or stop > FARTHEST or not may_keep(device):
        return torch.arange(start, stop, device=device)
    length = -(-stop // SPAN) * SPAN if stop > SPAN else max(16, 1 << (stop - 1).bit_length())
    numbers = _DEFAULTS.get((length, device))
    if numbers is None or numbers._version != 0:
        with torch.inference_mode(False):  # an inference tensor has no version to tell by
            numbers = torch.arange(length, device=device)
        if type(numbers) is not Tensor:
            return numbers[start:stop]
        _DEFAULTS[length, device] = numbers
        if device.type == "cuda":
            _LATEST[device] = numbers
    part = numbers[start:stop]
    setattr(part, DEFAULT_MARK, Counted(numbers, start))
    return part


def counted(positions: Tensor) -> Counted | None:
    """What a tensor of `default_positions` is part of, unless somebody has written into it; None of any other."""
    mark: Counted | None = getattr(positions, DEFAULT_MARK, None)
    return mark if mark is not None and positions._version == 0 and not stand_ins() else None


def is_default(positions: Tensor) -> bool:
    """Whether these are the numbers from 0 on of `default_positions`, and nobody has written into them."""
    mark = counted(positions)
    return mark is not None and mark.start == 0


def end_together(q_pos: Tensor, k_pos: Tensor) -> bool:
    """Whether queries are known to be the last tokens of the keys, or the same."""
    if q_pos is k_pos:
        return True
    of_q, of_k = counted(q_pos), counted(k_pos)
    if of_q is None or of_k is None or of_q.numbers is not of_k.numbers:
        return False
    return of_q.start >= of_k.start and of_q.start + len(q_pos) == of_k.start + len(k_pos)


class Edges(NamedTuple):
    """Documents end to end in a row, none of them empty."""

    cumulative: Tensor  # (documents + 1,), int32: where each begins, and where the last one ends
    longest: int  # tokens
    ends: tuple[int, ...]  # the numbers of ``cumulative``


# Tensors themselves, by identity: no copy is among them, whose values may be others, and none is kept alive.
EDGES: MutableMapping[Tensor, Edges] = WeakIdKeyDictionary()  # of `segments_from_cu_seqlens`
RESTARTS: MutableMapping[Tensor, Edges] = WeakIdKeyDictionary()  # positions that `from_segments` made of those


def edges_of(segments: Tensor, known: MutableMapping[Tensor, Edges] = EDGES) -> Edges | None:
    """The documents of `segments_from_cu_seqlens`, or of positions that `from_segments` made of those.

    None of any other numbers, of a part of them, and of those that somebody has written into: kernels that take
    documents by their edges would have to look at values, and wait for the device.
    """
    made = segments if segments._base is None else segments._base
    edges = known.get(made)
    whole = edges is not None and made._version == 0 and segments.shape[-1] == segments.numel() == made.numel()
    return edges if whole and segments.stride(-1) == 1 else None


def has_no_position(positions: Tensor, axes: int) -> Tensor:
    """Which tokens have no place, bool ``(*batch, tokens)``: class and register tokens, whose first coordinate says so.

    Rotations leave them as they are, embeddings of a grid add a row of their own or nothing, and biases give them
    numbers of their own or none. Their last coordinate, where there are several, counts them: 0, 1, ….

    >>> has_no_position(torch.tensor([[NO_POSITION, 0], [0, 0], [0, 1]]), axes=2)
    tensor([ True, False, False])
    """
    if not isinstance(axes, int) or axes != 1:
        check_whole("axes", axes, most=MOST_AXES)
    _check_tensor("positions", positions)
    if axes > 1:
        if not positions.ndim or positions.shape[-1] != axes:
            raise ValueError(f"positions must be (*batch, tokens, {axes}) for axes = {axes}, got {shown(positions)}")
        positions = positions[..., 0]
    return wide(positions) == NO_POSITION  # in int16, −2^31 would be 0


def check(name: str, positions: Tensor, tokens: int, batch: int, axes: int = 1) -> None:
    """Raise a ValueError that names ``name`` unless the positions fit ``tokens`` tokens of ``batch`` rows."""
    if not isinstance(positions, Tensor):
        _check_tensor(name, positions)
    if not isinstance(axes, int) or axes != 1:
        check_whole("axes", axes, most=MOST_AXES)
    if not (isinstance(tokens, int) and isinstance(batch, int)):
        _check_sizes(tokens, batch)
    expected = "(tokens,) or (batch, tokens)" if axes == 1 else f"(tokens, {axes}) or (batch, tokens, {axes})"
    shape = tuple(positions.shape)
    if axes > 1:
        if positions.ndim < 2 or shape[-1] != axes:
            axes_first = positions.ndim == 3 and shape[0] == axes
            hint = ": movedim(0, -1) takes the coordinates to the end" if axes_first else ""
            raise ValueError(f"{name} must be {expected}, got {shape}{hint}")
        shape = shape[:-1]
    fits = len(shape) in (1, 2) and shape[-1] == tokens
    if fits and len(shape) == 2:  # by ==, as a compiler's symbols of one size need not be members of one another
        fits = shape[0] == 1 or shape[0] == batch
    if not fits:
        raise ValueError(
            f"{name} must be {expected} for {tokens} tokens and batch {batch}, got {tuple(positions.shape)}"
        )
    check_dtype(name, positions)


def check_dtype(name: str, positions: Tensor) -> None:
    """Raise a ValueError for positions that cannot count: bool, complex, float16, bfloat16 (exact only to 256)."""
    if not isinstance(positions, Tensor):
        _check_tensor(name, positions)
    dtype = positions.dtype
    if dtype in (torch.bool, torch.float16, torch.bfloat16) or dtype.is_complex:
        raise ValueError(
            f"{name} must be integers (exact), float32 or float64, got {dtype}: positions.long() keeps them exact"
        )


def span(positions: Tensor) -> Tensor:
    """Tokens that a row spans, its last position + 1: ``(*batch, 1)`` for positions ``(*batch, tokens)``.

    >>> span(torch.tensor([[0, 1, 2], [7, 5, 6]]))
    tensor([[3],
            [8]])
    """
    check_dtype("positions", positions)
    if not torch.compiler.is_compiling() and not (positions.ndim and positions.shape[-1]):
        raise ValueError(f"positions must be (*batch, tokens) of at least one token, got {shown(positions)}")
    last = positions.amax(-1, keepdim=True)
    return (last.floor() if last.is_floating_point() else last) + 1


def wide(positions: Tensor) -> Tensor:
    """Integer positions as int64, in which no difference wraps around; floating ones as they are."""
    if not isinstance(positions, Tensor):
        _check_tensor("positions", positions)
    if positions.is_floating_point() or positions.dtype == torch.int64:
        return positions
    if positions.is_complex():
        raise ValueError(f"positions must be real, got {shown(positions)}")
    return positions.long()


def check_coordinates(coordinates: Tensor, name: str = "coordinates") -> None:
    """Raise a ValueError unless these are coordinates ``(tokens, axes)`` or ``(batch, tokens, axes)``."""
    if not isinstance(coordinates, Tensor) or coordinates.ndim not in (2, 3):
        raise ValueError(f"{name} must be a tensor (tokens, axes) or (batch, tokens, axes), got {shown(coordinates)}")
    if not coordinates.shape[-1]:
        raise ValueError(f"{name} must have at least one coordinate, got {shown(coordinates)}")
    check_dtype(name, coordinates)


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(value).__name__}: torch.tensor(...) makes one")


def _check_sizes(tokens: object, batch: object) -> None:
    """Raise a ValueError for what is no size; torch.jit.trace has tensors without axes for sizes, export symbols."""
    for name, size in (("tokens", tokens), ("batch", batch)):
        if not isinstance(size, int | torch.SymInt) and getattr(size, "ndim", None) != 0:
            raise ValueError(f"{name} must be an integer, got {shown(size)}")
