"""STRING: far distances are shifted down to ones that a model has seen often, also within its training length.

    a_i − b_j = p_i − p_j                     p_i − p_j < shift
    a_i − b_j = p_i − p_j − shift + local     beyond

Most texts of a training are short, so that the largest distances are rare in it; the shift puts frequent ones in their
place. ``local`` keeps far keys that many positions away from the query.
Source: An et al., Why Does the Effective Context Length of LLMs Fall Short?, arXiv 2410.18745, section 4.
Checked against: the authors' code (HKUNLP/STRING), its decoding and the form of its prefill that counts each pair once,
    values and gradients.
Departs from the source: the prefill of the code counts keys exactly ``shift`` away twice, near and far, its decoding
    once; here they are far in both. The code multiplies cos and sin by 0.1 · ln 2 + 1 at every length: that is
    ``gain``, here 1 by default as in the paper's formula.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.arguments import LONGEST, check_whole
from posenc.encoding import RotaryEncoding
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.score._remapped import COST, Remapped, plain_rotation
from posenc.structure import Range


class STRING(Remapped):
    """Shifted rotary position embedding.

    Args:
        rotation: what rotates queries and keys, such as ``RoPE(64)``, with any scaling.
        shift: distance from which on distances are shifted (the authors' shifted_offset); a third of the trained
            length or more.
        local: the smallest shifted distance; at most ``shift``.
        gain: on rotated q and k; the authors' code has 0.1 · ln 2 + 1.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for a shift below 1, ``local`` below 0 or above it, a gain not above 0, or a rotation that does not
            turn by one coordinate.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [STRING(RoPE(64), shift=6, local=2)]).shape
    torch.Size([1, 8, 16, 64])
    """

    def __init__(
        self,
        rotation: RotaryEncoding,
        *,
        shift: int,
        local: int = 128,
        gain: float = 1.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._hold(rotation, gain)
        check_whole("shift", shift, most=LONGEST)
        check_whole("local", local, least=0, most=LONGEST)
        if local > shift:
            raise ValueError(f"local must be at most shift = {shift}, got {local}")
        self.shift, self.local = shift, local
        place_parameters(self, device, dtype, given=rotation)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        shift = max(1, train_length // 3)
        return {"shift": shift, "local": min(128, shift // 2)}

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        near = Range(q_pos, k_pos, None, self.shift)
        return near, Range(q_pos - (self.shift - self.local), k_pos, self.shift, None)

    def extra_repr(self) -> str:
        return f"shift={self.shift}, local={self.local}, gain={self.gain:g}"


ENTRY = Entry(
    name="string",
    encoding=STRING,
    title="STRING: far distances shifted down to frequent ones",
    formula="far: a_i − b_j = p_i − p_j − shift + local",
    source="An et al., arXiv 2410.18745, section 4",
    parameters="none",
    cost=COST,
    past_training="new distances from the training length + shift − local on",
    reads="distances",
    extension="is itself one",
    used_in="models that were trained without it, at inference",
    extends_context=True,
    defaults=plain_rotation,
)
