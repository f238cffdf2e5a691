"""RoPE: queries and keys are rotated by their positions, so their dot product depends on the distance alone.

    theta_j = base^(−2j / rotary_dim)
    (a_j, b_j) → (a_j cos p·theta_j − b_j sin p·theta_j,  b_j cos p·theta_j + a_j sin p·theta_j)
    R(p_i) q · R(p_j) k = q · R(p_j − p_i) k

p positions in tokens, theta in radians per token, pairs (a_j, b_j) by `layout`. The angles are exact at any
integer position below 2³¹ (`frequencies.phase`), whatever the module's dtype. Past the training length a model meets
angles it has never seen: without a scaling of the frequencies it fails there, at once.
Source: Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv 2104.09864, eq. 15 and 34.
    Partial rotation: GPT-NeoX-20B, arXiv 2204.06745, section 2.1.
Checked against: mpmath; transformers (gpt_neox, gptj, llama) and llama-models' own functions.
Departs from the source: nothing; the paper's pairs are layout="interleaved", the default is the "half" layout of most
    checkpoints, and `permute_layout` converts weights between the two.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from posenc.constants import constant
from posenc.encoding import RotaryEncoding, Table
from posenc.entry import Entry
from posenc.frequencies.host import Formula, geometric
from posenc.frequencies.modules import module_of
from posenc.frequencies.rotation import Layout, RoPESpec, check_rotation
from posenc.frequencies.spectrum import Spectrum, host_float64
from posenc.head_shares import HeadShare
from posenc.positions import checking as position
from posenc.positions.checking import DEFAULT_MARK, counted, end_together
from posenc.rotary._default_tables import default_table
from posenc.rotary._kernels import by_kernel
from posenc.rotary._rotate import (
    check_table,
    check_tokens,
    rotate_both,
    rotate_pairs,
    rotate_pairs_,
    tokens_second_last,
)
from posenc.rotary._rotation_table import RotationTable, check_theta, distinct_groups
from posenc.tracing import real_tensors

_CONSTRUCTED = ("head_dim", "base", "rotary_dim", "scaling")


class RoPE(RotaryEncoding, RoPESpec):
    """Rotate pairs of query and key channels by angles proportional to the position: rotary position embedding.

    Args:
        head_dim: width of a head.
        base: wavelengths run from 2π to about 2π · base tokens.
        layout: ``"half"`` pairs channels (j, j + pairs), as Llama, NeoX and most of Hugging Face;
            ``"interleaved"`` pairs (2j, 2j + 1), as RoFormer, GPT-J and Meta's Llama code.
        rotary_dim: leading rotated channels, even, default all; the others pass through.
        scaling: a `Scaling` such as ``YaRN(...)``, several in ``nn.Sequential``, or None.

    Raises:
        ValueError: for an odd or too large ``rotary_dim``, a base not above 1, an unknown layout, a scaling whose
            frequencies do not fit.

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
        rotary_dim = check_rotation(head_dim, base, layout, rotary_dim)
        if isinstance(scaling, Formula):
            scaling = module_of(scaling)
        if scaling is not None and not isinstance(scaling, nn.Module):
            named = f": create_encoding({scaling!r}, …) makes one by name" if isinstance(scaling, str) else ""
            raise ValueError(f"scaling must be a Scaling, several in nn.Sequential, or None, got {scaling!r}{named}")
        self.head_dim, self.base, self.layout, self.rotary_dim = head_dim, base, layout, rotary_dim
        self.scaling = scaling
        self._plain = tuple(geometric(rotary_dim, base))
        parts = [] if scaling is None else list(scaling.modules())
        self.length_dependent = any(getattr(part, "length_dependent", False) for part in parts)
        self._prepare()

    def _prepare(self) -> None:
        """Take from the scaling whether heads have a base each, and the table's frequencies where they are fixed."""
        learned = self.scaling is not None and any(True for _ in self.scaling.parameters())
        self._fewest: int | None = None
        # real numbers even where modules are made under fake tensors: constants are no state that is loaded later
        with nullcontext() if learned else real_tensors():
            spectrum = self.spectrum()
            check_theta(spectrum.theta, self.rotary_dim // 2)
            if spectrum.theta.ndim == 2:  # a base a head
                self.num_heads, self._fewest = spectrum.theta.shape[0], distinct_groups(spectrum.theta)
            self._constant_table = None if self.length_dependent or learned else RotationTable.constant(spectrum)
        self.relative = spectrum.start is None

    def _keep_heads(self, share: HeadShare) -> None:
        if self._fewest is None:
            return
        super()._keep_heads(share)
        if self.spectrum().theta.shape[0] != self.num_heads:
            raise ValueError(
                f"scaling has a base for each head and cannot be cut to some of them, got {self.scaling}: make the "
                "scaling of the rank's heads yourself"
            )
        self._prepare()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _CONSTRUCTED and "_constant_table" in self.__dict__:
            raise ValueError(f"{name} is fixed once a RoPE is made: its tables follow from it; use replace({name}=…)")
        super().__setattr__(name, value)

    def spectrum(self, length: int | None = None) -> Spectrum:
        """The frequencies in force for a length in tokens (None: the trained one), float64, after the scaling."""
        theta = host_float64(self._plain)
        return self._scaled(Spectrum(theta, length, theta.new_ones(())))

    def _scaled(self, unscaled: Spectrum) -> Spectrum:
        scaled: Spectrum = unscaled if self.scaling is None else self.scaling(unscaled)
        return scaled

    def cacheable(self, length: int | None = None) -> bool:
        """Whether keys may be cached rotated: always, but for a length-dependent scaling without a declared length."""
        return length is not None or not self.length_dependent

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """cos and sin ``(*batch, tokens, pairs)``, times the gain; see `RotaryEncoding.table`.

        With a base a head they are ``(*batch, heads, tokens, pairs)``. A length-dependent scaling spans ``length``,
        or else each row's last position + 1.
        """
        if not isinstance(positions, Tensor) or positions.dtype != torch.int64:
            position.check_dtype("positions", positions)
        dtype = torch.float32
        if like is not None:
            positions = positions if positions.device == like.device else positions.to(like.device)
            dtype = torch.float64 if like.dtype == torch.float64 else dtype
        if hasattr(positions, DEFAULT_MARK) and self._constant_table is not None and self._fewest is None:
            mark = counted(positions)
            if mark is not None:
                return default_table(self._constant_table, mark, positions, self.rotary_dim // 2, dtype)
        spectrum = self._constant_table or self._table_spanning(positions, length)
        return spectrum.table(positions if self._fewest is None else positions.unsqueeze(-2), dtype)

    def _table_spanning(self, positions: Tensor, length: int | Tensor | None) -> RotationTable:
        """The frequencies of this call."""
        device = torch.device("cpu") if positions.device.type == "mps" else positions.device  # which has no float64
        if length is None and self.length_dependent:
            length = position.span(positions)
        if isinstance(length, Tensor):
            length = length.to(device, torch.float64)
            length = length.unsqueeze(-1) if length.ndim else length
        elif length is not None:
            length = torch.full((), length, dtype=torch.float64, device=device)
        theta = constant(self._plain, torch.float64, device)
        return RotationTable.of(
            self._scaled(Spectrum(theta, length, theta.new_ones(()))), per_head=self._fewest is not None
        )

    def rotate(self, x: Tensor, table: Table, *, token_axis: int = -2) -> Tensor:
        """Rotate queries or keys ``(batch, heads, tokens, head_dim)``; result in the dtype of ``x``.

        ``token_axis=-3``: tokens before heads, ``(batch, tokens, heads, head_dim)`` or flash-attention's packed
        ``(total, heads, head_dim)``, whose positions `posenc.positions.from_cu_seqlens` makes.
        """
        check_table(table)
        if token_axis != -2:
            return tokens_second_last(self.rotate, x, table, token_axis)
        if x.shape[-1] != self.head_dim:
            raise ValueError(f"head_dim of this RoPE is {self.head_dim}, got a tensor of {tuple(x.shape)}")
        cos, sin = self._broadcast(table, x) if self._fewest is not None or table[0].ndim > 2 else table
        return rotate_pairs(x, cos, sin, self.layout)

    def rotate_(self, x: Tensor, table: Table) -> Tensor:
        """`rotate` in the memory of ``x``, for inference: no second tensor of its size."""
        check_table(table)
        if x.shape[-1] != self.head_dim:
            raise ValueError(f"head_dim of this RoPE is {self.head_dim}, got a tensor of {tuple(x.shape)}")
        return rotate_pairs_(x, *self._broadcast(table, x), self.layout)

    def _broadcast(self, table: Table, x: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin in a shape that broadcasts with ``x`` (batch, heads, tokens, channels)."""
        cos, sin = table
        if self._fewest is not None:
            check_tokens(x, cos)
            return self._of_heads(cos, x.shape[1]), self._of_heads(sin, x.shape[1])
        return (cos, sin) if cos.ndim == 2 else (cos.unsqueeze(-3), sin.unsqueeze(-3))

    def _of_heads(self, table: Tensor, heads: int) -> Tensor:
        """The rows of a table with a base a head that belong to ``heads`` query or key heads."""
        if self.num_heads % heads or heads % (self._fewest or 1):
            raise ValueError(
                f"num_kv_heads: {self.num_heads} heads share {self._fewest} bases here, got a tensor of {heads} heads; "
                "queries must share the base of their key: give num_kv_heads where the bases are made"
            )
        # keys of a group share their queries' base, so every group's first row is the key head's
        return table if heads == self.num_heads else table[..., :: self.num_heads // heads, :, :]

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        q_pos: Tensor,
        k_pos: Tensor,
        length: int | tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Rotate q and k; see `RotaryEncoding.forward`. Undeclared, each row spans its last key."""
        if length is None and self.length_dependent:
            span = position.span(k_pos)
            length = (span, span)
        span_q, span_k = length if isinstance(length, tuple) else (length, length)
        q_table = self.table(q_pos, span_q, like=q)
        k_table = q_table if k_pos is q_pos and span_q is span_k else self.table(k_pos, span_k, like=k)
        if self._fewest is not None:
            return self.rotate(q, q_table), self.rotate(k, k_table)
        if q.is_cuda and (k_table[0] is q_table[0] or (span_q is span_k and end_together(q_pos, k_pos))):
            rotated = by_kernel(q, k, *self._broadcast(k_table, k), self.layout)
            if rotated is not None:
                return rotated
        return rotate_both(self.rotate, q, k, q_table, k_table)

    extra_repr = RoPESpec.extra_repr


ENTRY = Entry(
    name="rope",
    encoding=RoPE,
    title="RoPE: rotary position embedding",
    formula="q, k ← R(p) q, R(p) k,  pairs rotated by p·theta_j,  theta_j = base^(−2j/rotary_dim)",
    source="Su et al., arXiv 2104.09864, eq. 15 and 34",
    parameters="none",
    cost="one rotation of q and k per layer",
    past_training="angles never seen in training",
    reads="distances",
    extension="any scaling of its frequencies, best with a short training; or a window",
    used_in="Llama 3 (arXiv 2407.21783); Qwen3 (arXiv 2505.09388); DeepSeek-V3 (arXiv 2412.19437); gpt-oss "
    "(arXiv 2508.10925)",
    avoid="beyond the training length, unless its frequencies are scaled, a window is set or training continues there",
)
