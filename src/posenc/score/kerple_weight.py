"""KERPLE's weight kernel: a kernel of the distance that multiplies the products of queries and keys.

    s_ij ← s_ij + (exp(b_ij) − 1) · scale · q_i·k_j,   b_ij = −a_h · |p_j − p_i|^p_h,   p_h ≤ 2

b is a bias, as a rule ``KERPLE(heads, kind="power")``. What is added to the products, biases for instance, is not
multiplied: ``[KERPLE(heads, kind="power"), KERPLEWeight(KERPLE(heads, kind="power"), heads)]`` is the authors'
q·k · weight + bias. Past the training length products fade to 0, so that far keys are all alike.
Source: Chi et al., KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation, arXiv 2205.09921: the
    power of eq. 6 in an exponent, as the authors' code has it (ParallelKerplePower, wei_a and wei_p).
Checked against: that code's formula, written out.
Departs from the source: b may be any bias of positions; ALiBi with given slopes is the code's kernel without exponents.
    Under a softcap it is the capped product that is multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from posenc.arguments import check_heads
from posenc.bias.kerple import KERPLE
from posenc.encoding import BiasEncoding, Context, Reads, ScoreEncoding, softcapped
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.score._members import bias_at, check_bias, products
from posenc.structure import Kernel


class KERPLEWeight(ScoreEncoding):
    """KERPLE's multiplicative kernel.

    Args:
        bias: the kernel's logarithm, such as ``KERPLE(8, kind="power")``.
        num_heads: query heads.
        device, dtype: as in torch.nn; of no parameter, as the bias keeps its own.

    Raises:
        ValueError: for sizes below 1, or a bias that is none or has another ``num_heads``.

    >>> from posenc import KERPLE, attention
    >>> q, k, v = torch.randn(3, 1, 4, 16, 64)
    >>> attention(q, k, v, [KERPLEWeight(KERPLE(4, kind="power"), 4)]).shape
    torch.Size([1, 4, 16, 64])
    """

    reads = Reads(rotated=False, products=True)
    lr_multiplier = 10.0
    shared_by_layers = False

    def __init__(
        self,
        bias: BiasEncoding,
        num_heads: int,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads("num_heads", num_heads)
        check_bias(bias, num_heads)
        self.num_heads, self.axes = num_heads, bias.axes
        self.bias, self.causal_only = bias, bias.causal_only
        place_parameters(self, device, dtype, given=bias)

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        lost = torch.expm1(bias_at(self.bias, context, scores.dtype))
        return scores + lost * softcapped(products(context), context.softcap)

    def fast_form(self, context: Context, *, future: bool) -> tuple[Kernel]:
        return (Kernel(self.bias),)

    def extra_repr(self) -> str:
        return f"{self.num_heads}"


def _power(shape: Mapping[str, object]) -> dict[str, object]:
    num_heads = shape.get("num_heads")
    return {"bias": KERPLE(num_heads, kind="power")} if "bias" not in shape and isinstance(num_heads, int) else {}


ENTRY = Entry(
    name="kerple_weight",
    encoding=KERPLEWeight,
    title="KERPLE's weight kernel: a factor on the dot products that decays with distance",
    formula="s_ij ← s_ij + (exp(−a_h·|p_j − p_i|^p_h) − 1) · scale · q_i·k_j",
    source="Chi et al., arXiv 2205.09921, by the authors' code",
    parameters="2 × heads per layer",
    cost="one factor for every query and key, tile by tile",
    past_training="dot products with far keys decay to 0, so far keys get equal logits",
    reads="distances",
    extension="none needed: the kernel decays with distance",
    used_in="its paper's own models; no other is known to us",
    defaults=_power,
)
