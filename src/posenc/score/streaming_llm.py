"""StreamingLLM: a window and the first tokens of the sequence, at the places that they have in a cache of that size.

    a_i − b_j = p_i − p_j                                p_i − p_j < window
    a_i = min(p_i, sinks + window − 1),  b_j = p_j       beyond, and then p_j < sinks alone are seen

Once tokens have been forgotten, the first ones are as far away as their slots in the cache are, so that no distance is
larger than sinks + window − 1, however long the text. A `KVCache` of the same window and sinks keeps no more tokens.
Source: Xiao et al., Efficient Streaming Language Models with Attention Sinks, arXiv 2309.17453, section 3.2.
Checked against: the authors' code (mit-han-lab/streaming-llm), token by token and in chunks.
Departs from the source: the code attends to all of a prompt, however long, and chunks of tokens see what is left of the
    cache once room was made for them; here every token attends to what it would attend to token by token, so that a
    decoding step equals the whole call. The code's perplexity script, which forgets after a step, has window =
    recent_size + 1; its generation, which makes room before, window = recent_size.
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


class StreamingLLM(Remapped):
    """Positions of a cache that keeps a window and some first tokens.

    Args:
        rotation: what rotates queries and keys, such as ``RoPE(64)``, with any scaling.
        window: newest tokens that are seen, the own one included.
        sinks: first tokens that are seen from everywhere.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for a window below 1 or sinks below 0, or a rotation that is not rotated by one coordinate.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [StreamingLLM(RoPE(64), window=4, sinks=2)]).shape
    torch.Size([1, 8, 16, 64])
    """

    scope = Scope(replaces=True, narrows=True)

    def __init__(
        self,
        rotation: RotaryEncoding,
        *,
        window: int = 1020,
        sinks: int = 4,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._hold(rotation)
        check_whole("window", window, most=LONGEST)
        check_whole("sinks", sinks, least=0, most=LONGEST)
        self.window, self.sinks = window, sinks
        place_parameters(self, device, dtype, given=rotation)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return {"window": max(1, train_length - 4)}

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        slots = q_pos.clamp(max=self.sinks + self.window - 1)
        return Range(q_pos, k_pos, None, self.window), Range(slots, k_pos, self.window, None, self.sinks)

    def extra_repr(self) -> str:
        return f"window={self.window}, sinks={self.sinks}"


ENTRY = Entry(
    name="streaming_llm",
    encoding=StreamingLLM,
    title="StreamingLLM: a sliding window and the first tokens, at their cache positions",
    formula="far: a_i = min(p_i, sinks + window − 1), b_j = p_j, and p_j < sinks alone are seen",
    source="Xiao et al., arXiv 2309.17453, section 3.2",
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
