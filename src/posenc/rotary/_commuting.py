"""Rotations whose generators commute: a basis for each block, in which every token only rotates pairs.

    R(p) = exp(t S) = Q · (pair j rotated by t·w_j) · Qᵀ,   t = Σ_axis c_axis p_axis,   S = −Sᵀ

The idea: one small eigenproblem a block gives Q and w for all tokens, queries and keys alike; a token then costs what
RoPE costs, and two products with Q, instead of a matrix exponential, which is 4 to 20 times as dear. Eigenvectors have
no derivative where rates meet. So Q and w are constants, to which `_differentiable` adds the first order of
perturbation theory: terms whose value is zero and whose gradient is that of S, at any rates.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from posenc.encoding import Table, float64_if_supported, no_autocast
from posenc.frequencies.phase import TensorFrequencies
from posenc.rotary._axes import table_of_sums
from posenc.rotary._blocks import differentiated_otherwise, grouped, rotate_blocks, rotate_pairs_of_groups
from posenc.rotary._rotate import check_table, rotate_pairs
from posenc.rotary._skew import skew_exponential
from posenc.tracing import has_values

_ZERO = 1e-8  # below this share of the largest rate, eigenvectors of ±w are no longer told apart
_DISTINCT = 1e-3  # above this share they are so well separated that they are orthogonal to rounding
# Angles x = t (w_j − w_k) from which a quotient by the gap is nearer than the limit of equal rates: the one errs by
# rounding over x, the other by x²/24.
_NEAR = {torch.float32: 0.02, torch.float64: 2e-5}


def commuting_table(places: Tensor, generators: Tensor, times: Tensor, dtype: torch.dtype) -> Table:
    """What `commuting_rotate` needs; for blocks of 2 cos and sin alone.

    Args:
        places: coordinates ``(*batch, tokens, axes)``.
        generators: S ``(rows, blocks, b, b)``, skew, in the widest dtype.
        times: what each coordinate adds to t, ``(rows or 1, axes, blocks)``, likewise.
        dtype: of the table.
    """
    width = generators.shape[-1]
    if width == 2:
        return _waves(places, times, generators[..., 1:, 0], dtype)
    with no_autocast(places.device.type):
        token_times = places.to(times.dtype).unsqueeze(-3) @ times  # (*batch, rows | 1, tokens, blocks)
        if differentiated_otherwise():  # transforms know no eigenproblem without a derivative
            return (skew_exponential(token_times[..., None, None] * generators.unsqueeze(-4)).to(dtype),)
        # Q Qᵀ is the identity up to rounding alone: tokens at the origin are told apart, to keep their every bit
        still = (token_times == 0).all(-1, keepdim=True).to(dtype)  # a table is of one dtype
        basis, rates = skew_basis(generators.detach())
        if not (torch.is_grad_enabled() and generators.requires_grad):
            return still, _dense(basis.to(dtype)), *_waves(places, times, rates, dtype)
        # what counts as a near gap depends on the farthest token, whose angle the gap of two rates is multiplied by
        longest = token_times.detach().abs().amax()
        basis, learned_rates, near, close = _differentiable(generators, basis, rates, _NEAR[dtype] / longest)
        table = still, _dense(basis.to(dtype)), *_waves(places, times, learned_rates, dtype)
        # usual: no rates meet, and the second rotation, by half the angle, would add zeros to every gradient
        if has_values(close) and not bool(close.any()):
            return table
        by_channel = token_times.detach().repeat_interleave(width, -1).to(dtype)
        return *table, _dense(near.to(dtype)), by_channel, *_waves(places, times.detach(), rates / 2, dtype)


def commuting_rotate(x: Tensor, table: Table) -> Tensor:
    """Rotate ``x`` (batch, heads, tokens, width) by a `commuting_table`; channels past its blocks pass through.

    Tokens whose times are all 0 keep their every bit.
    """
    check_table(table)
    if len(table) == 1:
        return rotate_blocks(x, *table)
    if len(table) == 2:
        return rotate_pairs_of_groups(x, *table)
    still, basis, cos, sin, *rest = table
    rows, width = basis.shape[0], basis.shape[-1]
    blocks = grouped(x[..., :width], rows)  # (batch, rows, heads of a row, tokens, width)
    with no_autocast(x.device.type):
        inside = _times_rows(blocks.to(basis.dtype), basis)
        rotated = rotate_pairs(inside, cos.unsqueeze(-3), sin.unsqueeze(-3), "interleaved")
        if rest:  # t · R(t/2) N R(t/2) for pairs at nearly one rate; zero, for its gradient alone
            near, (times, half_cos, half_sin) = rest[0], (part.unsqueeze(-3) for part in rest[1:])
            middle = _times_rows(rotate_pairs(inside, half_cos, half_sin, "interleaved"), near.mT)
            rotated = rotated + times * rotate_pairs(middle, half_cos, half_sin, "interleaved")
        out = _times_rows(rotated, basis.mT).to(x.dtype)
    if not (still.device.type == "cpu" and has_values(still)) or bool(still.any()):
        # the values are those of x, the gradients, positions' among them, those of the rotation
        out = torch.where(still.unsqueeze(-3) != 0, blocks.detach() + (out - out.detach()), out)
    out = out.flatten(1, 2)
    return out if width == x.shape[-1] else torch.cat([out, x[..., width:]], -1)


def _waves(places: Tensor, times: Tensor, rates: Tensor, dtype: torch.dtype) -> Table:
    """cos and sin of t · w, ``(*batch, rows, tokens, pairs)``: pairs of a block share its t."""
    theta = times.unsqueeze(-1) * rates.unsqueeze(-3)  # (rows, axes, blocks, pairs of a block)
    frequencies = [TensorFrequencies(axis_theta) for axis_theta in theta.flatten(-2).unsqueeze(-2).unbind(1)]
    return table_of_sums(places, frequencies, dtype)


def _times_rows(x: Tensor, matrices: Tensor) -> Tensor:
    """``x`` (batch, rows, group, tokens, width) times a matrix a row, ``(rows, width, width)``."""
    return (x.flatten(2, 3) @ matrices).view(x.shape)


def _dense(blocks: Tensor) -> Tensor:
    """Blocks ``(rows, blocks, b, b)`` on the diagonal of ``(rows, blocks · b, blocks · b)``.

    One dense product a head is faster than many small ones: it reads its argument in place.
    """
    rows, count, width, _ = blocks.shape
    eye = torch.eye(count, dtype=blocks.dtype, device=blocks.device)
    return (blocks.unsqueeze(3) * eye[None, :, None, :, None]).reshape(rows, count * width, count * width)


class _FirstOrder(torch.autograd.Function):
    """The generators as they are, for a gradient that has no derivative of its own: another one is an error."""

    @staticmethod
    def forward(ctx: Any, generators: Tensor) -> Tensor:
        return generators.view_as(generators)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def _differentiable(
    generators: Tensor, basis: Tensor, rates: Tensor, near: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Q and w with the derivatives of S, where gaps of the rates are at least ``near``.

    S + dS has in the basis the new entries E = QᵀdS Q. Of two pairs j and k these are a complex number α times pair k
    and a number β times its conjugate. Q turns by iα / (w_j − w_k) and iβ / (w_j + w_k), and w_j grows by α_jj / i.

    Returns:
        Q, w, the entries N ``(rows, blocks, b, b)`` of gaps below ``near``, and which these are.
    """
    first_order: Tensor = _FirstOrder.apply(generators)  # type: ignore[no-untyped-call]
    inside = basis.mT @ first_order @ basis
    learned_rates = inside[..., 1::2, ::2].diagonal(dim1=-2, dim2=-1)
    # zero in value, with the gradient of S; all below is linear in it, so Q and w keep their values
    change = inside - inside.detach()
    pairs = rates.shape[-1]
    eye = torch.eye(pairs, dtype=rates.dtype, device=rates.device)
    i = torch.stack([torch.stack([0 * eye, -eye], -1), torch.stack([eye, 0 * eye], -1)], 1).reshape(2 * pairs, -1)
    # i acts on pairs as 90°: what of E commutes with it is α, what does not is β
    same, turned = eye.repeat_interleave(2, 0).repeat_interleave(2, 1) != 0, i @ change @ i
    row, column = (w.repeat_interleave(2, axis) for axis, w in ((-2, rates.unsqueeze(-1)), (-1, rates.unsqueeze(-2))))
    turn, rest, close = torch.zeros_like(change), torch.zeros_like(change), torch.zeros_like(same)
    for part, gap, apart in (((change - turned) / 2, row - column, ~same), ((change + turned) / 2, row + column, True)):
        small = gap.abs() < near
        # the inner `where` keeps infinities out of the quotient, whose gradient the outer one would make NaN
        turn = turn + part * torch.where(small, 0.0, 1 / torch.where(small, 1.0, gap))
        rest = rest + part * (small & apart)
        close = close | (small & apart)
    return basis + basis @ i @ turn, learned_rates, rest, close


@torch.library.custom_op("posenc::skew_basis", mutates_args=())
def skew_basis(generators: Tensor) -> tuple[Tensor, Tensor]:
    """Q ``(..., b, b)``, whose columns 2k and 2k + 1 are pair k, and w ``(..., b/2)``, of skew matrices of even size.

    In float64 where there is one; not differentiable. Q is orthogonal to rounding whatever meets or vanishes.
    """
    device = generators.device if generators.device.type in ("cpu", "cuda") else torch.device("cpu")
    wide = generators.to(device, torch.float64)
    pairs = wide.shape[-1] // 2
    broken = 0.0 * wide.sum((-2, -1)).unsqueeze(-1)  # NaN where the generator is not finite, which eigh refuses
    wide = wide.nan_to_num(0.0, 0.0, 0.0)
    values, vectors = torch.linalg.eigh(torch.complex(torch.zeros_like(wide), -wide))
    rates, vectors = values[..., pairs:], vectors[..., pairs:]  # i·w above zero; the others are their conjugates
    if bool((rates > _DISTINCT * rates[..., -1:]).all()):
        basis = torch.stack([vectors.imag, vectors.real], -1).flatten(-2) * math.sqrt(2)
    else:
        basis = _planes(rates, vectors)
    first, second = basis[..., ::2], basis[..., 1::2]
    # read off the basis, not taken from eigh's values: `_planes` has planes in another order, and some turned over
    rates = ((wide @ first) * second).sum(-2) + broken
    target = float64_if_supported(generators.device)
    return basis.contiguous().to(generators.device, target), rates.to(generators.device, target)


def _planes(rates: Tensor, vectors: Tensor) -> Tensor:
    """A real basis, orthogonal even where several rates vanish, which leaves their eigenvectors to chance.

    Planes of other rates get a number each, what is left gets 0; the eigenvectors of that sum are the basis.
    """
    number = torch.arange(1, rates.shape[-1] + 1, dtype=rates.dtype, device=rates.device)
    number = torch.where(rates > _ZERO * rates[..., -1:], number, 0.0).unsqueeze(-2)
    basis: Tensor = torch.linalg.eigh(sum((part * number) @ part.mT for part in (vectors.real, vectors.imag)))[1]
    return basis


@skew_basis.register_fake
def _(generators: Tensor) -> tuple[Tensor, Tensor]:
    *batch, width, _ = generators.shape
    target = float64_if_supported(generators.device)
    basis = generators.new_empty(*batch, width, width, dtype=target)
    return basis, generators.new_empty(*batch, width // 2, dtype=target)
