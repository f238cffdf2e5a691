"""An encoding of your own: a window with a soft edge, put through the library's own test suite."""

import torch
from torch import Tensor

from posenc import attention, explain_backend
from posenc.bias import DistanceBias
from posenc.testing import check_encoding


class SoftWindow(DistanceBias):
    """b_h(p_i, p_j) = −slope_h · max(0, |p_j − p_i| − width): free inside the window, a learned penalty outside."""

    def __init__(self, num_heads: int, width: int = 4) -> None:
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads must be at least 1, got {num_heads}")
        self.num_heads, self.width = num_heads, width
        self.slope = torch.nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.constant_(self.slope, 0.5)

    def of_distance(self, distance: Tensor) -> Tensor:
        beyond = (distance.abs() - self.width).clamp(min=0)
        slope = self.slope.to(torch.promote_types(self.slope.dtype, torch.float32))
        return -slope.view(-1, *[1] * distance.ndim) * beyond

    def extra_repr(self) -> str:
        return f"{self.num_heads}, width={self.width}"


q, k, v = torch.randn(3, 1, 4, 10, 16)
print(attention(q, k, v, [SoftWindow(4)]).shape)
print(explain_backend(q, k, v, [SoftWindow(4)]))  # a fused kernel: of_distance is all that it needs

check_encoding(SoftWindow, exempt={"pickled": "a script's own class cannot be imported elsewhere"})
print("SoftWindow passes the conformance suite")
