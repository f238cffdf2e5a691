"""RoPE++: some heads score by the imaginary part of the product whose real part is RoPE's score.

    s_ij = Re Σ over pairs of  q_pair · conj(k_pair) · e^(i (p_i − p_j) theta_pair)                 real heads, as RoPE
    s_ij = Re Σ over pairs of  q_pair · conj(k_pair) · e^(i ((p_i − p_j) theta_pair − π/2))         imaginary heads

Queries of imaginary heads lag by 90°, (a, b) → (b, −a); keys are rotated as by RoPE, so caches hold them
rotated and one key serves both kinds. Scores depend on the distance alone. The authors let both kinds share queries:
``RoPEpp.doubled(q)`` gives every projected head twice, real then imaginary, for imaginary="odd" (their imag2, twice the
heads on the same cache; imag1 has half as many projected heads, and half the cache). Past the training length as RoPE.

Source: Liu et al., Beyond Real: Imaginary Extension of Rotary Position Embeddings for Long-Context LLMs,
    arXiv 2512.07525, section on the method.
Checked against: OpenMOSS/rope_pp modeling_llama_rope_pp.py: imag1, imag2, imagh, imago, imagx, decoding, YaRN.
Departs from the source: any scaling of the frequencies, where that code has two of its own (its YaRN is
    YaRN(factor, original_length=4096, ramp="rotations")).
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from posenc.arguments import check_choice, check_heads
from posenc.constants import constant
from posenc.encoding import RotaryEncoding, Table
from posenc.entry import Entry
from posenc.frequencies.rotation import Layout
from posenc.frequencies.spectrum import Spectrum
from posenc.head_shares import HeadShare
from posenc.rotary.rope import RoPE

Imaginary = Literal["odd", "half", "all"]


class RoPEpp(RotaryEncoding):
    """RoPE with imaginary heads.

    Args:
        head_dim: width of a head.
        num_heads: query heads, those of `doubled` queries where both kinds share them.
        imaginary: which heads are: "odd" ones (1, 3, …), the second "half", or "all".
        base, layout, rotary_dim, scaling: see `RoPE`. Channels that are not rotated meet as they are in every head.

    Raises:
        ValueError: as `RoPE`; for no head at all or an unknown ``imaginary``.

    >>> from posenc import attention
    >>> q, (k, v) = torch.randn(1, 4, 16, 64), torch.randn(2, 1, 2, 16, 64)
    >>> attention(RoPEpp.doubled(q), k, v, [RoPEpp(64, num_heads=8)]).shape
    torch.Size([1, 8, 16, 64])
    """

    def __init__(
        self,
        head_dim: int,
        *,
        num_heads: int,
        imaginary: Imaginary = "odd",
        base: float = 10_000.0,
        layout: Layout = "half",
        rotary_dim: int | None = None,
        scaling: nn.Module | None = None,
    ) -> None:
        super().__init__()
        check_heads("num_heads", num_heads)
        check_choice("imaginary", imaginary, get_args(Imaginary))
        self.rope = RoPE(head_dim, base=base, layout=layout, rotary_dim=rotary_dim, scaling=scaling)
        self.head_dim, self.num_heads, self.imaginary = head_dim, num_heads, imaginary
        self.layout, self.length_dependent = self.rope.layout, self.rope.length_dependent
        if imaginary == "half":
            self._imaginary_heads = [head >= num_heads // 2 for head in range(num_heads)]
        else:
            self._imaginary_heads = [imaginary == "all" or head % 2 == 1 for head in range(num_heads)]

    @staticmethod
    def doubled(q: Tensor) -> Tensor:
        """Queries ``(batch, heads, queries, head_dim)`` with every head twice, real then imaginary."""
        return q.repeat_interleave(2, 1)

    def imaginary_heads(self) -> list[bool]:
        """Of each query head, whether it is imaginary."""
        return self._imaginary_heads

    def _keep_heads(self, share: HeadShare) -> None:
        super()._keep_heads(share)
        self._imaginary_heads = self._imaginary_heads[share.heads]

    def spectrum(self, length: int | None = None) -> Spectrum:
        """The frequencies; see `RoPE.spectrum`."""
        return self.rope.spectrum(length)

    def cacheable(self, length: int | None = None) -> bool:
        return self.rope.cacheable(length)

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """cos and sin; see `RoPE.table`."""
        return self.rope.table(positions, length, like=like)

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        """Rotate keys ``(batch, heads, tokens, head_dim)``; `rotate_queries` for queries."""
        return self.rope.rotate(x, table)

    def rotate_queries(self, x: Tensor, table: Table) -> Tensor:
        return self.rope.rotate(self._behind(x), table)

    def forward(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, length: int | tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        rotated: tuple[Tensor, Tensor] = self.rope(self._behind(q), k, q_pos, k_pos, length)
        return rotated

    def _behind(self, q: Tensor) -> Tensor:
        """Queries, with imaginary heads rotated back by 90°."""
        if q.shape[1] != self.num_heads:
            raise ValueError(f"num_heads of this RoPEpp is {self.num_heads}, got queries of {tuple(q.shape)}")
        rotary_channels = q[..., : self.rope.rotary_dim]
        if self.layout == "half":
            a, b = rotary_channels.chunk(2, -1)
            quarter = torch.cat([b, -a, q[..., self.rope.rotary_dim :]], -1)
        else:
            pairs = torch.stack([rotary_channels[..., 1::2], -rotary_channels[..., ::2]], -1).flatten(-2)
            quarter = torch.cat([pairs, q[..., self.rope.rotary_dim :]], -1)
        if self.imaginary == "all":
            return quarter
        return torch.where(constant(self.imaginary_heads(), torch.bool, q.device).view(-1, 1, 1), quarter, q)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, num_heads={self.num_heads}, imaginary={self.imaginary!r}"


ENTRY = Entry(
    name="rope_pp",
    encoding=RoPEpp,
    title="RoPE++: some heads use the imaginary part of RoPE's complex dot product",
    formula="s_ij = Re Σ q_pair·conj(k_pair)·e^(i((p_i − p_j)theta − π/2)) in imaginary heads, as RoPE in others",
    source="Liu et al., arXiv 2512.07525",
    parameters="none",
    cost="as RoPE, plus one pass over q",
    past_training="angles never seen in training",
    reads="distances",
    extension="scalings of frequencies, as RoPE's",
    used_in="its paper's own models; no other is known to us",
    avoid="on a checkpoint trained with RoPE: its imaginary heads would compute another dot product",
)
