"""What decode steps need of a bias by distance and no parameter changes: kept from step to step, never recomputed.

The newest query stands at the last key, so its distances are 1 − keys … 0, and the row of a shorter sequence is the end
of the row of a longer one. One row, recomputed for twice the keys whenever it is too short, serves every decode step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

FEWEST, MOST = 256, 2**16  # keys: of a first row, and above which nothing is kept


class NewestRow:
    """A function of the distances 1 − keys … 0, entry by entry, in the form that it had last. Copies start empty."""

    # form, row, and the end of the row that was asked for last, as layers ask one after another. One tuple, which
    # threads that share an encoding replace as a whole.
    _newest_part: tuple[tuple[object, ...], Tensor, Tensor] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {}

    def __deepcopy__(self, memo: object) -> Self:
        return type(self)()

    def find(self, keys: int, form: tuple[object, ...], like: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
        """The last ``keys`` entries of the row, along its last axis.

        Args:
            keys: how many.
            form: everything but the distances that the numbers depend on, as values that can be compared.
            like: a tensor whose device and precision (float64 or not) the distances take.
            make: the row ``(..., keys)`` from int64 distances, float64 ones where ``like`` is.
        """
        if type(like) is not Tensor:  # a stand-in of a tracer, which does not mix with tensors
            return make(_distances(keys, like))
        form, known = (*form, like.dtype == torch.float64, like.device), self._newest_part
        if known is not None and known[0] == form and known[1].shape[-1] >= keys:
            _, row, part = known
            if part.shape[-1] != keys:
                part = row.narrow(-1, row.shape[-1] - keys, keys)
                self._newest_part = form, row, part
            return part
        if keys > MOST:
            return make(_distances(keys, like))
        with torch.inference_mode(False), torch.no_grad():
            row = make(_distances(max(FEWEST, 2 * keys), like))
        part = row.narrow(-1, row.shape[-1] - keys, keys)
        if type(row) is Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(row):
            self._newest_part = form, row, part
        return part


def _distances(keys: int, like: Tensor) -> Tensor:
    distance = torch.arange(1 - keys, 1, device=like.device)
    return distance.double() if like.dtype == torch.float64 else distance
