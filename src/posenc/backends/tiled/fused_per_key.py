"""The fused kernel where every term is one number per key: terms per key, and gates whose rows differ little.

A block of queries attends to the keys of its own range under a small mask, and to all older keys under one row of
numbers that a stride of zero repeats for every query; the log-sum-exps of both join the results. In the backward pass
the kernel returns no gradient of a mask, but the sums over queries follow from values with one more channel:

    Σ_i dS_ij = v_j · dv_j − Σ_i P_ij δ_i,   dv_j = Σ_i P_ij do_i,   δ_i = do_i · o_i
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.backends import fused_cpu
from posenc.backends.tiled import portions
from posenc.backends.tiled.softmax import Softmax
from posenc.backends.tiled.terms import Decay, PerKey
from posenc.backends.tiled.tile import Tile, hidden_future
from posenc.backends.tiled.tiled_call import LOG2_E, TiledCall

BLOCK = 256  # queries of one kernel call
_SPREAD = 64.0  # more than gates of one block may add up to


def serves(call: TiledCall) -> bool:
    """Whether this is such a call, and long enough for blocks to be worth their while."""
    if not portions.available(call):
        return False
    causal_order = call.visibility.order_only and call.visibility.window is None and call.visibility.causal is True
    long = call.q.shape[2] >= BLOCK and call.q.shape[2] <= call.k.shape[2]
    return causal_order and long and len(call.terms) > 0 and _only_columns(call) and isinstance(call.weights, Softmax)


def _only_columns(call: TiledCall) -> bool:
    return all(isinstance(term, PerKey) and not term.steep(BLOCK // 2) for term in call.terms)


def serves_backward(call: TiledCall) -> bool:
    """Whether the kernel's backward pass can: it sums over the query heads of a key head, and is slow in half.

    With a sink, what gates add to all keys of a query has a gradient too, which sums over queries lack.
    """
    if call.sink is not None and any(isinstance(term, Decay) for term in call.terms):
        return False
    return call.q.shape[1] == call.k.shape[1] and call.q.dtype == call.wide and serves(call)


def _blocks(call: TiledCall, part: portions.Portion) -> Iterator[tuple[Tile, Tensor]]:
    """Blocks of queries, and what is added at their keys, ``(batch | 1, heads, 1, columns)``."""
    (batch, _, queries), keys = call.q.shape[:3], call.k.shape[2]
    for start in range(0, queries, BLOCK):
        stop = min(start + BLOCK, queries)
        tile = Tile(slice(0, batch), part.heads, part.kv, start, stop, queries - stop, keys, queries, keys)
        tile = tile if call.bounds is None else call.bounds.within(tile)
        yield tile, _at_keys(call, tile)


def _at_keys(call: TiledCall, tile: Tile) -> Tensor:
    total: Tensor | None = None
    for term in call.terms:
        assert isinstance(term, PerKey)
        added = term.at_keys(tile, call.wide)
        total = added if total is None else total + added
    assert total is not None
    if call.bounds is None:
        return total
    least = -call.bounds.excess[:, tile.heads, tile.start : tile.stop].amax(2)[:, :, None, None]
    return total.masked_fill(total < least - _SPREAD, -torch.inf)  # which keeps the kernel's exp out of its slow range


def _shift(call: TiledCall, tile: Tile) -> Tensor | float:
    """log2 of what rows have too much: sums of gates at queries are left out."""
    return sum(term.at_queries(tile, call.wide) * LOG2_E for term in call.terms if isinstance(term, PerKey))


def _pieces(tile: Tile, at_keys: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Reversed keys and their mask: the block's own range, and all older keys."""
    near_keys = min(tile.rows, tile.columns)
    future = hidden_future(tile.offset, tile.rows, near_keys, like=at_keys)
    yield slice(tile.near, tile.near + near_keys), at_keys[..., :near_keys] + future
    if tile.columns > near_keys:
        older = at_keys[..., near_keys:]
        yield slice(tile.near + near_keys, tile.far), older.expand(-1, -1, tile.rows, -1)


def forward(call: TiledCall) -> tuple[Tensor, Tensor]:
    """Results, and log2 of what the weights of each row were divided by."""
    out = call.q.new_empty(*call.q.shape[:3], call.v.shape[3])
    norm = call.q.new_empty((*call.q.shape[:3], 1), dtype=call.wide)
    for part in portions.portions(call, [(0, call.k.shape[1])]):
        for tile, at_keys in _blocks(call, part):
            rows = slice(tile.start, tile.stop)
            parts = [
                fused_cpu.forward(part.q[:, :, rows], part.k[:, :, seen], part.v[:, :, seen], mask, call.scale)
                for seen, mask in _pieces(tile, at_keys)
            ]
            total, logs = parts[0]
            if len(parts) == 2:
                logs = torch.logaddexp(parts[0][1], parts[1][1])
                near, far = ((norms - logs).exp_().unsqueeze(-1).to(total.dtype) for _, norms in parts)
                total = total.mul_(near).addcmul_(parts[1][0], far)
            out[:, tile.heads, rows] = total[..., : out.shape[3]]
            norm[:, tile.heads, rows] = logs.unsqueeze(-1) * LOG2_E - _shift(call, tile)
    return out, norm


def backward(call: TiledCall, grad: Tensor, out: Tensor, norm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v; the terms gather their own gradients."""
    of_call = tuple(torch.empty_like(t) for t in (call.q, call.k, call.v))
    per_key = call.q.new_empty(call.k.shape[:3])
    value_dim = call.v.shape[3]
    for part in portions.portions(call, [(0, call.k.shape[1])], more=1):
        of_k, of_v, outs = torch.zeros_like(part.k), torch.zeros_like(part.v), part.widened(out)
        delta = (grad[:, part.heads] * out[:, part.heads]).sum(-1, keepdim=True)
        of_out = F.pad(torch.cat([grad[:, part.heads], delta], -1), (0, part.q.shape[3] - value_dim - 1))
        for tile, at_keys in _blocks(call, part):
            rows = slice(tile.start, tile.stop)
            of_rows: Tensor | None = None
            logs = ((norm[:, part.heads, rows] + _shift(call, tile)) / LOG2_E).squeeze(-1)
            for seen, mask in _pieces(tile, at_keys):
                operands = (
                    of_out[:, :, rows],
                    part.q[:, :, rows],
                    part.k[:, :, seen],
                    part.v[:, :, seen],
                    outs[:, :, rows],
                )
                parts = fused_cpu.backward(*operands, logs, mask, call.scale)
                of_rows = parts[0] if of_rows is None else of_rows.add_(parts[0])
                of_k[:, :, seen].add_(parts[1])
                of_v[:, :, seen].add_(parts[2])
            assert of_rows is not None
            of_call[0][:, part.heads, rows] = of_rows[..., : call.q.shape[3]]
        per_key[:, part.kv] = (part.v * of_v)[..., :value_dim].sum(-1) - of_v[..., value_dim]
        part.close(of_call, of_k, of_v)
    for term in call.terms:
        assert isinstance(term, PerKey)
        term.gather(per_key)
    return of_call[0], of_call[1], of_call[2]
