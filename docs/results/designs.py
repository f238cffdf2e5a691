"""Designs that the lab has no name for, as classes that `posenc compare --classes-from docs/results` takes.

designs:ConcatenatedSinusoidal       sinusoids beside the token's channels instead of added to them (tasks)
designs:FoXProGate                   the forget gate in the layer of FoX (Pro) instead of a plain one (tasks)
designs:ImageMRoPE                   M-RoPE of pictures, its pairs in chunks (images)
designs:ImageInterleavedMRoPE        the same, its pairs in turn
"""

from __future__ import annotations

from torch import Tensor

from posenc import ForgetGate, MRoPE, Sinusoidal
from posenc.encoding import EmbeddingEncoding
from posenc.layers import FoXPro

SHARE = 4  # one channel in four is the position's


class ConcatenatedSinusoidal(EmbeddingEncoding):
    """``x (batch, tokens, dim)``: its first 3/4 channels, then dim/4 channels of a sinusoid.

    The last quarter of the token embedding goes unused, so the token has 3/4 of the width and the model the same width.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.waves = Sinusoidal(dim // SHARE, combine="concat")

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        out: Tensor = self.waves(x[..., : x.shape[-1] - self.waves.dim], positions)
        return out


class FoXProGate(ForgetGate):
    """FoX (Pro): besides the gate, keys and values mixed with the previous token's, norms and an output gate.

    Its projections are drawn like those of every other layer of the lab, not with the authors' deviation of 0.02.
    """

    attention_layer = FoXPro


class ImageMRoPE(MRoPE):
    """M-RoPE of one picture, positions (row, column): chunks of its pairs in Qwen2-VL's proportions, 2 to 3 to 3.

    All tokens of a picture have one time, so the pairs of time rotate queries and keys alike: as if not at all.
    """

    def __init__(self, head_dim: int) -> None:
        pairs = head_dim // 2
        place = pairs * 3 // 8
        super().__init__(head_dim, order=[-1] * (pairs - 2 * place) + [0] * place + [1] * place, axes=2)


class ImageInterleavedMRoPE(MRoPE):
    """The same with Qwen3-VL's order of the pairs: time, row, column in turn."""

    def __init__(self, head_dim: int) -> None:
        super().__init__(head_dim, order=[(-1, 0, 1)[pair % 3] for pair in range(head_dim // 2)], axes=2)
