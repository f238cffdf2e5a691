"""A function of the distance whose values are entries of a small table: T5's buckets."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.tracing import may_keep, stand_ins

MOST_KEPT = 32
_KEPT: dict[Hashable, Tensor] = {}


class Lookup(NamedTuple):
    """s_ij ← s_ij + table_h[entries[n + queries − 1]], for queries that are the last of the keys: a `Row` not built."""

    table: Tensor  # (heads, entries)
    entries: Tensor  # int32 (queries + keys − 1,), at n = −(queries − 1) … keys − 1


def index_by_distance(
    of: Callable[..., Tensor], told: Hashable, queries: int, keys: int, device: torch.device
) -> Tensor:
    """``of(distance, told)`` as the index of a `Lookup`, int32, for ``distance = p_key − p_query``.

    It depends on nothing but ``told`` and lengths, so each device keeps one for all lengths up to a power of two.
    """
    reach = 0 if stand_ins() else reach_of(queries, keys)  # lengths may be symbols

    def made() -> Tensor:
        return of(torch.arange(reach - 1, -reach, -1, device=device), told).to(torch.int32)

    index = kept((of, told, reach, device), device, made)
    if index is None:
        return of(torch.arange(queries - 1, -keys, -1, device=device), told).to(torch.int32)
    return index[reach - queries : reach - 1 + keys]


def all_distances(queries: int, keys: int, device: torch.device) -> Tensor:
    """``p_key − p_query`` of a row by distance, int64 ``(queries + keys − 1,)``; each GPU keeps one."""
    if device.type == "cuda" and not stand_ins():
        reach = reach_of(queries, keys)
        every = kept(("distances", reach, device), device, lambda: torch.arange(reach - 1, -reach, -1, device=device))
        if every is not None:
            return every[reach - queries : reach - 1 + keys]
    return torch.arange(queries - 1, -keys, -1, device=device)


def kept(key: Hashable, device: torch.device, make: Callable[[], Tensor]) -> Tensor | None:
    """What ``make`` makes under this key, once for each device; None while nothing can be kept.

    In a captured graph what was made before serves, and nothing new: it would be there only once the graph is replayed.
    """
    if stand_ins():
        return None
    if key not in _KEPT:
        if not may_keep(device):
            return None
        if len(_KEPT) == MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
        with torch.inference_mode(False), torch.no_grad():  # a later call may be differentiated
            _KEPT[key] = make()
    return _KEPT[key]


def reach_of(queries: int, keys: int) -> int:
    """Distances that cover a call, up to a power of two."""
    return 1 << (max(queries, keys) - 1).bit_length()
