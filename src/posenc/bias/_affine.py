"""One layer of the small networks inside biases."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Affine(nn.Module):
    """Weight ``(wide, narrow)`` and bias ``(wide,)``, drawn as PyTorch draws a linear layer.

    It is no ``nn.Linear``, as models draw all of those anew after they were built, ``model.apply(init_weights)``, with
    a deviation that suits their own widths, and as quantizers replace them.
    """

    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(wide, narrow))
        self.bias = nn.Parameter(torch.empty(wide))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw both anew, uniform in ± narrow^−1/2."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        bound = self.weight.shape[1] ** -0.5
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """``weight x + bias`` in the precision of x, ``(..., narrow)`` to ``(..., wide)``."""
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))

    if TYPE_CHECKING:  # nn.Module types calls as Any
        __call__ = forward

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}"
