"""How kernels are launched: sizes of tiles, padded widths, which keys are visible in plain numbers."""

from __future__ import annotations

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


def strides(x: Tensor) -> tuple[int, int, int]:
    """Of batch, heads and tokens."""
    return x.stride(0), x.stride(1), x.stride(2)


def batch_stride(ids: Tensor | None) -> int:
    """Numbers between two rows of documents; 0 where all rows of the batch share one."""
    return 0 if ids is None or ids.shape[0] == 1 else ids.stride(0)


def padded(width: int) -> int:
    """The next power of two, and at least what matrix units take."""
    return max(16, 1 << (width - 1).bit_length())


def exact(x: Tensor) -> bool:
    """Whether products must be in full float32."""
    return x.dtype == torch.float32


def chunks(queries: int, per_query: int, size: int) -> list[tuple[int, int]]:
    """Ranges of queries whose backward pass may run at once, in whole tiles, where each keeps ``per_query`` numbers."""
    rows = max(1, ROOM // max(1, per_query * size)) * size
    return [(start, min(start + rows, queries)) for start in range(0, queries, rows)]
