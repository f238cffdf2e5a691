"""Default positions, 0, 1, 2, …: calls of one size share a tensor for as long as somebody keeps it, so that tables can
be kept for it as well. Callers must not write into it; a tensor that was written into is never handed out again.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

import torch
from torch import Tensor

from posenc.tracing import stand_ins

_BY_RANGE: WeakValueDictionary[tuple[int, int, torch.device], Tensor] = WeakValueDictionary()
_MARK = "_posenc_counted"  # an attribute of the tensor itself: no view and no result of an operation has it


def counted(first: int, stop: int, device: torch.device) -> Tensor:
    """The numbers from ``first`` to ``stop`` − 1, int64."""
    if stand_ins():
        return torch.arange(first, stop, device=device)
    known = _BY_RANGE.get((first, stop, device))
    if known is not None and known._version == 0:
        return known
    with torch.inference_mode(False):
        numbers = torch.arange(first, stop, device=device)
    if type(numbers) is Tensor:
        setattr(numbers, _MARK, True)
        _BY_RANGE[first, stop, device] = numbers
    return numbers


def is_counted(positions: Tensor) -> bool:
    """Whether this is a tensor of `counted`, and nobody has written into it."""
    return not stand_ins() and hasattr(positions, _MARK) and positions._version == 0
