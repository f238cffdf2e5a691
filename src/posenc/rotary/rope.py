"""RoPE: queries and keys turn with their position, so their product sees only the distance.

    theta_j = base^(−2j / rotary_dim)
    (a_j, b_j) → (a_j cos p·theta_j − b_j sin p·theta_j,  b_j cos p·theta_j + a_j sin p·theta_j)
    R(p_i) q · R(p_j) k = q · R(p_j − p_i) k

p positions in tokens, theta in radians per token, pairs (a_j, b_j) by `layout`. The angles are exact at any
integer position below 2³¹ (`frequencies.phase`), whatever the module's dtype. Past the trained length a model meets
angles it has never seen: without a scaling of the frequencies it fails there, at once.
Source: Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv 2104.09864, eq. 15 and 34.
    Partial rotation: GPT-NeoX-20B, arXiv 2204.06745, section 2.1.
Checked against: mpmath; transformers (gpt_neox, gptj, llama) and llama-models' own functions.
Departs from the source: nothing; the paper's pairs are layout="interleaved", the default is the "half" layout of most
    checkpoints, and `permute_layout` converts weights between the two.
"""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor, nn

from posenc import positions as position
from posenc.encoding import RotaryEncoding, Table
from posenc.frequencies.phase import Frequencies, angles
from posenc.frequencies.spectrum import Spectrum, check_base, geometric, host_float64
from posenc.rotary._rotate import Layout, rotate_pairs


class RoPE(RotaryEncoding):
    """Rotary position embedding.

    Args:
        head_dim: width of a head.
        base: wavelengths run from 2π to about 2π · base tokens.
        layout: ``"half"`` pairs channels (j, j + pairs), as Llama, NeoX and most of Hugging Face;
            ``"interleaved"`` pairs (2j, 2j + 1), as RoFormer, GPT-J and Meta's Llama code.
        rotary_dim: leading channels that turn, even, default all; the others pass through.
        scaling: a module that maps a `Spectrum` to a `Spectrum`, or None.

    Raises:
        ValueError: for an odd or too large ``rotary_dim``, a base not above 1, an unknown layout.

    >>> rope = RoPE(64)
    >>> q, k = torch.randn(2, 1, 8, 16, 64)
    >>> rotated_q, rotated_k = rope(q, k, torch.arange(16), torch.arange(16))
    >>> rotated_q.shape
    torch.Size([1, 8, 16, 64])
    """

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10_000.0,
        layout: Layout = "half",
        rotary_dim: int | None = None,
        scaling: nn.Module | None = None,
    ) -> None:
        super().__init__()
        rotary_dim = head_dim if rotary_dim is None else rotary_dim
        if rotary_dim < 2 or rotary_dim % 2 or rotary_dim > head_dim:
            raise ValueError(
                f"rotary_dim must be even and in 2..head_dim = {head_dim}, got {rotary_dim}: channels turn in pairs"
            )
        if layout not in get_args(Layout):
            raise ValueError(f"layout must be one of {get_args(Layout)}, got {layout!r}")
        check_base(base)
        self.head_dim, self.base, self.layout, self.rotary_dim = head_dim, base, layout, rotary_dim
        self.scaling = scaling
        spectrum = self.spectrum()
        self._frequencies = Frequencies.of(spectrum.theta.tolist())
        self._gain = spectrum.gain

    def spectrum(self, length: int | None = None) -> Spectrum:
        """The frequencies in force, float64 on the host, after the scaling."""
        plain = Spectrum(host_float64(geometric(self.rotary_dim, self.base)), length)
        scaled: Spectrum = plain if self.scaling is None else self.scaling(plain)
        return scaled

    def table(self, positions: Tensor, length: int | None = None, *, like: Tensor | None = None) -> Table:
        """cos and sin ``(*batch, tokens, pairs)``, times the gain; see `RotaryEncoding.table`."""
        position.check_dtype("positions", positions)
        dtype = torch.float64 if like is not None and like.dtype == torch.float64 else torch.float32
        angle = angles(positions if like is None else positions.to(like.device), self._frequencies, dtype)
        return angle.cos() * self._gain, angle.sin() * self._gain

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        """Rotate queries or keys ``(batch, heads, tokens, head_dim)``; result in the dtype of ``x``."""
        if x.shape[-1] != self.head_dim:
            raise ValueError(f"head_dim of this RoPE is {self.head_dim}, got a tensor of {tuple(x.shape)}")
        cos, sin = (t.unsqueeze(-3) for t in table)  # a heads axis
        return rotate_pairs(x, cos, sin, self.layout)

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        of_queries = self.table(q_pos, like=q)
        of_keys = of_queries if k_pos is q_pos else self.table(k_pos, like=k)
        return self.rotate(q, of_queries), self.rotate(k, of_keys)

    def extra_repr(self) -> str:
        partial = "" if self.rotary_dim == self.head_dim else f", rotary_dim={self.rotary_dim}"
        return f"{self.head_dim}, base={self.base:g}, layout={self.layout!r}{partial}"


def permute_layout(weight: Tensor, head_dim: int, *, to: Layout, rotary_dim: int | None = None) -> Tensor:
    """Reorder the rows of a q or k projection so that its RoPE may use the other layout; an exact permutation.

    Args:
        weight: ``(heads · head_dim, ...)``: the projection's weight or bias, or a norm's weight over head_dim.
        head_dim: width of a head.
        to: the layout that the result is for; the weight must come from the other one.
        rotary_dim: channels of each head that turn, default all.

    >>> w = torch.randn(4 * 8, 32)
    >>> back = permute_layout(permute_layout(w, 8, to="half"), 8, to="interleaved")
    >>> torch.equal(back, w)
    True
    """
    rotary_dim = head_dim if rotary_dim is None else rotary_dim
    if weight.shape[0] % head_dim:
        raise ValueError(f"weight must have a multiple of head_dim = {head_dim} rows, got {tuple(weight.shape)}")
    if rotary_dim < 2 or rotary_dim % 2 or rotary_dim > head_dim:
        raise ValueError(f"rotary_dim must be even and in 2..head_dim = {head_dim}, got {rotary_dim}")
    if to not in get_args(Layout):
        raise ValueError(f"to must be one of {get_args(Layout)}, got {to!r}")
    channel = torch.arange(rotary_dim, device=weight.device)
    pairs = channel.view(-1, 2).T if to == "half" else channel.view(2, -1).T
    order = torch.cat([pairs.flatten(), torch.arange(rotary_dim, head_dim, device=weight.device)])
    heads = weight.shape[0] // head_dim
    return weight.reshape(heads, head_dim, *weight.shape[1:]).index_select(1, order).flatten(0, 1)
