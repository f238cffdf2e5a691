"""Gradients of kernels that have no second derivative: asking for one is an error, and never a silent zero.

`torch.autograd.function.once_differentiable` is not enough. It marks the gradients only if the incoming gradient needs
one itself, and that of a plain sum does not: the second derivative by the saved inputs was then zero, and ``hessian``
of a path returned 0.0 where the definition has 2.18.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def first_only(name: str, gradients: Sequence[Tensor | None], inputs: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """The same gradients, which raise a RuntimeError where a second derivative is taken through them.

    Args:
        name: of the path, for the error.
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
            f"path {ctx.name!r} has first derivatives alone; for second ones call attention(..., path='dense')"
        )
