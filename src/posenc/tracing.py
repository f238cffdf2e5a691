"""Whether a call is traced or transformed: the one place that asks PyTorch's private flags.

Traced, by a compiler or an exporter, what holds for one size must hold for all, and no value can be looked at.
Transformed, by torch.func or in forward mode, kernels with a backward pass of their own would lose derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

tracing: Callable[[], bool] = torch.compiler.is_compiling  # by torch.compile or torch.export
# torch 2.6 does not tell exports from compilers.
exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", tracing)


@contextmanager
def real_tensors() -> Iterator[None]:
    """Out of PyTorch's modes: under FakeTensorMode the constants of a module are numbers all the same."""
    with _disable_current_modes():
        yield


@contextmanager
def autograd_in_operator() -> Iterator[None]:
    """Autograd on the CPU inside a custom operator, which torch runs below it whatever `torch.enable_grad` says."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU)
    keys = keys | torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded - keys), torch.enable_grad():
        yield


def has_values(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor can be looked at: it is not traced, fake, on "meta" or mapped over."""
    if tracing() or tensor.is_meta or isinstance(tensor, FakeTensor):
        return False
    if _functorch.is_functorch_wrapped_tensor(tensor):
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def may_keep(device: torch.device) -> bool:
    """Whether a tensor made now is one that later calls can read: neither a stand-in, nor part of a captured graph."""
    return not (stand_ins() or (device.type == "cuda" and torch.cuda.is_current_stream_capturing()))


def has_tangent(tensors: Iterable[Tensor | None]) -> bool:
    """Whether any of these is differentiated in forward mode; that some thread does so with others says nothing.

    Under transforms of torch.func, which wrap tensors, forward mode counts wherever it is.
    """
    if forward_ad._current_level < 0:
        return False
    if has_transforms():
        return True
    unpack = forward_ad.unpack_dual
    return any(t is not None and unpack(t).tangent is not None for t in tensors)  # type: ignore[no-untyped-call]


def has_transforms() -> bool:
    """Whether a transform of torch.func is at work."""
    return bool(_depth_of_transforms() > 0)


def transformed() -> bool:
    """Whether a transform of torch.func or forward mode is at work: only then must the tensors of a call be asked."""
    return bool(forward_ad._current_level >= 0 or _depth_of_transforms() > 0)


def differentiations() -> int:
    """How many transforms of torch.func that differentiate are at work, one inside another."""
    stack = _functorch.get_interpreter_stack() or []
    return sum(layer.key() == _functorch.TransformType.Grad for layer in stack)


def innermost(x: Tensor) -> Tensor:
    """The tensor inside all that torch.func wrapped around it."""
    while _functorch.is_functorch_wrapped_tensor(x):
        x = _functorch.get_unwrapped(x)
    return x


def stand_ins() -> bool:
    """Whether a tracer, a mode of dispatch or a transform of this thread may hand out stand-ins of tensors."""
    return bool(tracing() or _dispatch_modes() or _depth_of_transforms() or _tracer() is not None)


_functorch = torch._C._functorch
_dispatch_modes, _tracer = torch._C._len_torch_dispatch_stack, torch._C._get_tracing_state
_depth_of_transforms = _functorch.get_dynamic_layer_stack_depth
