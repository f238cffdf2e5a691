"""A function of the distance whose values are entries of a small table: T5's buckets."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.tracing import may_keep

MOST_KEPT = 32


class Lookup(NamedTuple):
    """s_ij ← s_ij + table_h[index[n + queries − 1]], queries being the last of the keys: a `Row` that nobody built."""

    table: Tensor  # (heads, entries)
    index: Tensor  # int32 (queries + keys − 1,), at n = −(queries − 1) … keys − 1


def index_by_distance(
    of: Callable[..., Tensor], told: Hashable, queries: int, keys: int, device: torch.device
) -> Tensor:
    """``of(distance, told)`` as the index of a `Lookup`, int32, for ``distance = p_key − p_query``.

    It depends on nothing but ``told`` and lengths, so each device keeps one for all lengths up to a power of two.
    """
    if not may_keep(device):
        return of(torch.arange(queries - 1, -keys, -1, device=device), told).to(torch.int32)
    reach = reach_of(queries, keys)
    return _kept(of, told, reach, device)[reach - queries : reach - 1 + keys]


def reach_of(queries: int, keys: int) -> int:
    """Distances that cover a call, up to a power of two."""
    return 1 << (max(queries, keys) - 1).bit_length()


@functools.lru_cache(maxsize=MOST_KEPT)
def _kept(of: Callable[..., Tensor], told: Hashable, reach: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():  # a later call may be differentiated
        return of(torch.arange(reach - 1, -reach, -1, device=device), told).to(torch.int32)
