"""Stick-breaking on a GPU: operators around the kernels, and the remainder of the sticks.

Forward and backward need memory for the results, one number a query, and, in the backward pass, two numbers for each
query and block of keys, for as many queries at a time as fit `launch.ROOM`. Gradients come without atomic additions:
two runs agree to the last bit.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.backends.triton import launch, stick_kernels
from posenc.backends.triton.launch import KernelVisibility
from posenc.structure import Sticks


def attend_sticks(
    q: Tensor, k: Tensor, v: Tensor, sticks: Sticks, scale: float, visibility: KernelVisibility, tolerance: float = 2e-9
) -> Tensor:
    """Stick-breaking attention, ``(batch, heads, queries, value_dim)`` in the dtype of q.

    Args:
        q, k, v: as in `attention`, of one dtype, float32 or less.
        sticks: the structure.
        scale: of the products of q and k.
        visibility: which keys each query attends to.
        tolerance: weight of a row that may be left out.
    """
    q, k, v = (launch.row_contiguous(x) for x in (q, k, v))
    enough, drops = -math.log2(tolerance), sticks.remainder == "drop"
    outputs: tuple[Tensor, Tensor] = _operator(
        q,
        k,
        v,
        visibility.q_ids,
        visibility.k_ids,
        scale,
        visibility.causal,
        visibility.window,
        sticks.attend_current,
        enough,
        not drops,
    )
    out, used = outputs
    if drops:
        return out
    left, own_visible = torch.exp2(-used).unsqueeze(-1), _own_key_visible(q, k, visibility)
    if sticks.vector is not None:
        visible = ((used > 0) | own_visible).unsqueeze(-1)
        return (out + torch.where(visible, left, 0.0) * sticks.vector.float().unsqueeze(-2)).to(q.dtype)
    queries, keys = q.shape[2], k.shape[2]
    own_values = F.pad(v[:, :, max(0, keys - queries) :], (0, 0, max(0, queries - keys), 0)).float()
    grouped = torch.where(own_visible.unsqueeze(-1), left, 0.0).view(q.shape[0], k.shape[1], -1, queries, 1)
    return (out + (grouped * own_values.unsqueeze(2)).flatten(1, 2)).to(q.dtype)


def _own_key_visible(q: Tensor, k: Tensor, visibility: KernelVisibility) -> Tensor:
    """Whether each query's own key is there and not hidden, ``(batch | 1, 1, queries)``."""
    queries, keys = q.shape[2], k.shape[2]
    own_key = torch.arange(keys - queries, keys, device=q.device)
    if visibility.q_ids is None or visibility.k_ids is None:
        return (own_key >= 0)[None, None]
    return ((own_key >= 0) & (visibility.k_ids[:, own_key.clamp(min=0)] == visibility.q_ids)).unsqueeze(1)


def _arguments(q: Tensor, k: Tensor, v: Tensor, q_ids: Tensor | None, k_ids: Tensor | None) -> tuple[int, ...]:
    """Strides."""
    documents = launch.batch_stride(q_ids), launch.batch_stride(k_ids)
    return (*launch.strides(q), *launch.strides(k), *launch.strides(v), *documents)


def _sizes(q: Tensor, k: Tensor, v: Tensor, start: int, stop: int, window: int) -> tuple[int, ...]:
    """Numbers of everything."""
    heads, blocks = q.shape[1], -(-k.shape[2] // launch.tile(q))
    group = heads // k.shape[1]
    return heads, group, start, stop, q.shape[2], k.shape[2], window, q.shape[3], v.shape[3], blocks


def _constants(
    q: Tensor, v: Tensor, q_ids: Tensor | None, causal: bool, window: int, attend_current: bool
) -> dict[str, object]:
    return {
        "CAUSAL": causal, "WINDOW": window > 0, "IDS": q_ids is not None, "CURRENT": attend_current,
        "EXACT": launch.exact(q), "ROWS": launch.tile(q), "COLUMNS": launch.tile(q),
        "WIDTH": launch.padded(q.shape[3]), "VALUES": launch.padded(v.shape[3]),
        "num_warps": launch.WARPS, "num_stages": launch.STAGES,
    }  # fmt: skip


@torch.library.custom_op("posenc::attend_sticks", mutates_args=())
def _operator(
    q: Tensor, k: Tensor, v: Tensor, q_ids: Tensor | None, k_ids: Tensor | None, scale: float, causal: bool,
    window: int, current: bool, enough: float, wide: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Results without the remainder, in float32 where ``wide``; −log2 of what is left, ``(batch, heads, queries)``."""
    batch, heads, queries = q.shape[:3]
    out = q.new_empty(batch, heads, queries, v.shape[3], dtype=torch.float32 if wide else q.dtype)
    used = q.new_empty(batch, heads, queries, dtype=torch.float32)
    stick_kernels.walk[(-(-queries // launch.tile(q)), batch * heads)](
        q, k, v, q if q_ids is None else q_ids, k if k_ids is None else k_ids, out, used, used, scale, enough,
        *_arguments(q, k, v, q_ids, k_ids), *_sizes(q, k, v, 0, queries, window),
        KEEP=False, **_constants(q, v, q_ids, causal, window, current),
    )  # fmt: skip
    return out, used


@_operator.register_fake
def _(q, k, v, q_ids, k_ids, scale, causal, window, current, enough, wide):  # type: ignore[no-untyped-def]
    out = q.new_empty(*q.shape[:3], v.shape[3], dtype=torch.float32 if wide else q.dtype)
    return out, q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("posenc::attend_sticks_backward", mutates_args=())
def _backward_operator(
    grad: Tensor, grad_used: Tensor, q: Tensor, k: Tensor, v: Tensor, q_ids: Tensor | None, k_ids: Tensor | None,
    scale: float, causal: bool, window: int, current: bool, enough: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    batch, heads, queries, num_kv_heads, keys = *q.shape[:3], *k.shape[1:3]
    size = launch.tile(q)
    blocks = -(-keys // size)
    grad, grad_used = grad.to(q.dtype).contiguous(), grad_used.float().contiguous()
    d_q = torch.empty_like(q, memory_format=torch.contiguous_format)
    d_k, d_v = (torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (k, v))
    ids = q if q_ids is None else q_ids, k if k_ids is None else k_ids
    strides, constants = _arguments(q, k, v, q_ids, k_ids), _constants(q, v, q_ids, causal, window, current)
    for start, stop in launch.chunks(queries, 2 * batch * heads * blocks, size):
        # a tile that the walk did not come to has used everything
        carries = q.new_full((batch, heads, stop - start, blocks), math.inf, dtype=torch.float32)
        behind = torch.empty_like(carries)
        sizes = _sizes(q, k, v, start, stop, window)
        of_rows = (-(-(stop - start) // size), batch * heads)
        stick_kernels.walk[of_rows](
            q, k, v, *ids, carries, carries, carries, scale, enough, *strides, *sizes, KEEP=True, **constants
        )
        stick_kernels.of_queries[of_rows](
            q, k, v, *ids, grad, grad_used, carries, behind, d_q, scale, enough, *strides, *sizes, **constants
        )
        stick_kernels.of_keys[(blocks, batch * num_kv_heads)](
            q, k, v, *ids, grad, carries, behind, d_k, d_v, scale, enough, *strides, *sizes, **constants
        )
    return d_q, d_k.to(k.dtype), d_v.to(v.dtype)


@_backward_operator.register_fake
def _(grad, grad_used, q, k, v, q_ids, k_ids, scale, causal, window, current, enough):  # type: ignore[no-untyped-def]
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    *tensors, ctx.scale, ctx.causal, ctx.window, ctx.own, ctx.enough, _ = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx, grad: Tensor, grad_used: Tensor):  # type: ignore[no-untyped-def]
    gradients = _backward_operator(
        grad, grad_used, *ctx.saved_tensors, ctx.scale, ctx.causal, ctx.window, ctx.own, ctx.enough
    )
    return *gradients, *[None] * 8


_operator.register_autograd(_differentiate, setup_context=_setup)
