"""ALiBi: attention with linear biases, a penalty that grows with the distance, at a slope of its own per head.

    b_h(p_i, p_j) = −scale · m_h · |p_j − p_i|
    m_h = 2^(−8h/n), h = 1 … n          n heads, n a power of two

For n heads that are not a power of two: the slopes of c = 2^floor(log2 n) heads, then every second one of 2c heads.
p in tokens, slopes in score units per token, not trained. With a causal mask each row's own term cancels in softmax,
so that m_h · p_j alone is the same method. Past the training length the method stays flat: it looks at the recent past.
Source: Press et al., Train Short, Test Long, arXiv 2108.12409, section 3 and the authors' get_slopes.
Checked against: the authors' get_slopes for 1 to 128 heads; BLOOM, MPT and x-transformers.
Departs from the source: the paper is causal; for keys after the query the penalty is symmetric, as in MPT.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.arguments import check_heads, check_number, check_several
from posenc.bias.distance import DistanceBias
from posenc.constants import constant
from posenc.dtypes import precision
from posenc.entry import Entry
from posenc.head_shares import HeadShare

SLOPES = ("press", "geometric", "kerple")


def alibi_slopes(num_heads: int, kind: str = "press", *, max_exponent: float = 8.0) -> list[float]:
    """The slopes of each head.

    Args:
        kind: ``"press"``, the authors' rule (BLOOM, MPT, Falcon-RW); ``"geometric"``, 2^(−8h/n) for every n
            (attention-gym's); ``"kerple"``, Press's but at least 0.01 (KERPLE's re-implementation).
        max_exponent: the 8 of the formula; MPT's ``alibi_bias_max``.

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    if num_heads < 1:
        raise ValueError(f"num_heads must be at least 1, got {num_heads}")
    if not max_exponent > 0:
        raise ValueError(f"max_exponent must be positive, got {max_exponent}")
    if kind == "geometric":
        return _powers(num_heads, max_exponent)
    if kind == "press":
        power = 2 ** math.floor(math.log2(num_heads))
        return _powers(power, max_exponent) + _powers(2 * power, max_exponent)[::2][: num_heads - power]
    if kind == "kerple":
        return [max(slope, 0.01) for slope in alibi_slopes(num_heads, max_exponent=max_exponent)]
    raise ValueError(f"slopes must be one of {SLOPES} or a sequence of {num_heads} numbers, got {kind!r}")


def _powers(num_heads: int, max_exponent: float) -> list[float]:
    return [2.0 ** (-max_exponent * head / num_heads) for head in range(1, num_heads + 1)]


class ALiBi(DistanceBias):
    """Subtract a penalty per token of distance from the attention logits: attention with linear biases.

    Args:
        num_heads: query heads.
        slopes: a name (`alibi_slopes`) or one number a head; 0 leaves a head without bias.
        max_exponent: the 8 of the formula (MPT's ``alibi_bias_max``); only with a name.
        bias_scale: factor on all slopes. Falcon's models with ALiBi add it before they divide by √head_dim:
            1/√head_dim here.

    Raises:
        ValueError: for an unknown name, or a number of slopes that is not the number of heads.

    >>> ALiBi(2, slopes=[0.5, 0.25])(torch.tensor([3]), torch.arange(3))
    tensor([[[-1.5000, -1.0000, -0.5000]],
    <BLANKLINE>
            [[-0.7500, -0.5000, -0.2500]]])
    """

    def __init__(
        self,
        num_heads: int,
        *,
        slopes: str | Sequence[float] = "press",
        max_exponent: float = 8.0,
        bias_scale: float = 1.0,
    ) -> None:
        super().__init__()
        check_number("bias_scale", bias_scale)
        check_heads("num_heads", num_heads)
        check_number("max_exponent", max_exponent, above=0)
        if isinstance(slopes, str):
            values = alibi_slopes(num_heads, slopes, max_exponent=max_exponent)
        else:
            for slope in check_several("slopes", slopes):
                check_number("slopes", slope)
            values = [float(slope) for slope in slopes]
            if max_exponent != 8.0:
                raise ValueError("max_exponent belongs to slopes by name; numbers are taken as they are")
            if len(values) != num_heads or not all(math.isfinite(slope) for slope in values):
                raise ValueError(f"slopes must be {num_heads} finite numbers, one per head, got {values}")
        self.num_heads, self.bias_scale = num_heads, float(bias_scale)
        self._take_slopes(tuple(values))

    def _take_slopes(self, slopes: tuple[float, ...]) -> None:
        self.slopes = slopes
        self._scaled = tuple(slope * self.bias_scale for slope in slopes)  # numbers: no cast of the module rounds them

    def _keep_heads(self, share: HeadShare) -> None:
        super()._keep_heads(share)
        self._take_slopes(self.slopes[share.heads])

    def of_distance(self, distance: Tensor) -> Tensor:
        by_head = constant(self._scaled, precision(distance), distance.device)
        return -distance.abs() * by_head.view(-1, *[1] * distance.ndim)

    def distance_slopes(self, *, like: Tensor) -> Tensor:
        return constant(self._scaled, torch.float32, like.device)

    def extra_repr(self) -> str:
        scaled = "" if self.bias_scale == 1 else f", bias_scale={self.bias_scale:g}"
        return f"{self.num_heads}, slopes=({', '.join(f'{slope:.4g}' for slope in self.slopes)}){scaled}"


ENTRY = Entry(
    name="alibi",
    encoding=ALiBi,
    title="ALiBi: attention with linear biases",
    formula="s_ij ← s_ij − m_h · |p_j − p_i|,  m_h = 2^(−8h/heads)",
    source="Press et al., arXiv 2108.12409, section 3",
    parameters="none",
    cost="one row of numbers per head",
    past_training="larger penalties on farther keys: recent keys keep their weight",
    reads="distances",
    extension="none needed by its definition; smaller slopes reach farther",
    used_in="BLOOM (arXiv 2211.05100); MPT (as in transformers 5.23)",
    avoid="where far tokens must be retrieved: weights decay with distance, whatever the content",
)
