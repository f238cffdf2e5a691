"""`operator_with_backward`: a custom operator with a backward pass of its own, which compilers see as one node.

`KERNELS` holds GPU kernels that code below the folder of backends may use: a backend registers its kernel there, and a
caller that finds None computes without one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

KERNELS: dict[str, Callable[..., Any]] = {}


def operator_with_backward(
    name: str,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *,
    fake: Callable[..., Any],
    fake_backward: Callable[..., Any] | None,
    keep: Callable[[Sequence[Any], Any], Sequence[Any]],
    schema: str | None = None,
    backward_schema: str | None = None,
) -> Callable[..., Any]:
    """``forward`` as the operator ``posenc::name``, with first derivatives.

    Args:
        name: of the operator; its backward pass is ``name`` with "_backward" appended.
        forward: what it computes, of tensors and plain values; its annotations are the operator's schema.
        backward: ``backward(*gradients of the results, *kept)``, the gradient of the first input or a tuple of those of
            the first inputs, or one list of them where the first input is a list of tensors.
        fake: ``forward`` of tensors without numbers: the results' shapes.
        fake_backward: the same of ``backward``, which becomes an operator without derivatives; None: it is made of
            operators that have their own.
        keep: which values the backward pass is to have, of the inputs and the results.
        schema, backward_schema: where annotations do not say them.
    """
    operator = torch.library.custom_op(f"posenc::{name}", forward, mutates_args=(), schema=schema)
    operator.register_fake(fake)
    if fake_backward is not None:
        backward_operator = torch.library.custom_op(
            f"posenc::{name}_backward", backward, mutates_args=(), schema=backward_schema
        )
        backward_operator.register_fake(fake_backward)
        backward_operator.register_autograd(_refuse)
        backward = backward_operator

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        flat, ctx.structure = pytree.tree_flatten(tuple(keep(inputs, output)))
        ctx.save_for_backward(
            *(value for value in flat if isinstance(value, Tensor))
        )  # hooks of saved tensors see them
        ctx.plain = [None if isinstance(value, Tensor) else (value,) for value in flat]
        ctx.without = [[None] * len(value) if _is_tensors(value) else None for value in inputs]
        ctx.missing = [value is None for value in inputs]

    def differentiate(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        saved = iter(ctx.saved_tensors)
        kept = pytree.tree_unflatten([next(saved) if value is None else value[0] for value in ctx.plain], ctx.structure)
        found = backward(*gradients, *kept)
        if isinstance(found, list):
            found = [found]
        else:
            found = (found,) if isinstance(found, Tensor) else found
            found = [None if missing else g for g, missing in zip(found, ctx.missing, strict=False)]
        return (*found, *ctx.without[len(found) :])

    operator.register_autograd(differentiate, setup_context=setup)
    overload: Callable[..., Any] = getattr(torch.ops.posenc, name).default  # which compilers compare by itself alone
    return overload


def _is_tensors(value: object) -> bool:
    """Whether PyTorch takes an input for a list of tensors, which wants a list of gradients; it takes [] for one."""
    return isinstance(value, list | tuple) and all(isinstance(each, Tensor) for each in value)


def _refuse(ctx: Any, *gradients: object) -> None:
    raise RuntimeError(
        "operators of posenc have first derivatives alone; for second ones call attention(..., backend='dense')"
    )
