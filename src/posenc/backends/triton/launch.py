"""How kernels are launched: sizes of tiles, padded widths, which keys are visible in plain numbers."""

# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from posenc.call import AttentionCall
from posenc.structure import DistanceNetwork
from posenc.tracing import may_keep

# Queries, and keys, of a tile of sticks and counts: with more, their backward passes spill registers (offline.py). Not
# measured.
TILE = 32
WARPS = 4
STAGES = 2
ROOM = 1 << 25  # numbers that a backward pass may keep between two of its kernels: 128 MiB in float32
WIDEST = 128  # width of a head
WIDE = 64  # width from which on the keys' gradients fill registers
WIDEST_SOFTMAX = 256  # the same of the softmax kernels

Result = TypeVar("Result")

_NOBODY = torch.iinfo(torch.int64).min  # the document of hidden keys


class Terms(NamedTuple):
    """What is added to the logits; None: nothing. What may want a gradient is said."""

    row: Tensor | None = None  # (heads | 1, queries + keys − 1), at n = −(queries − 1) … keys − 1; a gradient
    entries: Tensor | None = None  # int32 (queries + keys − 1,): ``row`` is a table (heads | 1, any), this its entries
    slopes: Tensor | None = None  # (heads,) float32, of a penalty that grows with the distance
    gates: Tensor | None = None  # (batch | 1, heads | 1, keys), logs of forget gates; a gradient
    network: DistanceNetwork | None = None  # gradients
    sink: Tensor | None = None  # (heads,), logits that take weight and have no value; a gradient

    @property
    def learned(self) -> list[Tensor]:
        """What may want a gradient."""
        return [t for t in (self.row, self.gates, self.sink, *(self.network or ())[:6]) if t is not None]


class KernelVisibility(NamedTuple):
    """Which keys each query attends to, as kernels take it."""

    causal: bool
    window: int  # 0: none
    q_ids: Tensor | None  # int64 or int8 (batch | 1, queries): a query attends to keys with its own number
    k_ids: Tensor | None  # (batch | 1, keys), alike


class Slots(NamedTuple):
    """Keys in the slots of a cache of fixed size, and a query that is the newest of them: see `StaticKVCache`."""

    counts: Tensor  # int64 (1 + batch,): how many tokens came before the newest; the rest is not read
    real: Tensor  # bool (batch, capacity), which tokens are no padding
    places: Tensor  # int64 (batch, capacity), positions
    written: Tensor  # int64 (), the most tokens for which slots were used; under a window
    window: int  # tokens that a query attends to, whose slots are used again; 0: all, and none is


def kernel_visibility(call: AttentionCall) -> KernelVisibility:
    """The visibility of a call whose `visibility_refusal` is None: hidden keys belong to a document of nobody."""
    causal, window, queries, keys = call.causal is True, call.window or 0, call.q.shape[2], call.k.shape[2]
    seen = None if call.mask is None else call.mask[:, 0, 0]
    if call.segments is None and seen is None:
        return KernelVisibility(causal, window, None, None)
    if call.segments is None:
        assert seen is not None
        q_ids, k_ids = _ones(queries, call.q.device), seen.view(torch.int8)  # the same bits: nothing is launched
    else:
        q_ids, k_ids = (ids.long() for ids in call.segments)
        if seen is not None:
            k_ids = torch.where(seen, k_ids, _NOBODY)
    return KernelVisibility(
        causal,
        window,
        q_ids.expand(q_ids.shape[0], queries).contiguous(),
        k_ids.expand(k_ids.shape[0], keys).contiguous(),
    )


def _ones(queries: int, device: torch.device) -> Tensor:
    """The document of all queries where keys are 0 or 1, int8 ``(1, queries)``: parts of one tensor a device."""
    if not may_keep(device):
        return torch.ones(1, queries, dtype=torch.int8, device=device)
    return _kept_ones(1 << (queries - 1).bit_length(), device)[:, :queries]


@functools.lru_cache(maxsize=16)
def _kept_ones(queries: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.ones(1, queries, dtype=torch.int8, device=device)


def visibility_refusal(call: AttentionCall) -> str | None:
    """What kernels do not support of a call's visibility, or None."""
    if call.causal == "positions":
        return "kernels know the order of indices, not the order of positions"
    if call.mask is not None and call.mask.shape[1:3] != (1, 1):
        return "kernels know masks per key, not per head or per query"
    return None


def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may have; off a GPU, where kernels are interpreted, those of Hopper."""
    if device.type != "cuda":
        return 232_448
    room: int = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0)
    return room


class Tile(NamedTuple):
    """What a program of a softmax kernel works on at a time, and by how many warps and stages of loads."""

    rows: int
    columns: int
    warps: int
    stages: int

    def constants(self) -> dict[str, int]:
        """As kernels take it."""
        return {"BM": self.rows, "BN": self.columns, "num_warps": self.warps, "num_stages": self.stages}

    def bytes(self, kernel: str, constants: Mapping[str, Any]) -> int:
        """Shared memory that a kernel needs for it, from above: what it keeps, what each stage loads."""
        widths = constants["WIDTH"] + constants["VALUES"]
        kept = {"forward": self.rows * constants["WIDTH"], "queries": self.rows * widths, "keys": self.columns * widths}
        loaded = {"forward": self.columns, "queries": self.columns, "keys": self.rows, "row": 2 * self.rows}[kernel]
        of_row = 4 * self.rows * self.columns if constants["ROW"] and kernel != "row" else 0
        size = 4 if constants["EXACT"] else 2
        total: int = size * (kept.get(kernel, 0) + self.stages * loaded * widths) + self.stages * of_row
        return total


# Largest first, for products in 16 bits and in float32: the first that fits the device's shared memory is taken. Chosen
# by registers, spills and shared memory (benchmarks/gpu/offline.py); never measured.
TILES = {
    "forward": (
        (Tile(128, 64, 8, 3), Tile(128, 64, 8, 2), Tile(64, 64, 4, 2), Tile(64, 32, 4, 2), Tile(32, 32, 4, 1)),
        (Tile(64, 32, 4, 2), Tile(32, 32, 4, 1), Tile(16, 16, 4, 1)),
    ),
    "queries": (
        (Tile(128, 64, 8, 2), Tile(64, 64, 4, 2), Tile(64, 32, 4, 2), Tile(32, 32, 4, 1)),
        (Tile(32, 32, 4, 2), Tile(32, 32, 4, 1), Tile(16, 16, 4, 1)),
    ),
    "network": (  # the queries' gradient, with inputs, segments and slopes of the network in registers
        (Tile(64, 32, 4, 2), Tile(32, 32, 4, 1)),
        (Tile(32, 32, 4, 1), Tile(16, 16, 4, 1)),
    ),
    "keys": (
        (Tile(32, 128, 8, 2), Tile(32, 64, 4, 2), Tile(32, 64, 4, 1), Tile(32, 32, 4, 1)),
        (Tile(32, 32, 4, 2), Tile(32, 32, 4, 1), Tile(16, 16, 4, 1)),
    ),
    "wide keys": (  # fewer queries at a time: what a program sums up fills its registers
        (Tile(16, 128, 8, 2), Tile(16, 64, 4, 2), Tile(16, 32, 4, 1)),
        (Tile(16, 32, 4, 2), Tile(16, 16, 4, 1)),
    ),
    "row": (
        (Tile(64, 64, 4, 2), Tile(32, 32, 4, 2), Tile(32, 32, 4, 1)),
        (Tile(32, 32, 4, 2), Tile(32, 32, 4, 1), Tile(16, 16, 4, 1)),
    ),
}  # fmt: skip


def candidates(kernel: str, constants: Mapping[str, Any], q: Tensor) -> list[Tile]:
    """Tiles to try, largest first: those that should fit the device, and at least the smallest."""
    wide = kernel == "keys" and max(constants["WIDTH"], constants["VALUES"]) > WIDE
    name = "wide keys" if wide else "network" if kernel == "queries" and constants["SEGMENTS"] else kernel
    tiles = TILES[name][int(constants["EXACT"])]
    room = shared_memory(q.device)
    return [tile for tile in tiles if tile.bytes(kernel, constants) <= room] or [tiles[-1]]


_skipped: dict[tuple[object, ...], int] = {}  # how many of a kernel's tiles a device turned out to have no room for


def fitted(kernel: str, constants: Mapping[str, Any], q: Tensor, start: Callable[[Tile], Result]) -> Result:
    """What ``start`` returns for the largest tile that the device has the resources for.

    Raises:
        RuntimeError: Triton's own error, where even the smallest has too few, or does not compile.
    """
    from triton.runtime.errors import OutOfResources, PTXASError

    key = (q.device, kernel, q.dtype, *constants.values())
    tiles = candidates(kernel, constants, q)
    for at in range(_skipped.get(key, 0), len(tiles)):
        try:
            result = start(tiles[at])
        except (OutOfResources, PTXASError):
            if at + 1 == len(tiles):
                raise
        else:
            _skipped[key] = at
            return result
    raise AssertionError("there is a last tile")


def row_contiguous(x: Tensor) -> Tensor:
    """``x`` with its channels next to each other in memory; other strides are free."""
    return x if x.stride(-1) == 1 else x.contiguous()


def strides(tensors: Sequence[Tensor], *ids: Tensor | None) -> tuple[int, ...]:
    """Numbers between rows of the batch, heads and tokens, tensor by tensor; and between rows of documents.

    That is 0 where all rows of the batch share their documents, or there are none.
    """
    between_rows = [0 if x is None or x.shape[0] == 1 else x.stride(0) for x in ids]
    return *[step for x in tensors for step in x.stride()[:3]], *between_rows


def sizes(q: Tensor, k: Tensor, start: int, stop: int, window: int) -> tuple[int, ...]:
    """Numbers of everything for queries ``start … stop − 1``, in the order of kernels; blocks of keys are the last."""
    heads = q.shape[1]
    return heads, heads // k.shape[1], start, stop, q.shape[2], k.shape[2], window, blocks(q, k)


def constants(
    q: Tensor, v: Tensor, q_ids: Tensor | None, causal: bool, window: int, **others: object
) -> dict[str, object]:
    """What kernels are compiled for."""
    return {
        "CAUSAL": causal, "WINDOW": window > 0, "IDS": q_ids is not None, "EXACT": exact(q),
        "ROWS": TILE, "COLUMNS": TILE, "D": q.shape[3], "WIDTH": padded(q.shape[3]), "DV": v.shape[3],
        "VALUES": padded(v.shape[3]), "num_warps": WARPS, "num_stages": STAGES, **others,
    }  # fmt: skip


def row_grid(q: Tensor, queries: int) -> tuple[int, int]:
    """Programs for so many queries: one a tile and head."""
    return -(-queries // TILE), q.shape[0] * q.shape[1]


def key_grid(q: Tensor, k: Tensor) -> tuple[int, int]:
    """Programs for all keys: one a block and key head."""
    return blocks(q, k), k.shape[0] * k.shape[1]


def blocks(q: Tensor, k: Tensor) -> int:
    """Blocks of keys."""
    return -(-k.shape[2] // TILE)


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
    batch, heads = q.shape[:2]
    for start, stop in _ranges(q, k):
        # A tile that the walk under stick-breaking does not come to has used everything.
        carries = q.new_full((batch, heads, stop - start, blocks(q, k)), math.inf, dtype=torch.float32)
        yield Chunk(start, stop, carries, torch.empty_like(carries))


def key_gradients(q: Tensor, k: Tensor, *tensors: Tensor) -> list[Tensor]:
    """Where gradients of keys' tensors are stored: float32 where `backward_chunks` has several, which add to them."""
    several = len(_ranges(q, k)) > 1
    return [x.new_empty(x.shape, dtype=torch.float32 if several else x.dtype) for x in tensors]


def _ranges(q: Tensor, k: Tensor) -> list[tuple[int, int]]:
    return chunks(q.shape[2], 2 * q.shape[0] * q.shape[1] * blocks(q, k), TILE)


def chunks(queries: int, per_query: int, size: int) -> list[tuple[int, int]]:
    """Ranges of queries whose backward pass may run at once, in whole tiles, where each keeps ``per_query`` numbers."""
    rows = max(1, ROOM // max(1, per_query * size)) * size
    return [(start, min(start + rows, queries)) for start in range(0, queries, rows)]
