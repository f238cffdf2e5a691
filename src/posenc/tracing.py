"""Whether a call is only traced, by a compiler or an exporter: what then holds for one size must hold for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

# torch 2.6 does not tell exports from compilers
exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)


def tracing() -> bool:
    """Whether torch.compile or torch.export is looking on."""
    return torch.compiler.is_compiling() or exporting()


@contextmanager
def real_tensors() -> Iterator[None]:
    """Out of PyTorch's modes: under FakeTensorMode the constants of a module are numbers all the same."""
    with _disable_current_modes():
        yield


def has_values(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor can be looked at: it is not traced, fake, on "meta" or mapped over."""
    if tracing() or tensor.is_meta or isinstance(tensor, FakeTensor):
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def has_tangent(tensors: Iterable[Tensor | None]) -> bool:
    """Whether any of these is differentiated in forward mode; that some thread does so with others says nothing.

    Under transforms of torch.func, which wrap tensors, forward mode counts wherever it is.
    """
    if forward_ad._current_level < 0:
        return False
    if _transforms() > 0:
        return True
    unpack = forward_ad.unpack_dual
    return any(t is not None and unpack(t).tangent is not None for t in tensors)  # type: ignore[no-untyped-call]


def stand_ins() -> bool:
    """Whether a tracer, a mode of dispatch or a transform of this thread may hand out stand-ins of tensors."""
    return bool(tracing() or _dispatch_modes() or _transforms() or _tracer() is not None)


_dispatch_modes, _tracer = torch._C._len_torch_dispatch_stack, torch._C._get_tracing_state
_transforms = torch._C._functorch.get_dynamic_layer_stack_depth
