"""The kernel over all rectangles, results joined as they come, with its own backward pass. First derivatives only."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from posenc.backends import fused_cpu
from posenc.backends.derivatives import first_only
from posenc.backends.ranged.rectangles import Rectangle, Rectangles


def attend(rectangles: Rectangles, v: Tensor, logits: Tensor | None, scale: float, rotated: list[Tensor]) -> Tensor:
    """Attention, ``(batch, heads, queries, width)``.

    Args:
        rectangles: the rectangles.
        v: values, as wide as the others.
        logits: of a sink, ``(heads,)``, or None.
        scale: of the products, positive.
        rotated: of each range the rotated queries and keys, those of its extent.
    """
    out: Tensor = _Join.apply(rectangles, scale, v, logits, *rotated)  # type: ignore[no-untyped-call]
    return out


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rectangles: Rectangles, scale: float, v: Tensor, logits: Tensor | None, *rotated: Tensor
    ) -> Tensor:
        out, norm = _joined(rectangles, scale, v, rotated)
        if logits is not None:
            with_sink = torch.logaddexp(norm, logits.to(norm.dtype).unsqueeze(-1))
            out, norm = out.mul_((norm - with_sink).exp_().unsqueeze(-1)), with_sink
        out = out.to(v.dtype)
        ctx.rectangles, ctx.scale, ctx.sinks = rectangles, scale, logits is not None
        ctx.save_for_backward(out, norm, v, *([] if logits is None else [logits]), *rotated)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # asked once: activation checkpointing gives them out no second time
        with torch.no_grad():
            gradients = _backward(ctx, grad, saved)
        return None, None, *first_only("ranged", gradients, [grad, *saved])


def _backward(ctx: Any, grad: Tensor, saved: tuple[Tensor, ...]) -> list[Tensor | None]:
    """Gradients of the values, of a sink's logits, and of each range's queries and keys."""
    out, norm, v, *rotated = saved
    grad_logits = None
    if ctx.sinks:
        logits, *rotated = rotated
        weight = (logits.to(norm.dtype).unsqueeze(-1) - norm).exp_()
        grad_logits = -(weight * (grad.to(norm.dtype) * out.to(norm.dtype)).sum(-1)).sum((0, 2)).to(logits.dtype)
    norm = norm.masked_fill(norm == -math.inf, 0.0)
    totals = [torch.zeros(t.shape, dtype=norm.dtype, device=t.device) for t in (v, *rotated)]
    for rectangle in ctx.rectangles:
        rows, keys, q, k = _inputs(rectangle, ctx.rectangles, rotated)
        gradients = fused_cpu.backward(
            grad[:, :, rows], q, k, v[:, :, keys], out[:, :, rows], norm[:, :, rows].contiguous(), rectangle.mask,
            ctx.scale, causal=rectangle.causal,
        )  # fmt: skip
        row_extent, key_extent = ctx.rectangles.extent(rectangle.number)
        totals[1 + 2 * rectangle.number][:, :, _within(rows, row_extent)] += gradients[0]
        totals[2 + 2 * rectangle.number][:, :, _within(keys, key_extent)] += gradients[1]
        totals[0][:, :, keys] += gradients[2]
    grad_v, *grad_rotated = (total.to(v.dtype) for total in totals)
    return [grad_v, grad_logits, *grad_rotated]


def _joined(rectangles: Rectangles, scale: float, v: Tensor, rotated: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Results in float32 or better and their norms ``(batch, heads, queries)``; −inf without visible keys."""
    batch, heads = rotated[0].shape[:2]
    out = torch.zeros(batch, heads, rectangles.queries, v.shape[3], dtype=rectangles.wide, device=v.device)
    norm = torch.full((batch, heads, rectangles.queries), -math.inf, dtype=rectangles.wide, device=v.device)
    begun = bytearray(rectangles.queries)  # queries that have a result
    for rectangle in rectangles:
        rows, keys, q, k = _inputs(rectangle, rectangles, rotated)
        own_out, own_norm = fused_cpu.forward(q, k, v[:, :, keys], rectangle.mask, scale, causal=rectangle.causal)
        if rectangle.unseen is not None:  # of which the kernel knows nothing
            own_norm = own_norm.masked_fill(rectangle.unseen, -math.inf)
        before = norm[:, :, rows]
        if not any(begun[rows]):
            out[:, :, rows], norm[:, :, rows] = own_out, own_norm
        else:
            share = torch.sigmoid(own_norm - before).nan_to_num_(0.0)
            out[:, :, rows].lerp_(own_out.to(rectangles.wide), share.unsqueeze(-1))
            norm[:, :, rows] = torch.logaddexp(before, own_norm)
        begun[rows] = b"\1" * (rows.stop - rows.start)
    return out, norm


def _inputs(
    rectangle: Rectangle, rectangles: Rectangles, rotated: tuple[Tensor, ...] | list[Tensor]
) -> tuple[slice, slice, Tensor, Tensor]:
    """The rows and keys of a rectangle, and its rotated queries and keys."""
    row_extent, key_extent = rectangles.extent(rectangle.number)
    q, k = rotated[2 * rectangle.number], rotated[2 * rectangle.number + 1]
    return (
        rectangle.rows,
        rectangle.keys,
        q[:, :, _within(rectangle.rows, row_extent)],
        k[:, :, _within(rectangle.keys, key_extent)],
    )


def _within(some: slice, extent: slice) -> slice:
    return slice(some.start - extent.start, some.stop - extent.start)
