"""Block masks for FlexAttention: which blocks of queries and keys hold anything visible, and the mask inside them.

Blocks are judged by the ends of what they hold (indices, positions, documents), so that no matrix of queries and keys
is built unless the caller's mask is one. A block that might hold something seen is looked into; that is exact.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask

from posenc.tracing import has_values
from posenc.visibility import Causal, VisibilityMask

SIZE = 128  # FlexAttention's own
MOST_KEPT, MOST_BLOCKS = 16, 2**18  # masks, and blocks of one: 4 MiB, of 65,536 tokens

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # (batch, head, query, key) → bool


def block_mask(visibility: VisibilityMask, queries: int, keys: int) -> BlockMask | None:
    """The mask of a call; None where every key is visible to every query."""
    everything = visibility.causal is False or queries == 1  # one query is the newest key
    if visibility.order_only and everything and visibility.window is None:
        return None
    some, every = _blocks(visibility, queries, keys)
    partly = some & ~every
    return BlockMask.from_kv_blocks(
        *_listed(partly), *_listed(every), BLOCK_SIZE=SIZE, mask_mod=_inside(visibility, queries, keys),
        seq_lengths=(queries, keys),
    )  # fmt: skip


def kept_block_mask(visibility: VisibilityMask, queries: int, keys: int) -> BlockMask | None:
    """The same, kept for the next call where nothing but order and lengths decides: some 80 small kernels are spared.

    Callers must not write into it.
    """
    device, blocks = visibility.q_pos.device, -(-queries // SIZE) * -(-keys // SIZE)
    if not visibility.order_only or blocks > MOST_BLOCKS or not has_values(visibility.q_pos):
        return block_mask(visibility, queries, keys)
    return _of_order(visibility.causal, visibility.window, queries, keys, device)


@functools.lru_cache(maxsize=MOST_KEPT)
def _of_order(causal: Causal, window: int | None, queries: int, keys: int, device: torch.device) -> BlockMask | None:
    """The mask of an order by index, with or without a window."""
    with torch.inference_mode(False):
        unread = torch.empty(0, dtype=torch.int64, device=device)
        return block_mask(VisibilityMask(causal, window, None, None, unread, unread), queries, keys)


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of keys each block of queries has, and which come first."""
    order = blocks.to(torch.int32).argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1).to(torch.int32), order.to(torch.int32)


def _blocks(visibility: VisibilityMask, queries: int, keys: int) -> tuple[Tensor, Tensor]:
    """Blocks with any visible pair, and blocks of visible pairs alone, ``(batch | 1, heads | 1, blocks, blocks)``."""
    device = visibility.q_pos.device
    own_key, index = torch.arange(keys - queries, keys, device=device)[None], torch.arange(keys, device=device)[None]
    last_q = (torch.arange(-(-queries // SIZE), device=device) + 1) * SIZE <= queries
    last_k = (torch.arange(-(-keys // SIZE), device=device) + 1) * SIZE <= keys
    every = (last_q[:, None] & last_k)[None, None]  # not the ragged ends, which have keys that are not there
    some = torch.ones_like(every)
    if visibility.causal is not False or visibility.window is not None:
        by_position = visibility.causal == "positions"
        ends = _ends(visibility.q_pos if by_position else own_key), _ends(visibility.k_pos if by_position else index)
        (q_low, q_high), (k_low, k_high) = ((low[..., None], high[..., None]) for low, high in ends)
        nearest, farthest = q_low - k_high.mT, q_high - k_low.mT  # how far keys may lie in the past
        if visibility.causal is not False:
            some, every = some & (farthest >= 0), every & (nearest >= 0)
        if visibility.window is not None:
            some = some & (nearest < visibility.window) & (farthest > -visibility.window)
            every = every & (farthest < visibility.window) & (nearest > -visibility.window)
    if visibility.segments is not None:
        (q_low, q_high), (k_low, k_high) = (
            (low[..., None], high[..., None]) for low, high in map(_ends, visibility.segments)
        )
        some = some & (q_low <= k_high.mT) & (k_low.mT <= q_high)
        every = every & (q_low == k_high.mT) & (k_low.mT == q_high) & (q_low == q_high)
    if visibility.mask is not None:
        in_blocks = (
            _tiles(visibility.mask, 0, keys)
            if visibility.mask.shape[2] == 1
            else _tiles(visibility.mask, queries, keys)
        )
        some, every = some & in_blocks.any(-1).any(-2), every & in_blocks.all(-1).all(-2)
    return some, every & some


def _ends(x: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest in each block of ``x`` (*batch, tokens), ``(batch | 1, 1, blocks)``."""
    tokens = x.shape[-1]
    blocks = -(-tokens // SIZE)
    padded = x[..., torch.arange(blocks * SIZE, device=x.device).clamp(max=tokens - 1)]
    tiles = padded.reshape(-1, 1, blocks, SIZE)
    return tiles.amin(-1), tiles.amax(-1)


def _tiles(mask: Tensor, queries: int, keys: int) -> Tensor:
    """A mask cut into blocks, ``(batch | 1, heads | 1, blocks, rows, blocks, columns)``; 0 queries: one row for all."""
    mask = F.pad(mask, (0, -keys % SIZE, 0, -queries % SIZE))
    rows = mask.reshape(*mask.shape[:2], -1, SIZE if queries else 1, mask.shape[-1])
    return rows.reshape(*rows.shape[:4], -1, SIZE)


def _inside(visibility: VisibilityMask, queries: int, keys: int) -> MaskMod:
    """Which keys each query attends to. Lengths are tensors: as numbers they would mean a kernel for each length."""
    shift = torch.full((), keys - queries, device=visibility.q_pos.device)
    parts: list[MaskMod] = []
    if visibility.causal == "positions":
        parts.append(_by_position(visibility.q_pos, visibility.k_pos, visibility.window))
    else:
        if visibility.causal:
            parts.append(lambda b, h, i, j: i + shift >= j)
        if visibility.window is not None:
            window = torch.full_like(shift, visibility.window)
            parts.append(lambda b, h, i, j: (i + shift - j < window) & (j - i - shift < window))
    if visibility.segments is not None:
        parts.append(_by_document(*visibility.segments))
    if visibility.mask is not None:
        parts.append(_by_mask(visibility.mask))

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        seen = parts[0](b, h, i, j)
        for part in parts[1:]:
            seen = seen & part(b, h, i, j)
        return seen

    return mask_mod


def _by_position(q_pos: Tensor, k_pos: Tensor, window: int | None) -> MaskMod:
    q_rows, k_rows = q_pos.reshape(-1, q_pos.shape[-1]), k_pos.reshape(-1, k_pos.shape[-1])
    shared_q, shared_k = len(q_rows) == 1, len(k_rows) == 1
    reach = None if window is None else torch.full((), window, device=q_pos.device)

    def part(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        q_at, k_at = q_rows[b * 0 if shared_q else b, i], k_rows[b * 0 if shared_k else b, j]
        return k_at <= q_at if reach is None else (k_at <= q_at) & (q_at - k_at < reach)

    return part


def _by_document(q_ids: Tensor, k_ids: Tensor) -> MaskMod:
    shared_q, shared_k = len(q_ids) == 1, len(k_ids) == 1
    return lambda b, h, i, j: q_ids[b * 0 if shared_q else b, i] == k_ids[b * 0 if shared_k else b, j]


def _by_mask(mask: Tensor) -> MaskMod:
    batch, heads, rows = (size == 1 for size in mask.shape[:3])
    return lambda b, h, i, j: mask[b * 0 if batch else b, h * 0 if heads else h, i * 0 if rows else i, j]
