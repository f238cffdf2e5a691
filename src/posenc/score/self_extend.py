"""Self-Extend: near keys at their true distance, far ones by groups of neighbouring positions, without any training.

    a_i − b_j = p_i − p_j                                                     p_i − p_j < window
    a_i = floor(p_i / group) + window − floor(window / group),  b_j = floor(p_j / group)      beyond

A model trained at L tokens so reads (L − window) · group + window of them without a new position where group divides
window, else down to a group fewer. Among far keys, equal distances may get positions that differ by one. ``group=1``
is the rotation alone. A list with `LogN` after it is the authors' form with their scale_base.
Source: Jin et al., LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning, arXiv 2401.01325, section 3.
Checked against: the authors' code (LongLM, self_extend_patch), values and gradients.
Departs from the source: the code divides window by group in two ways, with and without its fraction; here the paper's
    floor is the default in every call, so that a decoding step equals the whole call, and ``exact`` is the other.
    Near is what lies near by position, which under padding in front is what lies near by index.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.arguments import LONGEST, check_flag, check_whole
from posenc.encoding import RotaryEncoding, float64_if_supported
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.score._remapped import COST, Remapped, smallest_group
from posenc.structure import Range


class SelfExtend(Remapped):
    """Grouped positions beyond a window of true ones.

    Args:
        rotation: what rotates queries and keys, such as ``RoPE(64)``, with any scaling.
        window: tokens whose distance stays true, the own one included (the authors' neighbor window).
        group: neighbouring positions that far keys share.
        exact: whether the far queries' offset is window − window / group, fractions and all.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for sizes below 1, or a rotation that is not rotated by one coordinate.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [SelfExtend(RoPE(64), window=4, group=2)]).shape
    torch.Size([1, 8, 16, 64])
    """

    def __init__(
        self,
        rotation: RotaryEncoding,
        *,
        window: int = 1024,
        group: int = 8,
        exact: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._hold(rotation)
        check_whole("window", window, most=LONGEST)
        check_whole("group", group, most=LONGEST)
        self.window, self.group, self.exact = window, group, check_flag("exact", exact)
        place_parameters(self, device, dtype, given=rotation)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return {"window": max(1, train_length // 4)}  # 1024 of Llama 2's 4096

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        exact = self.window // self.group
        offset = self.window - (self.window / self.group if self.exact and self.window % self.group else exact)
        of_queries, of_keys = (p.div(self.group, rounding_mode="floor") for p in (q_pos, k_pos))
        if not isinstance(offset, int):
            of_queries = of_queries.to(float64_if_supported(of_queries.device))
        near = Range(q_pos, k_pos, None, self.window)
        return near, Range(of_queries + offset, of_keys, self.window, None)

    def extra_repr(self) -> str:
        return f"window={self.window}, group={self.group}, exact={self.exact}"


ENTRY = Entry(
    name="self_extend",
    encoding=SelfExtend,
    title="Self-Extend: true distances in a window, grouped positions beyond",
    formula="far: a_i − b_j = floor(p_i/group) − floor(p_j/group) + window − floor(window/group)",
    source="Jin et al., arXiv 2401.01325, section 3",
    parameters="none",
    cost=COST,
    past_training="no new position up to (training length − window) · group + window tokens, for whole groups",
    reads="distances and positions",
    extension="is itself one",
    used_in="models that were trained without it, at inference",
    extends_context=True,
    defaults=smallest_group,
    exempt={"common_shift": "groups begin at multiples of their size"},
)
