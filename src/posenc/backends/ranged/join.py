"""The kernel over all pieces, results joined as they come, with a backward pass of its own. First derivatives only."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from posenc.backends import fused_cpu
from posenc.backends.derivatives import first_only
from posenc.backends.ranged.pieces import Cut, Piece


def attend(cut: Cut, v: Tensor, logits: Tensor | None, scale: float, turned: list[Tensor]) -> Tensor:
    """Attention, ``(batch, heads, queries, width)``.

    Args:
        cut: the pieces.
        v: values, as wide as the others.
        logits: of a sink, ``(heads,)``, or None.
        scale: of the products, positive.
        turned: of each range the turned queries and keys, those of its extent.
    """
    out: Tensor = _Join.apply(cut, scale, v, logits, *turned)  # type: ignore[no-untyped-call]
    return out


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cut: Cut, scale: float, v: Tensor, logits: Tensor | None, *turned: Tensor) -> Tensor:
        out, norm = _joined(cut, scale, v, turned)
        if logits is not None:
            whole = torch.logaddexp(norm, logits.to(norm.dtype).unsqueeze(-1))
            out, norm = out.mul_((norm - whole).exp_().unsqueeze(-1)), whole
        out = out.to(v.dtype)
        ctx.cut, ctx.scale, ctx.sinks = cut, scale, logits is not None
        ctx.save_for_backward(out, norm, v, *([] if logits is None else [logits]), *turned)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            gradients = _backward(ctx, grad)
        return None, None, *first_only("ranged", gradients, [grad, *ctx.saved_tensors])


def _backward(ctx: Any, grad: Tensor) -> list[Tensor | None]:
    """Gradients of the values, of a sink's logits, and of each range's queries and keys."""
    out, norm, v, *turned = ctx.saved_tensors
    of_logits = None
    if ctx.sinks:
        logits, *turned = turned
        weight = (logits.to(norm.dtype).unsqueeze(-1) - norm).exp_()
        of_logits = -(weight * (grad.to(norm.dtype) * out.to(norm.dtype)).sum(-1)).sum((0, 2)).to(logits.dtype)
    norm = norm.masked_fill(norm == -math.inf, 0.0)
    totals = [torch.zeros(t.shape, dtype=norm.dtype, device=t.device) for t in (v, *turned)]
    for piece in ctx.cut:
        rows, keys, q, k = _of(piece, ctx.cut, turned)
        found = fused_cpu.backward(
            grad[:, :, rows], q, k, v[:, :, keys], out[:, :, rows], norm[:, :, rows].contiguous(), piece.mask,
            ctx.scale, causal=piece.causal,
        )  # fmt: skip
        of_rows, of_keys = ctx.cut.extent(piece.part)
        totals[1 + 2 * piece.part][:, :, _within(rows, of_rows)] += found[0]
        totals[2 + 2 * piece.part][:, :, _within(keys, of_keys)] += found[1]
        totals[0][:, :, keys] += found[2]
    of_v, *of_turned = (total.to(v.dtype) for total in totals)
    return [of_v, of_logits, *of_turned]


def _joined(cut: Cut, scale: float, v: Tensor, turned: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Results in float32 or better and their norms ``(batch, heads, queries)``; −inf where a query sees no key."""
    batch, heads = turned[0].shape[:2]
    out = torch.zeros(batch, heads, cut.queries, v.shape[3], dtype=cut.wide, device=v.device)
    norm = torch.full((batch, heads, cut.queries), -math.inf, dtype=cut.wide, device=v.device)
    begun = bytearray(cut.queries)  # queries that have a result
    for piece in cut:
        rows, keys, q, k = _of(piece, cut, turned)
        own, own_norm = fused_cpu.forward(q, k, v[:, :, keys], piece.mask, scale, causal=piece.causal)
        if piece.unseen is not None:  # of which the kernel knows nothing
            own_norm = own_norm.masked_fill(piece.unseen, -math.inf)
        before = norm[:, :, rows]
        if not any(begun[rows]):
            out[:, :, rows], norm[:, :, rows] = own, own_norm
        else:
            share = torch.sigmoid(own_norm - before).nan_to_num_(0.0)
            out[:, :, rows].lerp_(own.to(cut.wide), share.unsqueeze(-1))
            norm[:, :, rows] = torch.logaddexp(before, own_norm)
        begun[rows] = b"\1" * (rows.stop - rows.start)
    return out, norm


def _of(piece: Piece, cut: Cut, turned: tuple[Tensor, ...] | list[Tensor]) -> tuple[slice, slice, Tensor, Tensor]:
    """The rows and keys of a piece, and its turned queries and keys."""
    of_rows, of_keys = cut.extent(piece.part)
    q, k = turned[2 * piece.part], turned[2 * piece.part + 1]
    return piece.rows, piece.keys, q[:, :, _within(piece.rows, of_rows)], k[:, :, _within(piece.keys, of_keys)]


def _within(some: slice, extent: slice) -> slice:
    return slice(some.start - extent.start, some.stop - extent.start)
