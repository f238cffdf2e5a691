"""How kernels are launched: sizes of tiles, padded widths, which keys are visible in plain numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.visibility import VisibilityMask

# Reasonable for Hopper and for widths of 64 to 128: tiles fit its shared memory. None of these was measured.
TILE = 64  # queries, and keys, of a tile in half precision; half as many in float32
SHARED = 160_000  # bytes of shared memory that such tiles need; where there is less, tiles are halved again
WARPS = 4
STAGES = 2
ROOM = 1 << 25  # numbers that a backward pass may keep between two of its kernels: 128 MiB in float32
WIDEST = 128  # width of a head

_NOBODY = torch.iinfo(torch.int64).min  # the document of hidden keys


class KernelVisibility(NamedTuple):
    """Which keys each query attends to, as kernels take it."""

    causal: bool
    window: int  # 0: none
    q_ids: Tensor | None  # int64 (batch | 1, queries): a query attends to keys with its own number
    k_ids: Tensor | None  # int64 (batch | 1, keys)


def kernel_visibility(visibility: VisibilityMask) -> KernelVisibility:
    """The visibility of a call whose `visibility_refusal` is None: hidden keys belong to a document of nobody."""
    causal, window = visibility.causal is True, visibility.window or 0
    if visibility.segments is None and visibility.mask is None:
        return KernelVisibility(causal, window, None, None)
    q_ids = k_ids = torch.zeros(1, 1, dtype=torch.int64, device=visibility.q_pos.device)
    if visibility.segments is not None:
        q_ids, k_ids = (ids.long() for ids in visibility.segments)
    queries, keys = visibility.q_pos.shape[-1], visibility.k_pos.shape[-1]
    if visibility.mask is not None:
        k_ids = torch.where(visibility.mask[:, 0, 0], k_ids, _NOBODY)
    return KernelVisibility(
        causal,
        window,
        q_ids.expand(q_ids.shape[0], queries).contiguous(),
        k_ids.expand(k_ids.shape[0], keys).contiguous(),
    )


def visibility_refusal(visibility: VisibilityMask) -> str | None:
    """What kernels do not support of this visibility, or None."""
    if visibility.causal == "positions":
        return "kernels know the order of indices, not the order of positions"
    if visibility.mask is not None and visibility.mask.shape[1:3] != (1, 1):
        return "kernels know masks per key, not per head or per query"
    return None


def tile(q: Tensor) -> int:
    """Queries, and keys, of a tile."""
    size = TILE if q.element_size() == 2 else TILE // 2
    if not q.is_cuda:
        return size
    room: int = getattr(torch.cuda.get_device_properties(q.device), "shared_memory_per_block_optin", 0)
    return size if room >= SHARED else size // 2


def row_contiguous(x: Tensor) -> Tensor:
    """``x`` with its channels next to each other in memory; other strides are free."""
    return x if x.stride(-1) == 1 else x.contiguous()


def strides(tensors: Sequence[Tensor], *ids: Tensor | None) -> tuple[int, ...]:
    """Numbers between rows of the batch, heads and tokens, tensor by tensor; and between rows of documents.

    That is 0 where all rows of the batch share their documents, or there are none.
    """
    between_rows = [0 if x is None or x.shape[0] == 1 else x.stride(0) for x in ids]
    return *[step for x in tensors for step in x.stride()[:3]], *between_rows


def sizes(q: Tensor, k: Tensor, start: int, stop: int, window: int, *widths: int) -> tuple[int, ...]:
    """Numbers of everything for queries ``start … stop − 1``, in the order of kernels; blocks of keys are the last."""
    heads = q.shape[1]
    return heads, heads // k.shape[1], start, stop, q.shape[2], k.shape[2], window, *widths, blocks(q, k)


def constants(
    q: Tensor, v: Tensor, q_ids: Tensor | None, causal: bool, window: int, **others: object
) -> dict[str, object]:
    """What kernels are compiled for."""
    return {
        "CAUSAL": causal, "WINDOW": window > 0, "IDS": q_ids is not None, "EXACT": exact(q),
        "ROWS": tile(q), "COLUMNS": tile(q), "WIDTH": padded(q.shape[3]), "VALUES": padded(v.shape[3]),
        "num_warps": WARPS, "num_stages": STAGES, **others,
    }  # fmt: skip


def row_grid(q: Tensor, queries: int) -> tuple[int, int]:
    """Programs for so many queries: one a tile and head."""
    return -(-queries // tile(q)), q.shape[0] * q.shape[1]


def key_grid(q: Tensor, k: Tensor) -> tuple[int, int]:
    """Programs for all keys: one a block and key head."""
    return blocks(q, k), k.shape[0] * k.shape[1]


def blocks(q: Tensor, k: Tensor) -> int:
    """Blocks of keys."""
    return -(-k.shape[2] // tile(q))


def padded(width: int) -> int:
    """The next power of two, and at least what matrix units take."""
    return max(16, 1 << (width - 1).bit_length())


def exact(x: Tensor) -> bool:
    """Whether products must be in full float32."""
    return x.dtype == torch.float32


class Chunk(NamedTuple):
    """Queries whose backward pass runs at once, and what its kernels leave one another, a number a query and block."""

    start: int
    stop: int
    carries: Tensor  # sums of newer keys, before each block: float32 (batch, heads, queries, blocks)
    behind: Tensor  # sums of the gradients of older keys, of the same shape


def backward_chunks(q: Tensor, k: Tensor) -> Iterator[Chunk]:
    """All queries, as many at a time as fit `ROOM`."""
    batch, heads, queries = q.shape[:3]
    for start, stop in chunks(queries, 2 * batch * heads * blocks(q, k), tile(q)):
        # A tile that the walk under stick-breaking does not come to has used everything.
        carries = q.new_full((batch, heads, stop - start, blocks(q, k)), math.inf, dtype=torch.float32)
        yield Chunk(start, stop, carries, torch.empty_like(carries))


def chunks(queries: int, per_query: int, size: int) -> list[tuple[int, int]]:
    """Ranges of queries whose backward pass may run at once, in whole tiles, where each keeps ``per_query`` numbers."""
    rows = max(1, ROOM // max(1, per_query * size)) * size
    return [(start, min(start + rows, queries)) for start in range(0, queries, rows)]
