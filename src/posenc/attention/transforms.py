"""Whether somebody differentiates a call otherwise than by one backward pass: torch.func's transforms, forward mode.

Operators of this library and fused kernels have first derivatives by a backward pass and nothing else; handed a tangent
they would lose it, some of them silently. Plain operations have everything, so that such calls go to the definition.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

_functorch = torch._C._functorch


def only_plain_operations() -> str | None:
    """Why nothing but plain operations will do, or None."""
    if forward_ad._current_level >= 0:
        return "derivatives in forward mode need plain operations"
    if _functorch.get_dynamic_layer_stack_depth() > 0:
        return "transforms of torch.func need plain operations"
    return None


def beyond_fused_kernels(*tensors: Tensor) -> str | None:
    """Why PyTorch's fused kernels will not do, which can be mapped and differentiated once, or None."""
    if forward_ad._current_level >= 0:
        return "derivatives in forward mode need plain operations"
    if _functorch.get_dynamic_layer_stack_depth() == 0 or torch.compiler.is_compiling():
        return None
    stack = _functorch.get_interpreter_stack() or []
    gradients = sum(layer.key() == _functorch.TransformType.Grad for layer in stack)
    outside = any(_innermost(t).requires_grad for t in tensors)
    return "second derivatives need plain operations" if gradients + outside > 1 else None


def _innermost(x: Tensor) -> Tensor:
    """The tensor inside all that torch.func wrapped around it."""
    while _functorch.is_functorch_wrapped_tensor(x):
        x = _functorch.get_unwrapped(x)
    return x
