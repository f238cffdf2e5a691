"""The only code that rotates pairs of channels.

    half:          x = [ a0 a1 a2 … | b0 b1 b2 … ]       pair j = channels (j, j + pairs)
    interleaved:   x = [ a0 b0 a1 b1 a2 b2 … ]           pair j = channels (2j, 2j + 1)

    (a, b) → (a·cos − b·sin, b·cos + a·sin)

A rotation is bound by memory bandwidth. So there is one form per case, the one with the fewest passes over memory and
the fewest temporaries:

- on NVIDIA's GPUs, not compiled: a kernel in Triton, one launch for queries and keys, where it passed its check;
- compiled: two stacked results, rounded inside the stack, which becomes one loop at fixed and growing lengths;
- eager, interleaved: one complex product on a view of x; half: one product and two in-place ones on the halves;
- eager, in bfloat16 and float16: the same in float32, on the CPU block by block through a scratch that stays in the
  cache;
- learned tables, and anything that is not a plain tensor: the stacked form under ordinary autograd.

The invariant: every form computes in float32 or better and rounds once, so all agree up to that rounding. The backward
pass is the rotation by the opposite angles; it saves the tables and never x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from posenc.arguments import TRANSPOSE_HINT
from posenc.encoding import Table
from posenc.frequencies.rotation import Layout
from posenc.rotary import _exported
from posenc.rotary._kernels import by_kernel
from posenc.tracing import exporting, has_tangent, has_transforms, tracing, transformed

_SCRATCH = 2**18  # elements of a float32 block: 1 MiB, a core's share of the cache


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """Rotate the pairs of ``x`` (..., dim) by ``cos`` and ``sin`` (..., pairs); further channels pass through."""
    if cos.ndim < 2 or x.ndim < 2 or cos.shape[-2] != x.shape[-2]:
        check_tokens(x, cos)
    if exporting() and _exported.can(x, cos):
        return _exported.by_operator(x, cos, sin, layout == "interleaved")
    if _plain_only(x, cos):
        return _stacked(x, cos, sin, layout)
    special = transformed()
    if special and has_transforms():
        return _stacked(x, cos, sin, layout)
    if x.is_cuda:
        rotated_x = by_kernel(x, x[:, :0], cos, sin, layout) if x.ndim == 4 else None
        if rotated_x is not None:
            return rotated_x[0]
    if (x.requires_grad and torch.is_grad_enabled()) or (special and has_tangent((x, cos, sin))):
        rotated: Tensor = _Rotation.apply(x, cos, sin, layout, False)  # type: ignore[no-untyped-call]
        return rotated
    return _rotated(x, cos, sin, layout, False)


def rotate_pairs_(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """`rotate_pairs` in the memory of ``x``, which is also returned.

    Raises:
        ValueError: where ``x`` wants a gradient, or several of its elements lie in one place.
    """
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError("x must not require a gradient to be rotated in place: use rotate")
    if x.numel() and any(size > 1 and stride == 0 for size, stride in zip(x.shape, x.stride(), strict=True)):
        raise ValueError("x must not be expanded to be rotated in place: several elements share memory; use rotate")
    check_tokens(x, cos)
    if _plain_only(x, cos) or has_transforms():
        return x.copy_(rotate_pairs(x, cos, sin, layout))
    rotary = x[..., : 2 * cos.shape[-1]]
    if layout == "interleaved" and x.dtype == cos.dtype and _is_complex_in_memory(rotary):
        _as_complex(rotary).mul_(torch.complex(cos, sin))
        return x
    _through_scratch(x, cos, sin, layout, False, out=x)
    return x


def rotate_both(
    rotate: Callable[[Tensor, Table], Tensor], q: Tensor, k: Tensor, q_table: Table, k_table: Table
) -> tuple[Tensor, Tensor]:
    """q and k rotated; in a decoding step, which consists of calls and not of numbers, by one rotation for both."""
    if k_table[0] is q_table[0] and q.shape[2] == 1 and q.dtype == k.dtype:
        both = rotate(torch.cat([q, k], 1), q_table)
        return both[:, : q.shape[1]], both[:, q.shape[1] :]
    return rotate(q, q_table), rotate(k, k_table)


def tokens_second_last(rotate: Callable[[Tensor, Table], Tensor], x: Tensor, table: Table, token_axis: int) -> Tensor:
    """What ``rotate`` makes of ``(batch, heads, tokens, dim)``, for tokens before heads: views both ways, no copy."""
    if isinstance(token_axis, bool) or token_axis not in (-2, -3) or x.ndim not in (3, 4):
        raise ValueError(
            "token_axis must be -2 for (batch, heads, tokens, dim) or -3 for (batch, tokens, heads, dim) and "
            f"(total, heads, dim), got {token_axis!r} for {tuple(x.shape)}"
        )
    whole = x if x.ndim == 4 else x.unsqueeze(0)
    whole = whole if token_axis == -2 else whole.transpose(1, 2)
    rotated = rotate(whole, table)
    rotated = rotated if token_axis == -2 else rotated.transpose(1, 2)
    return rotated if x.ndim == 4 else rotated.squeeze(0)


def check_table(table: Table) -> None:
    """Raise a ValueError for positions in the place of a table.

    Two rows of positions would unpack as cos and sin, and rotate by nonsense where their number is that of the pairs.
    """
    if isinstance(table, Tensor):
        raise ValueError(
            f"table must be what encoding.table(positions) returns, a tuple, got a tensor of {tuple(table.shape)}: "
            "rotate(x, table(positions)) rotates at positions"
        )


def check_tokens(x: Tensor, cos: Tensor) -> None:
    """Raise a ValueError unless a table ``(..., tokens | 1, pairs)`` is for as many tokens as ``x`` has."""
    if cos.ndim < 2 or x.ndim < 2 or cos.shape[-2] == x.shape[-2]:
        return
    tokens = cos.shape[-2]
    if tokens != 1:
        hint = TRANSPOSE_HINT if x.ndim > 2 and x.shape[-3] % max(1, tokens) == 0 else ""  # heads, or those of q and k
        raise ValueError(f"positions are {tokens}, but x {tuple(x.shape)} has {x.shape[-2]} tokens{hint}")


def _plain_only(x: Tensor, cos: Tensor) -> bool:
    """Whether compilers, exporters, learned tables, other devices or subclasses ask for plain forms."""
    return (
        tracing()
        or not (x.is_cpu or x.is_cuda)
        or type(x) not in (Tensor, torch.nn.Parameter)
        or (cos.requires_grad and torch.is_grad_enabled())
    )


def _stacked(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """The definition, in the form that compilers turn into one loop."""
    pairs = cos.shape[-1]
    if 2 * pairs < x.shape[-1]:
        return torch.cat([_stacked(x[..., : 2 * pairs], cos, sin, layout), x[..., 2 * pairs :]], -1)
    axis, split = (-2, (2, pairs)) if layout == "half" else (-1, (pairs, 2))
    a, b = x.to(cos.dtype).unflatten(-1, split).unbind(axis)  # type: ignore[no-untyped-call]
    return torch.stack([(a * cos - b * sin).to(x.dtype), (b * cos + a * sin).to(x.dtype)], axis).flatten(-2)


class _Rotation(torch.autograd.Function):
    """The few-pass forms as one step of autograd, which keeps cos and sin."""

    @staticmethod
    def forward(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout, inverse: bool) -> Tensor:
        return _rotated(x, cos, sin, layout, inverse)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        # the transpose of a rotation is the rotation by the opposite angle: x itself need not be kept
        _, cos, sin, ctx.layout, ctx.inverse = inputs
        ctx.save_for_backward(cos, sin)
        ctx.save_for_forward(cos, sin)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        gradient_of_x: Tensor = _Rotation.apply(  # type: ignore[no-untyped-call]
            gradient, *ctx.saved_tensors, ctx.layout, not ctx.inverse
        )
        return gradient_of_x, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, x: Tensor, *_: None) -> Tensor:
        rotated: Tensor = _Rotation.apply(  # type: ignore[no-untyped-call]
            x, *ctx.saved_tensors, ctx.layout, ctx.inverse
        )
        return rotated


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout, inverse: bool) -> Tensor:
    """Eager forms without autograd; ``inverse`` rotates by the opposite angles."""
    rotary = 2 * cos.shape[-1]
    if x.dtype != cos.dtype:
        if x.numel() <= _SCRATCH or not x.is_cpu:  # blocks are for a core's cache; a GPU waits for each
            return _rotated(x.to(cos.dtype), cos, sin, layout, inverse).to(x.dtype)
        return _through_scratch(x, cos, sin, layout, inverse)
    if rotary == x.shape[-1] and layout == "half":
        return _by_halves(x, cos, sin, inverse)
    if rotary == x.shape[-1] and _is_complex_in_memory(x):
        if x.numel() == 0:  # its product has strides of 0, which view refuses
            return torch.empty_like(x)
        return (_as_complex(x) * _unit_circle(cos, sin, inverse)).view(x.dtype)
    out = torch.empty_like(x)
    if rotary == x.shape[-1]:
        _into(out, x, cos, sin, layout, inverse)
        return out
    out[..., rotary:] = x[..., rotary:]
    _into(out[..., :rotary], x[..., :rotary], cos, sin, layout, inverse)
    return out


def _by_halves(x: Tensor, cos: Tensor, sin: Tensor, inverse: bool) -> Tensor:
    """One product with doubled cos, which makes the result, and two into its halves."""
    pairs = cos.shape[-1]
    sign = 1.0 if inverse else -1.0
    out = x * torch.cat([cos, cos], -1)
    out[..., :pairs].addcmul_(x[..., pairs:], sin, value=sign)
    out[..., pairs:].addcmul_(x[..., :pairs], sin, value=-sign)
    return out


def _into(out: Tensor, x: Tensor, cos: Tensor, sin: Tensor, layout: Layout, inverse: bool) -> None:
    """Write the rotated ``x`` into ``out``, both (..., 2 · pairs) in the dtype of cos."""
    if layout == "interleaved" and _is_complex_in_memory(x) and _is_complex_in_memory(out):
        torch.mul(_as_complex(x), _unit_circle(cos, sin, inverse), out=_as_complex(out))
        return
    (a, b), (new_a, new_b) = _members(x, layout), _members(out, layout)
    sign = 1.0 if inverse else -1.0
    torch.mul(a, cos, out=new_a)
    new_a.addcmul_(b, sin, value=sign)
    torch.mul(b, cos, out=new_b)
    new_b.addcmul_(a, sin, value=-sign)


def _through_scratch(
    x: Tensor, cos: Tensor, sin: Tensor, layout: Layout, inverse: bool, *, out: Tensor | None = None
) -> Tensor:
    """Blocks of tokens go through scratch memory in the precision of cos, and are rounded once; ``out`` may be x."""
    tokens, rotary = x.shape[-2], 2 * cos.shape[-1]
    if out is None:
        out = torch.empty_like(x)
        out[..., rotary:] = x[..., rotary:]
    rows = max(1, min(tokens, _SCRATCH // max(1, x.numel() // max(1, tokens))))
    # in the order of x in memory, so that copies between the two run straight through: diffusion models have tokens
    # before heads, and there this halves the time
    after = torch.empty_like(x[..., :rows, :rotary], dtype=cos.dtype)
    is_complex = layout == "interleaved" and _is_complex_in_memory(after)
    before = after if is_complex else torch.empty_like(after) if x.dtype != cos.dtype else None
    for start in range(0, tokens, rows):
        here = slice(start, min(start + rows, tokens))
        size = here.stop - here.start
        tokens_here = here if cos.shape[-2] != 1 else slice(None)
        old, new = x[..., here, :rotary], after[..., :size, :]
        if before is not None:
            old = before[..., :size, :].copy_(old)
        _into(new, old, cos[..., tokens_here, :], sin[..., tokens_here, :], layout, inverse)
        out[..., here, :rotary] = new  # only now, as both members of a pair were read before: ``out`` may be x
    return out


_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


def _is_complex_in_memory(x: Tensor) -> bool:
    """Whether neighbouring channels can be seen as complex numbers: interleaved pairs are just that.

    A view needs every stride to fit, also for axes of size 1 or 0, which ``is_contiguous`` passes over; and no tensor
    whose signs wait to be rotated (a view of a conjugate) has one.
    """
    *outer, last = x.stride()
    odd = x.shape[-1] | int(x.storage_offset())
    for stride in outer:
        odd |= stride
    return last == 1 and not odd & 1 and x.dtype in _COMPLEX and not x.is_neg()


def _as_complex(x: Tensor) -> Tensor:
    return x.view(_COMPLEX[x.dtype])


def _unit_circle(cos: Tensor, sin: Tensor, inverse: bool) -> Tensor:
    return torch.complex(cos, -sin if inverse else sin)


def _members(x: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Views of the first and the second channel of every pair."""
    pairs = x.shape[-1] // 2
    return (x[..., :pairs], x[..., pairs:]) if layout == "half" else (x[..., ::2], x[..., 1::2])
