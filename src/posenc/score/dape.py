"""DAPE: a small network across the heads adapts a bias to the scores.

    s_ij ← s_ij + b_ij + f([s_ij; b_ij])
    f = Linear(2 · heads, hidden), LeakyReLU(0.01), Linear(hidden, heads)

s_ij and b_ij hold one number a head: the scores handed in and a bias of the positions. f is the same for all pairs of
tokens and lets heads speak to each other. Past the training length the bias goes on as it does alone, and f meets
biases that it has not seen. A bias that grows without bound (ALiBi) drowns the scores of all heads far out: across a
million tokens float32 then keeps two digits, where KERPLE, FIRE and T5 lose nothing.
Source: Zheng et al., DAPE: Data-Adaptive Positional Encoding for Length Extrapolation, arXiv 2405.14722, section on the
    method; hidden 32 and first values as in the authors' code (chuanyang-Zheng/DAPE).
Over FIRE the authors' code gives FIRE's own network a LeakyReLU too: ``DAPE(FIRE(heads, leak=0.01))``.
Checked against: the authors' AliBi_DAPE and ParallelKerpleLog_DAPE: scores, weights and results; their FIRE_DAPE's
    formula, written out.
Departs from the source: the code is causal; keys after the query, where it has biases of 0, have what the bias gives.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.arguments import check_whole
from posenc.bias._affine import Affine
from posenc.bias.kerple import KERPLE
from posenc.encoding import BiasEncoding, Context, Reads, ScoreEncoding, no_autocast
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import HeadShare
from posenc.score._inputs import bias_at
from posenc.structure import HeadMixing

_SLOPE = 0.01  # of the LeakyReLU below zero


class DAPE(ScoreEncoding):
    """Data-adaptive positional encoding.

    Args:
        bias: what f adapts, such as ``KERPLE(8)`` or ``ALiBi(8)``; f is for its ``num_heads``.
        hidden: units of f.
        device, dtype: of the parameters of f, as in torch.nn; the bias keeps its own.

    Raises:
        ValueError: for sizes below 1, or a bias that is none.

    >>> from posenc import attention
    >>> from posenc.bias import KERPLE
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [DAPE(KERPLE(8))]).shape
    torch.Size([1, 8, 16, 64])
    """

    reads = Reads(rotated=False)
    lr_multiplier = 10.0
    shared_by_layers = False

    def __init__(
        self,
        bias: BiasEncoding,
        *,
        hidden: int = 32,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("hidden", hidden)
        if not isinstance(bias, BiasEncoding):
            raise ValueError(f"bias must be a bias encoding, got {type(bias).__name__}")
        num_heads = bias.num_heads
        self.num_heads, self.hidden, self.axes = num_heads, hidden, bias.axes
        self.bias, self.causal_only = bias, bias.causal_only
        self.inner = Affine(2 * num_heads, hidden)
        self.outer = Affine(hidden, num_heads)
        place_parameters(self, device, dtype, given=bias)

    def reset_parameters(self) -> None:
        """Draw f anew, as PyTorch draws linear layers; the bias draws its own."""
        self.inner.reset_parameters()
        self.outer.reset_parameters()

    def _keep_heads(self, share: HeadShare) -> None:
        raise ValueError(
            "DAPE has no heads to take: its network reads the scores of all heads at once; gather the heads, or share "
            "out tokens instead (posenc.distributed.sharded_attention)"
        )

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        bias = bias_at(self.bias, context, scores.dtype)
        both = torch.cat([scores, bias.expand_as(scores)], 1).movedim(1, -1)  # heads last
        with no_autocast(scores.device.type):
            units = F.leaky_relu(self.inner(both), _SLOPE)
            return scores + bias + self.outer(units).movedim(-1, 1)

    def structure(self, context: Context, *, future: bool) -> tuple[HeadMixing]:
        inner, outer = self.inner, self.outer
        return (HeadMixing(self.bias, inner.weight, inner.bias, outer.weight, outer.bias, _SLOPE),)

    def extra_repr(self) -> str:
        return f"{self.num_heads}, hidden={self.hidden}"


def _kerple(shape: Mapping[str, object]) -> dict[str, object]:
    num_heads = shape.get("num_heads")
    return {"bias": KERPLE(num_heads)} if "bias" not in shape and isinstance(num_heads, int) else {}


ENTRY = Entry(
    name="dape",
    encoding=DAPE,
    title="DAPE: a bias that adapts to the attention logits",
    formula="s_ij ← s_ij + b_ij + f([s_ij; b_ij]),  f a network across the heads",
    source="Zheng et al., arXiv 2405.14722, section on the method",
    parameters="(2 × heads + 1) × hidden + (hidden + 1) × heads per layer, plus the bias's",
    cost="a network at every query and key, tile by tile",
    past_training="its bias extrapolates as it does alone, adapted by a network outside its training range",
    reads="distances and content",
    extension="as its bias",
    used_in="its paper's own models; no other is known to us",
    avoid="where heads must be computed separately: its network reads the logits of all heads",
    defaults=_kerple,
)
