"""KERPLE: a learned kernel of the distance, falling like a logarithm or a power.

    s_ij ← s_ij − p_h · log(1 + a_h · |p_j − p_i|)        kind="log"
    s_ij ← s_ij − a_h · |p_j − p_i|^p_h                    kind="power",  p_h ≤ 2

p positions in tokens; p_h and a_h learned, one each a head, never below 0.01. Exponents up to 2 keep the kernel
conditionally positive definite. Past the training length the penalty goes on growing, slower and slower in the log
form.

Source: Chi et al., KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation, arXiv 2205.09921, eq. 7
    (log) and 6 (power).
Checked against: the authors' ParallelKerpleLog and ParallelKerplePower (values at parameters in and out of bounds).
Departs from the source: the code clamps its parameters in place at every call, outside of autograd; here they are
    clamped as they are used, with a straight gradient, so that one beyond a bound can come back. ``kind="power"`` with
    ALiBi's slopes is `ALiBi`. The code's weight kernel, which multiplies products, is `KERPLEWeight`.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from posenc.arguments import check_heads
from posenc.bias.distance import DistanceBias
from posenc.factory_kwargs import Device, place_parameters
from posenc.precision import precision

Kind = Literal["log", "power"]
_LEAST = 0.01


class KERPLE(DistanceBias):
    """Kernelized relative positional embedding.

    Args:
        num_heads: query heads.
        kind: ``"log"``, which extrapolates best in the paper, or ``"power"``.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for no head, or an unknown kind.

    >>> kerple = KERPLE(4)
    >>> kerple(torch.arange(3), torch.arange(3)).shape
    torch.Size([4, 3, 3])
    """

    lr_multiplier = 10.0
    shared_by_layers = False

    def __init__(
        self,
        num_heads: int,
        *,
        kind: Kind = "log",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads("num_heads", num_heads)
        if kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {get_args(Kind)}, got {kind!r}")
        self.num_heads, self.kind = num_heads, kind
        self.p = nn.Parameter(torch.empty(num_heads))
        self.a = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Draw anew: p uniform in 0 … 2, a in 0 … 1."""
        nn.init.uniform_(self.p, 0.0, 2.0)
        nn.init.uniform_(self.a, 0.0, 1.0)

    def of_distance(self, distance: Tensor) -> Tensor:
        dtype = precision(distance, self.p)
        far = distance.abs().to(dtype)
        p = _within(self.p.to(dtype), 2.0 if self.kind == "power" else None).view(-1, *[1] * far.ndim)
        a = _within(self.a.to(dtype), None).view(-1, *[1] * far.ndim)
        if self.kind == "log":
            return -p * torch.log1p(a * far)
        # At distance 0 the power is 0 for every exponent; a 1 in its place keeps log(0) out of the gradients.
        return -a * torch.where(far > 0, far.clamp(min=torch.finfo(dtype).tiny), 1.0).pow(p) * (far > 0)

    def extra_repr(self) -> str:
        return f"{self.num_heads}, kind={self.kind!r}"


def _within(parameter: Tensor, most: float | None) -> Tensor:
    """The parameter inside its bounds; its gradient is the bounded value's."""
    return parameter.detach().clamp(_LEAST, most) + (parameter - parameter.detach())
