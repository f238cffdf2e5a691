"""Dual chunk attention: true distances within a chunk and to the end of the one before, one distance for all earlier.

    c = size − local,   b_j = p_j mod c
    a_i = p_i mod c                          in the same chunk of c tokens
    a_i = min(p_i mod c + c, size)           in the chunk before
    a_i = min(2c − 1, size)                  in any earlier one

No distance exceeds ``size``, which a training length of at least that many tokens covers. To the chunk before,
distances are true for the first ``local`` tokens of a chunk; later ones meet nearer positions than they have.
Source: An et al., Training-Free Long-Context Scaling of Large Language Models, arXiv 2402.17463, section 3.
Checked against: the authors' code (ChunkLlama), values and gradients, and vLLM's DualChunkRotaryEmbedding.
Departs from the source: the code's constant for earlier chunks, min(2c − 1, size), instead of the paper's trained
    length − 1; merged exactly, where the code rounds its shares to bfloat16. The code's gain on cos and sin for long
    texts, 0.05 · ln(length / trained) + 1, which the paper does not have, is ``gain``, of every length.
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


class DualChunk(Remapped):
    """Positions within chunks.

    Args:
        rotation: what rotates queries and keys, such as ``RoPE(64)``, with any scaling.
        size: the largest position of a query (the authors' chunk_size); by default three quarters of 4096.
        local: tokens of a chunk that attend to the chunk before at true distances (their local_window); below ``size``.
        gain: on rotated q and k.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for sizes below 1, ``local`` not below ``size``, a gain not above 0, or a rotation that does not
            turn by one coordinate.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [DualChunk(RoPE(64), size=6, local=2)]).shape
    torch.Size([1, 8, 16, 64])
    """

    def __init__(
        self,
        rotation: RotaryEncoding,
        *,
        size: int = 3072,
        local: int = 512,
        gain: float = 1.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._hold(rotation, gain)
        check_whole("size", size, least=2, most=LONGEST)
        check_whole("local", local, most=LONGEST)
        if local >= size:
            raise ValueError(f"local must be below size = {size}, got {local}")
        self.size, self.local, self.chunk = size, local, size - local
        place_parameters(self, device, dtype, given=rotation)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return {"size": max(2, train_length * 3 // 4), "local": max(1, train_length // 8)}

    def ranges(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Range, ...]:
        chunk = self.size - self.local
        of_queries, of_keys = q_pos.remainder(chunk), k_pos.remainder(chunk)
        before = (of_queries + chunk).clamp(max=self.size)
        earlier = torch.full_like(of_queries, min(2 * chunk - 1, self.size))
        return (
            Range(of_queries, of_keys, None, 1),
            Range(before, of_keys, 1, 2),
            Range(earlier, of_keys, 2, None),
        )

    def extra_repr(self) -> str:
        return f"size={self.size}, local={self.local}, gain={self.gain:g}"


ENTRY = Entry(
    name="dual_chunk",
    encoding=DualChunk,
    title="Dual chunk attention: positions within chunks",
    formula="b_j = p_j mod c,  a_i = p_i mod c | min(p_i mod c + c, size) | min(2c − 1, size) by chunks apart",
    source="An et al., arXiv 2402.17463, section 3",
    parameters="none",
    cost=COST,
    past_training="no new distance at any length; all earlier chunks get the same query position",
    reads="distances and positions",
    extension="is itself one",
    used_in="Qwen2.5-1M (arXiv 2501.15383), at inference",
    extends_context=True,
    defaults=plain_rotation,
    exempt={"common_shift": "chunks begin at multiples of their size"},
)
