"""TAPE: the cos and sin of every token are states, which each layer's attention and MLP update.

    q_i, k_j ← q_i ⊙ c_i + half(q_i) ⊙ s_i,  k_j alike,   half(a, b) = (−b, a),   (c_i, s_i) the states of token i
    c_i ← c_i + mix_h · Σ_j a_ij c_j,                     mix_h = Σ_g W_hg               s alike; after attention
    c_i ← c_i + down · (gate(x_i) ⊙ up · c_i),            gate(x) = silu(G x)            s alike; after the MLP

The first layer's states are RoPE's cos and sin of the positions; a_ij are the attention's weights, x_i is what the MLP
puts out, and up and down act across heads, for each of the head_dim numbers alike. So ``table`` gives the first states,
``rotate`` applies any states, and `attended` and `updated` give the next layer's states, which a model must hand on:
`posenc.layers.TAPEAttention` does the attention's part. mix and up start at 0, where every layer is RoPE. Keys keep
the states of their own tokens, so caches hold them rotated. Past the training length first states are RoPE's there.

Source: Zhu et al., Rethinking Addressing in Language Models via Contextualized Equivariant Positional Encoding,
    arXiv 2501.00712, section on the method, as in the authors' code.
Checked against: VITA-Group/TAPE models/llama/adape.py AdaRotaryEmbedding, PELlamaAttention, PELayer and
    LlamaDecoderLayer: results, states and all gradients.
Departs from the source: nothing. mix is theirs: a matrix whose rows the code sums, so that heads stay apart. The random
    first position of their training is `posenc.positions.skipped`'s or the caller's to give.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_heads, check_whole
from posenc.encoding import RotaryEncoding, Table, own_precision
from posenc.factory_kwargs import Device, place_parameters
from posenc.frequencies.spectrum import Spectrum
from posenc.rotary.rope import RoPE


class TAPE(RotaryEncoding):
    """Contextual position states. One layer alone rotates as RoPE; see `posenc.layers.TAPEAttention` for several.

    Args:
        head_dim: width of a head.
        num_heads: query heads; states are one a query head, so later layers need as many key heads.
        dim: width of what the MLP puts out.
        position_size: units across heads of the update after the MLP.
        base, scaling: of the first states; see `RoPE`.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: as `RoPE`; for sizes below 1, a scaling that depends on the length of a row or is of other heads.

    >>> from posenc import attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> tape = TAPE(64, num_heads=8, dim=512, position_size=16)
    >>> first = tape.table(torch.arange(16))
    >>> then = tape.updated(first, torch.randn(1, 16, 512))
    >>> tape.rotate(q, then).shape, then[0].shape
    (torch.Size([1, 8, 16, 64]), torch.Size([1, 8, 16, 64]))
    """

    carries = True
    moves = False
    shared_by_layers = False

    def __init__(
        self,
        head_dim: int,
        *,
        num_heads: int,
        dim: int,
        position_size: int = 64,
        base: float = 10_000.0,
        scaling: nn.Module | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads("num_heads", num_heads)
        check_whole("dim", dim)
        check_whole("position_size", position_size)
        self.rope = RoPE(head_dim, base=base, scaling=scaling)
        self.head_dim, self.num_heads, self.dim, self.position_size = head_dim, num_heads, dim, position_size
        if self.rope.length_dependent:
            raise ValueError("scaling must not depend on the length of a row: layers keep what its first states became")
        rows = self.rope.spectrum().theta
        self._by_head = rows.ndim == 2
        if self._by_head and len(rows) != num_heads:
            raise ValueError(f"scaling must have frequencies of num_heads = {num_heads} heads, got {len(rows)}")
        self.mix = nn.Parameter(torch.empty(num_heads, num_heads))
        self.up = nn.Parameter(torch.empty(position_size, num_heads))
        self.gate = nn.Parameter(torch.empty(position_size, dim))
        self.down = nn.Parameter(torch.empty(num_heads, position_size))
        self.reset_parameters()
        place_parameters(self, device, dtype, given=scaling)

    def reset_parameters(self) -> None:
        """mix and up back to zero; the gate and down drawn anew, as PyTorch draws linear layers."""
        for zero in (self.mix, self.up):
            nn.init.zeros_(zero)
        for weight in (self.gate, self.down):
            nn.init.uniform_(weight, -(weight.shape[1] ** -0.5), weight.shape[1] ** -0.5)

    def spectrum(self, length: int | None = None) -> Spectrum:
        """The frequencies of the first states; see `RoPE.spectrum`."""
        return self.rope.spectrum(length)

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """The first layer's states, two of ``(*batch, heads | 1, tokens, head_dim)``: each of RoPE's waves twice."""
        cos, sin = (
            torch.cat([wave, wave], -1)
            for wave in self.rope.table(positions, length, like=self.mix if like is None else like)
        )
        return (cos, sin) if self._by_head else (cos.unsqueeze(-3), sin.unsqueeze(-3))

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        """Rotate queries or keys ``(batch, heads, tokens, head_dim)``; result in the dtype of ``x``."""
        if x.shape[-1] != self.head_dim:
            raise ValueError(f"head_dim of this TAPE is {self.head_dim}, got a tensor of {tuple(x.shape)}")
        cos, sin = table
        if cos.shape[-3] not in (1, x.shape[1]):
            raise ValueError(
                f"num_kv_heads: states of {cos.shape[-3]} heads need as many, got a tensor of {tuple(x.shape)}"
            )
        wide = x.to(cos.dtype)
        a, b = wide.chunk(2, -1)
        return (wide * cos + torch.cat([-b, a], -1) * sin).to(x.dtype)

    def attended(self, table: Table, read: Table) -> Table:
        """The states after attention, two of ``(batch, heads, tokens, head_dim)``.

        Args:
            table: that queries and keys of the layer were rotated by.
            read: what the attention's weights make of both states, ``(batch, heads, tokens, head_dim)``.
        """
        mix = self.mix.sum(1).view(-1, 1, 1)
        cos, sin = (state + mix.to(state.dtype) * mean.to(state.dtype) for state, mean in zip(table, read, strict=True))
        return cos, sin

    def updated(self, table: Table, x: Tensor) -> Table:
        """The states after the MLP, which the next layer uses, two of ``(batch, heads, tokens, head_dim)``.

        Args:
            table: the states after attention.
            x: what the MLP puts out, ``(batch, tokens, dim)``, without the stream that it is added to.
        """
        if x.shape[-1] != self.dim:
            raise ValueError(f"dim of this TAPE is {self.dim}, got x of {tuple(x.shape)}")
        wide = table[0].dtype
        with own_precision(x.device.type):
            gate = F.silu(F.linear(x.to(wide), self.gate.to(wide)))  # (batch, tokens, units)
            cos, sin = (self._gated(state, gate, wide) for state in table)
        return cos, sin

    def _gated(self, state: Tensor, gate: Tensor, wide: torch.dtype) -> Tensor:
        """One of the states after the update; the axis of heads goes last, through the network, and back."""
        by_feature = state.expand(*state.shape[:-3], self.num_heads, -1, -1).movedim(
            -3, -1
        )  # (…, tokens, width, heads)
        units = F.linear(by_feature, self.up.to(wide)) * gate.unsqueeze(-2)
        return state + F.linear(units, self.down.to(wide)).movedim(-1, -3)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, num_heads={self.num_heads}, dim={self.dim}, position_size={self.position_size}"
