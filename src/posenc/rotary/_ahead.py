"""Tables of decoding steps, made for some positions at once: a step by itself is all calls and hardly any numbers.

Steps count on, and layers share a module: the second call at a position, or at the next one, makes the waves of its
whole block of positions, and those that follow find theirs. Only where that changes nothing but the time: fixed
frequencies, one plain whole position on the CPU, eager calls (the caller sees to that). Elsewhere reading a position
would make a device wait, or be lost on a tracer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.rotary._rotate import doubled
from posenc.rotary._waves import Waves

BLOCK = 64  # positions


class Ahead:
    """The newest block of positions of one module, as `turned_by` takes them. Copies begin anew."""

    def __init__(self) -> None:
        self._last = -2
        self._blocks: dict[torch.dtype, tuple[int, list[tuple[Tensor, Tensor]]]] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"_last": -2, "_blocks": {}}

    def find(self, waves: Waves, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        """Doubled cos and sin ``(2 · pairs,)`` of one position; None where they are not to be had so.

        Args:
            waves: ``(pairs,)``, always the same.
            positions: of one token, whatever its shape.
            dtype: of the table.
        """
        if not _readable(positions):
            return None
        at = int(positions)
        near, self._last = 0 <= at - self._last <= 1, at
        number, row = divmod(at, BLOCK)
        block = self._blocks.get(dtype)
        if block is None or block[0] != number:
            if not near:
                return None
            with torch.inference_mode(False), torch.no_grad():
                whole = torch.arange(number * BLOCK, (number + 1) * BLOCK, device=positions.device)
                cos, sin = (t.unbind(0) for t in doubled(*waves.table(whole, dtype)))  # no slices in a step
                block = self._blocks[dtype] = (number, list(zip(cos, sin, strict=True)))
        return block[1][row]


def _readable(positions: Tensor) -> bool:
    """Whether the value of one position may be looked at, for nothing."""
    return (
        positions.is_cpu
        and positions.numel() == 1
        and positions.dtype in (torch.int64, torch.int32)
        and type(positions) is Tensor
        and not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch._C._get_tracing_state()
    )
