"""The implementations behind the function `posenc.attention`.

A call is validated and written down once (`posenc.call.AttentionCall`); each backend is a module with

    refuses(call)    why it should not serve the call, in words, or None
    strategy(call)   how it goes about the call, in words, for `posenc.explain_backend`
    run(call)        the result, ``(batch, heads, queries, value_dim)`` in the dtype of q
    refuses_by_name(call)   optional: as refuses, where the caller asks for this backend (``backend=``)

`dense` is the definition, which every other backend equals in values and gradients up to rounding. `BACKENDS` lists
them, `posenc.attend.preferred` orders them. Backends know hook points and the structures that encodings state, never a
concrete encoding.

Importing this package registers the operators that exported graphs call (`torch.export.load` needs them).
"""

from types import ModuleType
from typing import Literal

from posenc.backends import dense, flex, ranged, rows, sdpa, tiles, triton

Backend = Literal["auto", "dense", "flex", "ranged", "rows", "sdpa", "tiled", "triton"]
BACKENDS: dict[str, ModuleType] = {
    "triton": triton, "flex": flex, "sdpa": sdpa, "tiled": tiles, "ranged": ranged, "rows": rows, "dense": dense,
}  # fmt: skip
