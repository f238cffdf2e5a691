"""ReRoPE: no distance is larger than a window; leaky ReRoPE: beyond the window distances grow more slowly.

    a_i − b_j = min(p_i − p_j, window)                                        ReRoPE
    a_i − b_j = window + (p_i − p_j − window) / factor   beyond the window    leaky ReRoPE

A model that was trained at more than ``window`` tokens meets no distance that it does not know; under the leaky form
up to a length of window + factor · (training length − window). ReRoPE with an endless factor is ReRoPE. A list with
`LogN` after it is the author's form, which always multiplies scores by a logarithm of the position.
Source: Su, post 9708 of kexue.fm (2023), no paper; the rotation: Su et al., RoFormer, arXiv 2104.09864, section 3.2.2.
Checked against: the author's code (bojone/rerope, rerope_patch and leaky_rerope_patch), values and gradients.
Departs from the source: the logarithm is left to `LogN`. The authors' forms rotate far keys not at all, or by fractions
    of their position; so do these.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.arguments import LONGEST, check_number, check_whole
from posenc.encoding import RotaryEncoding, float64_if_supported
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.score._remapped import COST, Remapped, plain_rotation, smallest_factor
from posenc.structure import Range


class ReRoPE(Remapped):
    """Exact distances up to a window; keys beyond it all count as at the window's distance.

    Args:
        rotation: what rotates queries and keys, such as ``RoPE(64)``, with any scaling.
        window: the largest distance. The post found a quarter to a half of the training length best; the author's
            code has an eighth.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for a window below 1, or a rotation that is not rotated by one coordinate.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [ReRoPE(RoPE(64), window=4)]).shape
    torch.Size([1, 8, 16, 64])
    """

    def __init__(
        self,
        rotation: RotaryEncoding,
        *,
        window: int = 512,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._hold(rotation)
        check_whole("window", window, most=LONGEST)
        self.window = window
        place_parameters(self, device, dtype, given=rotation)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return _an_eighth(train_length)

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        near = Range(q_pos, k_pos, None, self.window)
        return near, Range(torch.full_like(q_pos, self.window), torch.zeros_like(k_pos), self.window, None)

    def extra_repr(self) -> str:
        return f"window={self.window}"


class LeakyReRoPE(Remapped):
    """Distances up to a window, and more slowly growing ones beyond.

    Args:
        rotation: what rotates queries and keys, such as ``RoPE(64)``, with any scaling.
        window: the largest distance that stays true.
        factor: how many times more slowly distances grow beyond, at least 1.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for a window or a factor below 1, or a rotation that is not rotated by one coordinate.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [LeakyReRoPE(RoPE(64), window=4, factor=4)]).shape
    torch.Size([1, 8, 16, 64])
    """

    def __init__(
        self,
        rotation: RotaryEncoding,
        *,
        window: int = 512,
        factor: float = 16.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._hold(rotation)
        check_whole("window", window, most=LONGEST)
        check_number("factor", factor, least=1)
        self.window, self.factor = window, float(factor)
        place_parameters(self, device, dtype, given=rotation)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return _an_eighth(train_length)

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        of_queries, of_keys = (p.to(float64_if_supported(p.device)) / self.factor for p in (q_pos, k_pos))
        far = Range(of_queries + (self.window - self.window / self.factor), of_keys, self.window, None)
        return Range(q_pos, k_pos, None, self.window), far

    def extra_repr(self) -> str:
        return f"window={self.window}, factor={self.factor:g}"


def _an_eighth(train_length: int) -> dict[str, int]:
    """The window of the author's code, 512 where 4096 tokens were trained with."""
    return {"window": max(1, train_length // 8)}


ENTRIES = (
    Entry(
        name="rerope",
        encoding=ReRoPE,
        title="ReRoPE: exact distances up to a window, the window's distance beyond",
        formula="a_i − b_j = min(p_i − p_j, window)",
        source="Su (2023), kexue.fm 9708, no paper; the rotation: arXiv 2104.09864, section 3.2.2",
        parameters="none",
        cost=COST,
        past_training="no new distance at any length; all far keys get the same distance",
        reads="distances",
        extension="is itself one",
        used_in="models that were trained without it, at inference",
        extends_context=True,
        defaults=plain_rotation,
    ),
    Entry(
        name="leaky_rerope",
        encoding=LeakyReRoPE,
        title="Leaky ReRoPE: distances that grow more slowly beyond a window",
        formula="far: a_i − b_j = window + (p_i − p_j − window) / factor",
        source="Su (2023), kexue.fm 9708, no paper; the rotation: arXiv 2104.09864, section 3.2.2",
        parameters="none",
        cost=COST,
        past_training="no larger distance up to window + factor · (training length − window) tokens, but fractions",
        reads="distances",
        extension="is itself one",
        used_in="models that were trained without it, at inference",
        extends_context=True,
        defaults=smallest_factor,
    ),
)
