"""Bytes and FLOPs of a call's launches of Triton kernels, and the least that a call of attention can take.

    bytes    of all tensors that a launch is given, each once: what has to pass through the device's memory, if what
             programs read again is in its caches
    FLOPs    of matrix products, over whole tiles and padded widths; tiles that a kernel may skip by their numbers
             (sticks that are used up) are not taken off
    least    q, k, v and the result once, in training also those and their gradients in the backward pass; products of
             visible pairs alone: two forward, five backward

Kernels of PyTorch beside them (projections of gates, products with a table, sums) are not counted.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Work = tuple[str, int, int]  # a kernel's name, bytes, FLOPs


@contextmanager
def written_down(into: list[Work]) -> Iterator[None]:
    """Within this context each launch is written down, and happens."""
    try:
        from triton.runtime.jit import JITFunction
    except ImportError:
        yield
        return
    before = JITFunction.run

    def run(self: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        given = dict(zip(self.arg_names, args, strict=False)) | kwargs
        name = f"{self.__module__.rsplit('.', 1)[-1]}.{self.__name__}"
        into.append((name, moved(given), products(name, given, grid)))
        return before(self, *args, grid=grid, warmup=warmup, **kwargs)

    JITFunction.run = run
    try:
        yield
    finally:
        JITFunction.run = before


def moved(given: dict[str, Any]) -> int:
    """Bytes of all tensors among a launch's arguments; those that are given twice stand in for others.

    A launch for sums alone, of gates or of sticks, reads no values.
    """
    sizes: dict[int, int] = {}
    unread = "v" if given.get("KEEP") or given.get("COUNTS") == 1 else ""
    for name, x in given.items():
        if name != unread and hasattr(x, "data_ptr") and x.numel():
            span = 1
            for size, step in zip(x.shape, x.stride(), strict=True):
                span *= size if step else 1
            sizes[x.data_ptr()] = max(sizes.get(x.data_ptr(), 0), span * x.element_size())
    return sum(sizes.values())


def products(name: str, given: dict[str, Any], grid: tuple[int, ...]) -> int:
    """FLOPs of the matrix products of a launch; 0 for kernels without any."""
    if "WIDTH" not in given or "VALUES" not in given or not isinstance(grid, tuple):
        return 0
    width, values = int(given["WIDTH"]), int(given["VALUES"])
    if name == "decode_kernels.parts":
        pairs: int = grid[0] * given["ROWS"] * -(-(given["keys"] - given["low"]) // given["BN"]) * given["BN"]
        return 2 * pairs * (width if given["COUNTS"] == 1 else width + values)
    kernel = name.rsplit(".", 1)[-1]
    of_pair = {
        "forward": width + values, "walk": width if given.get("KEEP") else width + values,
        "queries_backward": 2 * width + values, "keys_backward": 2 * width + 2 * values, "row_backward": width + values,
    }.get(kernel)  # fmt: skip
    if of_pair is None:
        return 0
    if kernel == "queries_backward" and given.get("SEGMENTS") and not given["EXACT"]:
        of_pair += width + values  # its first walk
    softmax = "BM" in given
    rows, columns = int(given["BM" if softmax else "ROWS"]), int(given["BN" if softmax else "COLUMNS"])
    heads_of_all = grid[1] * int(given["group"] if kernel == "keys_backward" else 1)
    if kernel == "row_backward":
        heads_of_all, columns = grid[2] * int(given["batch"]), rows
    return 2 * heads_of_all * tiles(given, rows, columns) * rows * columns * of_pair


def tiles(given: dict[str, Any], rows: int, columns: int) -> int:
    """Tiles of one head that hold a visible pair."""
    queries, keys, window, total = given["queries"], given["keys"], given["window"], 0
    for first in range(0, queries, rows):
        own, last = first + keys - queries, min(first + rows, queries) - 1 + keys - queries
        low = max(0, own - window + 1) if window else 0
        high = min(keys, last + 1) if given["CAUSAL"] else min(keys, last + window) if window else keys
        total += max(0, -(-high // columns) - low // columns)
    return total


def least(heads: int, queries: int, keys: int, width: int, training: bool) -> tuple[int, int]:
    """Bytes and FLOPs of causal attention in 16 bits, values as wide as keys, no heads that share them."""
    moved, pairs = 4 * heads * width * (queries + keys), heads * sum(range(keys - queries + 1, keys + 1))
    flops = 4 * pairs * width
    if training:  # q, k, v, the result and its gradient are read, gradients of q, k and v written
        moved += 8 * heads * width * (queries + keys)
        flops += 10 * pairs * width
    return moved, flops
