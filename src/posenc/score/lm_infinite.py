"""LM-Infinite: a window of true distances, and the first tokens of the sequence, which lie at one fixed distance.

    a_i − b_j = p_i − p_j       p_i − p_j < window
    a_i − b_j = limit           beyond, and then p_j < sinks alone are seen (none of them: every key)

No distance is larger than in training, and no query attends to more than window + sinks keys.
Source: Han et al., LM-Infinite: Zero-Shot Extreme Length Generalization for Large Language Models, arXiv 2308.16137,
    section 4.
Checked against: the authors' code (Glaciohound/LM-Infinite), values and gradients.
Departs from the source: the code's limit is never more than the keys of a call − 1, which changes results only where it
    is larger than the window and a text shorter than that; here it is the same in all calls, so that a decoding step
    equals the whole call. Without sinks and with another limit than the window the code leaves out or adds scores: here
    each pair has one. A mask of the most relevant keys, which the code offers, is not here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.arguments import LONGEST, check_whole
from posenc.encoding import RotaryEncoding, Scope
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.score._remapped import COST, FIRST_TOKENS, Remapped, plain_rotation
from posenc.structure import Range


class LMInfinite(Remapped):
    """A limit of distances and the Λ-shaped mask.

    Args:
        rotation: what rotates queries and keys, such as ``RoPE(64)``, with any scaling.
        window: tokens that are seen at their true distance, the own one included (the authors' local_branch).
        sinks: first tokens that are seen from everywhere (their global_branch); None: all keys are.
        limit: distance of those beyond the window (their limit_distance); None: the window.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for sizes below 1, or a rotation that is not rotated by one coordinate.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [LMInfinite(RoPE(64), window=4, sinks=2)]).shape
    torch.Size([1, 8, 16, 64])
    """

    def __init__(
        self,
        rotation: RotaryEncoding,
        *,
        window: int = 4096,
        sinks: int | None = 10,
        limit: int | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._hold(rotation)
        check_whole("window", window, most=LONGEST)
        for name, value in (("sinks", sinks), ("limit", limit)):
            if value is not None:
                check_whole(name, value, most=LONGEST)
        self.window, self.sinks, self.limit = window, sinks, window if limit is None else limit
        self.scope = Scope(replaces=True, narrows=sinks is not None)
        place_parameters(self, device, dtype, given=rotation)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return {"window": train_length}

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        at = torch.full_like(q_pos, self.limit)
        far = Range(at, torch.zeros_like(k_pos), self.window, None, self.sinks)
        return Range(q_pos, k_pos, None, self.window), far

    def extra_repr(self) -> str:
        return f"window={self.window}, sinks={self.sinks}, limit={self.limit}"


ENTRY = Entry(
    name="lm_infinite",
    encoding=LMInfinite,
    title="LM-Infinite: a distance limit and a Λ-shaped mask",
    formula="far: a_i − b_j = limit, and p_j < sinks alone are seen",
    source="Han et al., arXiv 2308.16137, section 4",
    parameters="none",
    cost=COST,
    past_training="no new distance at any length; a query attends to window + sinks keys",
    reads="distances and positions",
    extension="is itself one",
    used_in="models that were trained without it, at inference",
    extends_context=True,
    defaults=plain_rotation,
    exempt=FIRST_TOKENS,
)
