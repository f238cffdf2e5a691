"""Default positions, 0, 1, 2, …, as tensors that calls of one size share, so that tables of them can be kept as well.

Callers must not write into these tensors; a tensor that was written into is never handed out again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.tracing import tracing

MAX_TENSORS, MOST = 32, 2**16  # tensors kept, and tokens of one tensor
AHEAD = 64  # steps
_BY_RANGE: dict[tuple[int, int, torch.device], Tensor] = {}
_BY_ID: dict[int, Tensor] = {}


def counted(first: int, stop: int, device: torch.device) -> Tensor:
    """The numbers from ``first`` to ``stop`` − 1, int64."""
    if special() or stop - first > MOST:
        return torch.arange(first, stop, device=device)
    known = _BY_RANGE.get((first, stop, device))
    if known is not None and known._version == 0:
        return known
    with torch.inference_mode(False):
        numbers = torch.arange(first, stop, device=device)
    if type(numbers) is Tensor:
        if len(_BY_RANGE) >= MAX_TENSORS:
            _BY_RANGE.clear()
            _BY_ID.clear()
        _BY_RANGE[first, stop, device] = _BY_ID[id(numbers)] = numbers
    return numbers


def is_counted(positions: Tensor) -> bool:
    """Whether this is a tensor of `counted`, and nobody has written into it."""
    return not special() and _BY_ID.get(id(positions)) is positions and positions._version == 0


class Ahead:
    """Positions of the next decode steps, ``(1,)`` each, computed in blocks. Copies start empty."""

    def __init__(self) -> None:
        self._first, self._block = 0, tuple[Tensor, ...]()

    def __getstate__(self) -> dict[str, object]:
        return {"_first": 0, "_block": ()}

    def at(self, position: int, device: torch.device) -> Tensor:
        """One position, ``(1,)`` int64."""
        block, index = self._block, position - self._first
        if 0 <= index < len(block) and block[index].device == device:
            return block[index]
        with torch.inference_mode(False):
            block = torch.arange(position, position + AHEAD, device=device).unsqueeze(-1).unbind(0)
        if type(block[0]) is Tensor:  # no stand-in of a tracing mode
            self._first, self._block = position, block
        return block[0]


def special() -> bool:
    """Whether a tracer, a mode of dispatch or a transform would mix its stand-ins with real tensors."""
    return bool(tracing() or _dispatch_modes() or _transforms() or _tracer() is not None)


_dispatch_modes, _tracer = torch._C._len_torch_dispatch_stack, torch._C._get_tracing_state
_transforms = torch._C._functorch.get_dynamic_layer_stack_depth
