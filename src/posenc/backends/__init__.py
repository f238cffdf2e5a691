"""The implementations behind the function `posenc.attention`.

A call is validated and written down once (`posenc.call.AttentionCall`); each backend is a module with functions

    refuses(call)    why it should not serve the call, in words, or None
    strategy(call)   how it goes about the call, in words, for `posenc.explain_backend`
    run(call)        the result, ``(batch, heads, queries, value_dim)`` in the dtype of q
    refuses_by_name(call)   optional: as refuses, where the caller asks for this backend (``backend=``)

`dense` is the definition, which every other backend equals in values and gradients up to rounding. `BACKENDS` lists
them, `posenc.attend.preferred` orders them. Backends know hook points and the structures that encodings state, never a
concrete encoding.

Importing this package registers the operators that exported graphs call (`torch.export.load` needs them).
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Literal, NamedTuple

from torch import Tensor

from posenc.backends import dense, flex, ranged, rows, sdpa, tiles, triton
from posenc.call import AttentionCall

Backend = Literal["auto", "dense", "flex", "ranged", "rows", "sdpa", "tiled", "triton"]


class Functions(NamedTuple):
    """What a backend's module has; a compiler that meets a module by two ways compares both at each of its names."""

    refuses: Callable[[AttentionCall], str | None]
    refuses_by_name: Callable[[AttentionCall], str | None]
    strategy: Callable[[AttentionCall], str]
    run: Callable[[AttentionCall], Tensor]

    @classmethod
    def of(cls, backend: ModuleType) -> Functions:
        by_name = getattr(backend, "refuses_by_name", backend.refuses)
        return cls(backend.refuses, by_name, backend.strategy, backend.run)


BACKENDS = {
    "triton": Functions.of(triton), "flex": Functions.of(flex), "sdpa": Functions.of(sdpa),
    "tiled": Functions.of(tiles), "ranged": Functions.of(ranged), "rows": Functions.of(rows),
    "dense": Functions.of(dense),
}  # fmt: skip
