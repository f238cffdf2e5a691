"""Which derivatives of a call are supported, and what kernels with a hand-written backward pass do about the others.

Operators of this library and fused kernels have first derivatives by one backward pass, and nothing else. Under
torch.func's transforms and forward-mode differentiation they would lose tangents, some silently: those calls go
to plain operations. A second backward pass raises. `torch.autograd.function.once_differentiable` is not enough for it:
it marks the gradients only if the incoming gradient requires one itself, and that of a plain sum does not, so that
``hessian`` of a ranged call returned 0.0 where the definition has 2.18.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from posenc.tracing import differentiations, has_tangent, has_transforms, innermost, transformed

if TYPE_CHECKING:
    from posenc.call import AttentionCall


def only_plain_operations(call: AttentionCall) -> str | None:
    """Why nothing but plain operations will do for a call, or None."""
    if not transformed():
        return None
    if has_tangent(_of_call(call)):
        return "derivatives in forward mode need plain operations"
    if has_transforms():
        return "transforms of torch.func need plain operations"
    return None


def beyond_fused_kernels(call: AttentionCall) -> str | None:
    """Why PyTorch's fused kernels will not do, which can be mapped and differentiated once, or None."""
    if not transformed():
        return None
    if has_tangent(_of_call(call)):
        return "derivatives in forward mode need plain operations"
    if not has_transforms() or torch.compiler.is_compiling():
        return None
    outside = any(innermost(t).requires_grad for t in (call.q, call.k, call.v))
    return "second derivatives need plain operations" if differentiations() + outside > 1 else None


def _of_call(call: AttentionCall) -> Iterator[Tensor | None]:
    """The tensors on which the result of a call depends."""
    yield from (call.q, call.k, call.v, *(call.unrotated or ()), *call.score_states, call.weight_state)
    for encoding in (*call.bias, *call.score, *([] if call.weight is None else [call.weight])):
        for module in encoding.modules():
            yield from module._parameters.values()
            yield from (value for value in vars(module).values() if isinstance(value, Tensor))  # in place of parameters


def first_only(name: str, gradients: Sequence[Tensor | None], inputs: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """The same gradients, which raise a RuntimeError where a second derivative is taken through them.

    Args:
        name: of the backend, for the error.
        gradients: that a backward pass has computed, without a graph; None for inputs that need none.
        inputs: that they were computed from.
    """
    if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in inputs):
        return tuple(gradients)  # the usual backward pass builds no graph
    some = [gradient for gradient in gradients if gradient is not None]
    marked = iter(_Refusing.apply(name, len(some), *some, *inputs))  # type: ignore[no-untyped-call]
    return tuple(None if gradient is None else next(marked) for gradient in gradients)


class _Refusing(torch.autograd.Function):
    """Gradients tied to what they came from by a node whose own backward pass raises."""

    @staticmethod
    def forward(ctx: Any, name: str, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.name = name
        return tuple(gradient.view_as(gradient) for gradient in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, ...]:
        raise RuntimeError(
            f"backend {ctx.name!r} has first derivatives alone; for second ones call attention(..., backend='dense')"
        )
