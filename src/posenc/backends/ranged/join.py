"""The kernel over all pieces, results joined as they come, with a backward pass of its own. First derivatives only."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from posenc.backends import fused_cpu
from posenc.backends.derivatives import first_only
from posenc.backends.ranged.pieces import Piece, Pieces


def attend(pieces: Pieces, v: Tensor, logits: Tensor | None, scale: float, rotated: list[Tensor]) -> Tensor:
    """Attention, ``(batch, heads, queries, width)``.

    Args:
        pieces: the pieces.
        v: values, as wide as the others.
        logits: of a sink, ``(heads,)``, or None.
        scale: of the products, positive.
        rotated: of each range the rotated queries and keys, those of its extent.
    """
    out: Tensor = _Join.apply(pieces, scale, v, logits, *rotated)  # type: ignore[no-untyped-call]
    return out


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pieces: Pieces, scale: float, v: Tensor, logits: Tensor | None, *rotated: Tensor) -> Tensor:
        out, norm = _joined(pieces, scale, v, rotated)
        if logits is not None:
            with_sink = torch.logaddexp(norm, logits.to(norm.dtype).unsqueeze(-1))
            out, norm = out.mul_((norm - with_sink).exp_().unsqueeze(-1)), with_sink
        out = out.to(v.dtype)
        ctx.pieces, ctx.scale, ctx.sinks = pieces, scale, logits is not None
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
    of_logits = None
    if ctx.sinks:
        logits, *rotated = rotated
        weight = (logits.to(norm.dtype).unsqueeze(-1) - norm).exp_()
        of_logits = -(weight * (grad.to(norm.dtype) * out.to(norm.dtype)).sum(-1)).sum((0, 2)).to(logits.dtype)
    norm = norm.masked_fill(norm == -math.inf, 0.0)
    totals = [torch.zeros(t.shape, dtype=norm.dtype, device=t.device) for t in (v, *rotated)]
    for piece in ctx.pieces:
        rows, keys, q, k = _of(piece, ctx.pieces, rotated)
        gradients = fused_cpu.backward(
            grad[:, :, rows], q, k, v[:, :, keys], out[:, :, rows], norm[:, :, rows].contiguous(), piece.mask,
            ctx.scale, causal=piece.causal,
        )  # fmt: skip
        of_rows, of_keys = ctx.pieces.extent(piece.part)
        totals[1 + 2 * piece.part][:, :, _within(rows, of_rows)] += gradients[0]
        totals[2 + 2 * piece.part][:, :, _within(keys, of_keys)] += gradients[1]
        totals[0][:, :, keys] += gradients[2]
    of_v, *of_rotated = (total.to(v.dtype) for total in totals)
    return [of_v, of_logits, *of_rotated]


def _joined(pieces: Pieces, scale: float, v: Tensor, rotated: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Results in float32 or better and their norms ``(batch, heads, queries)``; −inf without visible keys."""
    batch, heads = rotated[0].shape[:2]
    out = torch.zeros(batch, heads, pieces.queries, v.shape[3], dtype=pieces.wide, device=v.device)
    norm = torch.full((batch, heads, pieces.queries), -math.inf, dtype=pieces.wide, device=v.device)
    begun = bytearray(pieces.queries)  # queries that have a result
    for piece in pieces:
        rows, keys, q, k = _of(piece, pieces, rotated)
        piece_out, own_norm = fused_cpu.forward(q, k, v[:, :, keys], piece.mask, scale, causal=piece.causal)
        if piece.unseen is not None:  # of which the kernel knows nothing
            own_norm = own_norm.masked_fill(piece.unseen, -math.inf)
        before = norm[:, :, rows]
        if not any(begun[rows]):
            out[:, :, rows], norm[:, :, rows] = piece_out, own_norm
        else:
            share = torch.sigmoid(own_norm - before).nan_to_num_(0.0)
            out[:, :, rows].lerp_(piece_out.to(pieces.wide), share.unsqueeze(-1))
            norm[:, :, rows] = torch.logaddexp(before, own_norm)
        begun[rows] = b"\1" * (rows.stop - rows.start)
    return out, norm


def _of(
    piece: Piece, pieces: Pieces, rotated: tuple[Tensor, ...] | list[Tensor]
) -> tuple[slice, slice, Tensor, Tensor]:
    """The rows and keys of a piece, and its rotated queries and keys."""
    of_rows, of_keys = pieces.extent(piece.part)
    q, k = rotated[2 * piece.part], rotated[2 * piece.part + 1]
    return piece.rows, piece.keys, q[:, :, _within(piece.rows, of_rows)], k[:, :, _within(piece.keys, of_keys)]


def _within(some: slice, extent: slice) -> slice:
    return slice(some.start - extent.start, some.stop - extent.start)
