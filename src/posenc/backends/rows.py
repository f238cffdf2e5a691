"""The definition, a block of queries at a time: for encodings of which nothing is known but that they act row by row.

In training a block is computed anew in the backward pass, so that only one lives at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from posenc.backends import dense
from posenc.backends.derivatives import only_plain_operations
from posenc.call import AttentionCall
from posenc.rotate import RowLengths, some
from posenc.tracing import tracing

BLOCK = 64  # queries, for a processor's cache
LARGE = 512  # queries elsewhere: few launches, and memory for a matrix of so many rows


def refuses(call: AttentionCall) -> str | None:
    """Why blocks of queries cannot serve this call, or None."""
    if tracing():
        return "a compiler would unroll its loop anew for each length"
    transformed = only_plain_operations(call)
    if transformed is not None:
        return transformed
    if call.q.shape[2] <= rows_of(call):
        return f"at most {rows_of(call)} queries are one block"
    reason = divided(call)
    if reason is None and call.causal is not True and call.softcap is None and call.dropout is None:
        return "without a causal order by index no key is spared, and fused kernels serve this call"
    return reason


def divided(call: AttentionCall) -> str | None:
    """Why queries cannot be looked at some at a time, or None."""
    if call.causal is not True and (call.score or call.weight is not None):
        return "without a causal order by index the queries of a block are not the last of its keys"
    together = [
        type(encoding).__name__ for encoding in call.score if not (encoding.scope.by_rows or encoding.reads.token_order)
    ]
    return f"the queries of {together[0]} depend on one another" if together else None


def strategy(call: AttentionCall) -> str:
    """How this backend goes about the call, in words."""
    return f"the definition by blocks of {rows_of(call)} queries, computed anew in the backward pass"


def run(call: AttentionCall) -> Tensor:
    """Attention block by block, ``(batch, heads, queries, value_dim)`` in the dtype of q."""
    return by_blocks(call, rows_of(call), _block, anew=torch.is_grad_enabled())


def by_blocks(
    call: AttentionCall, rows: int, of_block: Callable[[AttentionCall, int, int], Tensor], *, anew: bool
) -> Tensor:
    """What ``of_block(call, start, stop)`` gives for blocks of queries, on axis 2; ``anew`` in a backward pass.

    The last block comes first: in causal order it has the most visible keys, and what it frees has room for the others.
    Blocks that grow fit into nothing that was freed, and the C library's heap would come to hold all of them.
    """
    queries, parts = call.q.shape[2], []
    for start in reversed(range(0, queries, rows)):
        stop = min(start + rows, queries)
        if anew:
            parts.append(checkpoint(of_block, call, start, stop, use_reentrant=False))
        else:
            parts.append(of_block(call, start, stop))
    return torch.cat(parts[::-1], 2)


def rows_of(call: AttentionCall) -> int:
    """Queries of a block."""
    return BLOCK if call.q.is_cpu else LARGE


def _block(call: AttentionCall, start: int, stop: int) -> Tensor:
    """The results of queries ``start … stop − 1``."""
    return dense.run(block(call, start, stop))


def block(call: AttentionCall, start: int, stop: int) -> AttentionCall:
    """The call of queries ``start … stop − 1`` alone, which `divided` allows.

    In the causal order by index they are the last of the keys that are left, keys 0, 1, … in every case.
    """
    queries, keys = call.q.shape[2], call.k.shape[2]
    axis, q_pos, k_pos = -1 if call.axes == 1 else -2, call.q_pos, call.k_pos
    some = call.replace(
        q=call.q[:, :, start:stop],
        positions=(q_pos.narrow(axis, start, stop - start), k_pos),
        aligned=False,
        unrotated=None if call.unrotated is None else (call.unrotated[0][:, :, start:stop], call.unrotated[1]),
        dropout=None if call.dropout is None else call.dropout.after(start),
        row_lengths=_row_lengths(call, start, stop, keys),
    )
    if call.causal is not True:  # which keys each query attends to is written out, as the queries' places are lost
        return some.replace(mask=call.visible(start, stop), segments=None, causal=False, window=None)
    seen = stop + keys - queries
    mask, segments, unrotated = call.mask, call.segments, some.unrotated
    if mask is not None:
        mask = (mask if mask.shape[2] == 1 else mask[:, :, start:stop])[..., :seen]
    return some.replace(
        k=call.k[:, :, :seen],
        v=call.v[:, :, :seen],
        positions=(q_pos.narrow(axis, start, stop - start), k_pos.narrow(axis, 0, seen)),
        score_states=tuple(f if f is None else f[:, :, :seen] for f in call.score_states),
        weight_state=None if call.weight_state is None else call.weight_state[:, :, :seen],
        mask=mask,
        segments=None if segments is None else (segments[0][:, start:stop], segments[1][:, :seen]),
        unrotated=None if unrotated is None else (unrotated[0], unrotated[1][:, :, :seen]),
        row_lengths=_row_lengths(call, start, stop, seen),
        token_order=None if call.token_order is None else call.token_order.first(seen),
    )


def _row_lengths(call: AttentionCall, start: int, stop: int, seen: int) -> RowLengths | int | None:
    """What rotations inside score encodings span, of some queries and of the first keys."""
    if not isinstance(call.row_lengths, RowLengths):
        return call.row_lengths
    return RowLengths(some(call.row_lengths.queries, start, stop), some(call.row_lengths.keys, 0, seen))
