"""Numbers of an encoding on the device of a call: slopes, edges of buckets, strengths.

`torch.tensor(numbers, device="cuda")` waits for the device and cannot be captured in a CUDA graph, and a floating-point
buffer would be rounded by ``module.half()``. So the numbers stay Python's, and each device gets one copy of them, which
is kept outside of all modules.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.tracing import stand_ins

MOST_KEPT = 1024  # tensors of some dozens of numbers


def constant(numbers: Sequence[object], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The numbers, or rows of them; the same tensor in every call, not to be written into.

    A module keeps them in a tuple, as they are passed here. ``torch.compile(dynamic=True)`` takes the floats of a list,
    and what is computed of a float attribute, for inputs that may change: it then copies them to the device in each
    call, which waits for it and cannot be captured.
    """
    if stand_ins():  # whose tensors must not reach other calls, nor those of other calls a tracer
        return torch.tensor(numbers, dtype=dtype, device=device)
    return _kept(tuple(numbers), dtype, device)


@functools.lru_cache(maxsize=MOST_KEPT)
def _kept(numbers: tuple[object, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # a later call may be differentiated
        return torch.tensor(numbers, dtype=dtype, device=device)
