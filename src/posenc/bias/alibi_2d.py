"""2D ALiBi: a penalty that grows with the distance in the plane, as the crow flies, at a slope of its own per head.

    b_h(p_i, p_j) = −m_h · ‖p_i − p_j‖₂
    m_h = ALiBi's slopes

p coordinates in tokens, whole or fractional, along any number of axes; slopes in score units per token, not trained.
The same in every direction, symmetric, no mask. Larger images get larger penalties far out, none that is new nearby.
Tokens without a place have the bias 0.
Source: Fuller et al., CROMA: Remote Sensing Representations with Contrastive Radar-Optical Masked Autoencoders,
    arXiv 2311.00566, section 3.
Checked against: the authors' get_2dalibi for 8, 12 and 16 heads.
Departs from the source: no square grids only; positions may be anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.arguments import MOST_AXES, check_whole
from posenc.bias.alibi import ALiBi
from posenc.bias.offset import OffsetBias
from posenc.constants import constant
from posenc.dtypes import precision
from posenc.entry import Entry
from posenc.head_shares import HeadShare


class ALiBi2D(OffsetBias):
    """ALiBi with the Euclidean distance between tokens of an image.

    Args:
        num_heads: query heads.
        axes: coordinates of a position.
        slopes: a name (`alibi_slopes`) or one number a head; 0 leaves a head without bias.
        max_exponent: the 8 of ALiBi's formula; only with a name.

    Raises:
        ValueError: for fewer than one axis, an unknown name, or a number of slopes that is not the number of heads.

    >>> ALiBi2D(1, slopes=[0.5])(torch.tensor([[3, 4]]), torch.tensor([[0, 0], [3, 2]]))
    tensor([[[-2.5000, -1.0000]]])
    """

    def __init__(
        self,
        num_heads: int,
        *,
        axes: int = 2,
        slopes: str | Sequence[float] = "press",
        max_exponent: float = 8.0,
    ) -> None:
        super().__init__()
        check_whole("axes", axes, most=MOST_AXES)
        self.num_heads, self.axes = num_heads, axes
        self.slopes = ALiBi(num_heads, slopes=slopes, max_exponent=max_exponent).slopes

    def _keep_heads(self, share: HeadShare) -> None:
        super()._keep_heads(share)
        self.slopes = self.slopes[share.heads]

    def of_offset(self, offset: Tensor) -> Tensor:
        dtype = precision(offset)
        slopes = constant(self.slopes, dtype, offset.device)
        distance: Tensor = torch.linalg.vector_norm(offset.to(dtype), dim=-1)
        return -distance * slopes.view(-1, *[1] * distance.ndim)

    def extra_repr(self) -> str:
        return f"{self.num_heads}, axes={self.axes}, slopes=({', '.join(f'{slope:.4g}' for slope in self.slopes)})"


ENTRY = Entry(
    name="alibi_2d",
    encoding=ALiBi2D,
    title="2D ALiBi: linear biases of the distance in the plane",
    formula="s_ij ← s_ij − m_h · ‖p_i − p_j‖,  m_h = 2^(−8h/heads)",
    source="Fuller et al., arXiv 2311.00566, section 3",
    parameters="none",
    cost="a distance for every query and key",
    past_training="larger penalties on farther keys: near keys keep their weight",
    reads="distances",
    extension="none needed by its definition",
    used_in="CROMA (arXiv 2311.00566)",
    avoid="where direction matters: a key to the left costs as much as one above",
)
