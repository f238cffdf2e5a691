"""Blocks of channels rotated in a basis: two products and a rotation of pairs, as one operator.

    y = Q · (pairs of Qᵀ x rotated by t·w) = exp(t S) x

The idea: the generators S of a block commute over positions, so one basis Q diagonalizes the rotations of all tokens.
A token then costs a rotation of pairs and two products with Q instead of a matrix exponential.

The backward pass gives the gradients of x, of the generators S and of the times t. The gradient of S goes through the
basis (`posenc.rotary._basis`) and is exact for any loss, also where rates w vanish or coincide. Compilers and exporters
see one node. Parts of a batch go through all steps together, so that they stay in a core's cache. First derivatives
only; transforms of torch.func and forward mode use a matrix exponential per token.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from posenc.encoding import float64_if_supported, no_autocast
from posenc.rotary._basis import Sums, blocks_of, generator_gradient
from posenc.rotary._blocks import differentiated_otherwise, grouped, rotate_blocks
from posenc.rotary._rotate import rotate_pairs, rotate_pairs_
from posenc.rotary._skew import skew_exponential

_IN_CACHE = 2**20  # numbers of x that stay in a core's cache through all steps


def rotate_in_basis(
    x: Tensor, generators: Tensor, times: Tensor, rates: Tensor, dense: Tensor, cos: Tensor, sin: Tensor
) -> Tensor:
    """``x`` (batch, heads, tokens, width) rotated by exp(times · generators), block by block.

    Args:
        generators: S ``(rows, blocks, b, b)``, skew; its gradient is that of the whole rotation.
        times: t ``(*batch, rows | 1, tokens, blocks)``; likewise. Tokens whose times are all 0 stay
            exactly as they are.
        rates: w ``(rows, blocks, b/2)``, and
        dense: Q ``(rows, width, width)``, zero outside its blocks, both of S.
        cos, sin: of times · rates, ``(*batch, rows, tokens, width/2)``; none of these four has a gradient.
    """
    if differentiated_otherwise():
        each = times[..., None, None] * generators.unsqueeze(-4)  # (*batch, rows, tokens, blocks, b, b)
        return rotate_blocks(x, skew_exponential(each))
    operands = generators, times, rates, dense, cos, sin
    if torch.compiler.is_compiling() or (
        torch.is_grad_enabled() and any(t.requires_grad for t in (x, generators, times))
    ):
        rotated: Tensor = _operator(x, *operands)
        return rotated
    return _forward(x, times, dense, cos, sin)


def _parts(x: Tensor, numbers: int) -> Iterator[slice]:
    """Rows of the batch that go through all steps together: so many numbers on the CPU, all elsewhere."""
    size = x.shape[0] if x.device.type != "cpu" else max(1, numbers // max(1, x[:1].numel()))
    for start in range(0, x.shape[0], size):
        yield slice(start, start + size)


def _at(part: slice, table: Tensor, axes: int) -> Tensor:
    """The rows of a table that belong to a part of the batch, where it has rows at all."""
    return table[part] if table.ndim > axes and table.shape[0] > 1 else table


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, *, in_place: bool = False) -> Tensor:
    """x (batch, rows, group · tokens, width) with its pairs rotated by cos and sin (*batch, rows, tokens, pairs)."""
    by_group = x.unflatten(2, (-1, cos.shape[-2]))  # type: ignore[no-untyped-call]
    rotate = rotate_pairs_ if in_place else rotate_pairs
    return rotate(by_group, cos.unsqueeze(-3), sin.unsqueeze(-3), "interleaved").flatten(2, 3)


def _entered(x: Tensor, dense: Tensor) -> Tensor:
    """x (batch, heads, tokens, width) as (batch, rows, group · tokens, width) in the basis."""
    return grouped(x.to(dense.dtype), dense.shape[0]).flatten(2, 3) @ dense


def _still(times: Tensor, x: Tensor) -> Tensor | None:
    """Which tokens are not rotated at all, ``(*batch, heads | 1, tokens, 1)``; None where that is known to be none."""
    still = (times == 0).all(-1, keepdim=True)
    if x.device.type == "cpu" and not bool(still.any()):
        return None
    return still if still.shape[-3] == 1 else still.repeat_interleave(x.shape[1] // still.shape[-3], -3)


def _forward(x: Tensor, times: Tensor, dense: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    still = _still(times, x)
    with no_autocast(x.device.type):
        for part in _parts(x, _IN_CACHE):
            inside = _rotated(_entered(x[part], dense), _at(part, cos, 3), _at(part, sin, 3), in_place=True)
            _leave(inside, dense, x[part], None if still is None else _at(part, still, 3), out[part])
    return out


def _leave(inside: Tensor, dense: Tensor, before: Tensor, still: Tensor | None, out: Tensor) -> None:
    """Write what comes out of the basis; tokens that are not rotated keep their every bit."""
    if still is None and out.dtype == inside.dtype:
        torch.matmul(inside, dense.mT, out=out.view(inside.shape))
        return
    rotated = (inside @ dense.mT).view(out.shape).to(out.dtype)
    out.copy_(rotated if still is None else torch.where(still, before, rotated))


@torch.library.custom_op("posenc::turn_in_basis", mutates_args=())
def _operator(
    x: Tensor, generators: Tensor, times: Tensor, rates: Tensor, dense: Tensor, cos: Tensor, sin: Tensor
) -> Tensor:
    return _forward(x, times, dense, cos, sin)


@_operator.register_fake
def _(x: Tensor, generators: Tensor, times: Tensor, rates: Tensor, dense: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@torch.library.custom_op("posenc::turn_in_basis_backward", mutates_args=())
def _backward_operator(
    grad: Tensor, x: Tensor, times: Tensor, rates: Tensor, dense: Tensor, cos: Tensor, sin: Tensor,
    of_generators: bool, of_times: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    of_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    wide = float64_if_supported(x.device)
    sums = _GeneratorSums(times, rates, dense, wide) if of_generators else None
    of_t = torch.zeros(times.shape if of_times else (0,), dtype=times.dtype, device=x.device)
    still, weights = _still(times, x), rates.to(dense.dtype).flatten(-2).unsqueeze(-2)
    with no_autocast(x.device.type):
        for part in _parts(x, _IN_CACHE // 4):  # of more tensors
            c, s = _at(part, cos, 3), _at(part, sin, 3)
            g = _entered(grad[part], dense)
            back = _rotated(g, c, -s)
            _leave(back, dense, grad[part], None if still is None else _at(part, still, 3), of_x[part])
            if of_generators or of_times:
                inside = _entered(x[part], dense)
                rotated = _rotated(inside, c, s)
                if sums is not None:
                    sums.add(part, g, back, inside, rotated)
                if of_times:
                    _add_times(_at(part, of_t, 3), g, rotated, weights)
        of_s = torch.empty(0, device=x.device) if sums is None else sums.gradient()
    return of_x, of_s, of_t


@_backward_operator.register_fake
def _(
    grad: Tensor, x: Tensor, times: Tensor, rates: Tensor, dense: Tensor, cos: Tensor, sin: Tensor,
    of_generators: bool, of_times: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    rows, blocks, pairs = rates.shape
    of_s = dense.new_empty((rows, blocks, 2 * pairs, 2 * pairs) if of_generators else (0,))
    return (
        torch.empty(x.shape, dtype=x.dtype, device=x.device),
        of_s,
        times.new_empty(times.shape if of_times else (0,)),
    )


def _add_times(gradient: Tensor, g: Tensor, rotated: Tensor, weights: Tensor) -> None:
    """Add the gradient of the times: g · d(rotated)/dt, where rotated pairs move by i·w times themselves."""
    along = g[..., 1::2] * rotated[..., ::2] - g[..., ::2] * rotated[..., 1::2]
    rows, tokens, blocks = gradient.shape[-3:]
    by_block = (along * weights).unflatten(-1, (blocks, -1)).sum(-1)  # type: ignore[no-untyped-call]
    by_token = by_block.unflatten(2, (-1, tokens)).sum(2)  # (batch, rows of generators, tokens, blocks)
    by_token = by_token.sum(1, keepdim=True) if rows == 1 else by_token
    gradient += by_token if gradient.ndim == 4 and gradient.shape[0] == by_token.shape[0] else by_token.sum(0)


class _GeneratorSums:
    """Sums over tokens for the gradient of the generators."""

    def __init__(self, times: Tensor, rates: Tensor, dense: Tensor, wide: torch.dtype) -> None:
        self.rates, self.dense, self.blocks = rates, dense, rates.shape[1]
        self.longest = times.abs().amax(-2).view(-1, *times.shape[-3:-2], self.blocks).amax(0)[..., None, None]
        width = dense.shape[-1] // self.blocks
        half = (times.unsqueeze(-1) * rates.unsqueeze(-3)).flatten(-2) / 2
        self.cos, self.sin = half.cos().to(dense.dtype), half.sin().to(dense.dtype)
        share = times / self.longest.squeeze(-1).squeeze(-1).unsqueeze(-2).clamp(min=torch.finfo(times.dtype).tiny)
        self.once = times.to(dense.dtype).repeat_interleave(width, -1).unsqueeze(-3)
        self.bend = share.square().to(dense.dtype).repeat_interleave(width, -1).unsqueeze(-3)
        shape = dense.shape[0], self.blocks, width, width
        self.sums = Sums(*(torch.zeros(shape, dtype=wide, device=dense.device) for _ in range(3)))

    def add(self, part: slice, g: Tensor, back: Tensor, inside: Tensor, rotated: Tensor) -> None:
        """Add the tokens of a part of the batch; see `generator_gradient`."""
        c, s = _at(part, self.cos, 3), _at(part, self.sin, 3)
        half_back, half_on = _rotated(g, c, -s), _rotated(inside, c, s)
        by_group = half_back.unflatten(2, (-1, c.shape[-2]))  # type: ignore[no-untyped-call]
        middle = by_group * _at(part, self.once, 4)
        third = (middle * _at(part, self.bend, 4)).flatten(2, 3)
        for total, products in zip(
            self.sums,
            (back.mT @ inside - g.mT @ rotated, middle.flatten(2, 3).mT @ half_on, third.mT @ half_on),
            strict=True,
        ):
            total += blocks_of(products.sum(0), self.blocks)

    def gradient(self) -> Tensor:
        basis = blocks_of(self.dense, self.blocks)
        longest = self.longest.to(self.sums.difference.dtype)
        gradient = generator_gradient(self.sums, basis, self.rates, longest, self.dense.dtype)
        return gradient.to(self.dense.dtype)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    x, _, *rest = inputs
    ctx.save_for_backward(x, *rest)


def _differentiate(ctx, grad: Tensor):  # type: ignore[no-untyped-def]
    of_generators, of_times = ctx.needs_input_grad[1:3]
    gradients = _backward_operator(grad, *ctx.saved_tensors, of_generators, of_times)
    of_x, of_s, of_t = gradients
    return of_x, of_s if of_generators else None, of_t if of_times else None, None, None, None, None


_operator.register_autograd(_differentiate, setup_context=_setup)
