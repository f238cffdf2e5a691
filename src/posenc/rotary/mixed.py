"""Mixed RoPE: every pair of every head is rotated by a weighted sum of all coordinates, with learned weights.

    angle[h, j] = Σ_axis theta[h, axis, j] · p_axis,   R(p)ᵀ R(p′) = R(p′ − p)
    at first   theta[h, :, (g, t)] = base^(−t / n) · u_g(h),  t = 0 … n − 1,  n = head_dim / (2 · axes)

u_0(h), u_1(h), …: a random frame of axes for each head, so each head starts as axial RoPE on a grid rotated its own
way. Scores depend on p′ − p alone, exactly, whatever theta is; p integers of any size or fractions, axis 0 slowest.
Tokens without a place are not rotated. Past the trained grid the angles are new. theta is commonly spared weight decay.
Source: Heo et al., Rotary Position Embedding for Vision Transformer, arXiv 2403.13298, section 3.2 (RoPE-Mixed). Golden
    directions: Xiong, On N-dimensional Rotary Positional Embeddings, 2025, jerryxio.ng/posts/nd-rope, no paper.
Checked against: naver-ai/rope-vit: initial frequencies, tables, rotated queries, a layer with a class token, Swin.
Departs from the source: frequencies are (heads, axes, pairs) with rows before columns, `from_official` reads the
    authors' (column, row); several axes take random orthogonal frames; grouped keys have a rule. Golden directions keep
    the geometric sizes of the others, and ``base``, in place of a smallest and a largest frequency.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from posenc.arguments import check_choice, check_flag, check_pairs, check_table
from posenc.encoding import Table
from posenc.entry import Entry
from posenc.factory_kwargs import Device, assign, place_parameters
from posenc.frequencies.host import check_base
from posenc.frequencies.phase import AnyFrequencies, Frequencies, TensorFrequencies
from posenc.frequencies.rotation import Layout
from posenc.frequencies.spectrum import host_float64
from posenc.head_shares import KEYS, HeadAxis, HeadShare
from posenc.rotary._axes import coordinates, table_of_sums, without_single_axis
from posenc.rotary._conventions import given_frequencies
from posenc.rotary._directions import along_axes, frequencies_in_frames, golden_frequencies, random_frames
from posenc.rotary._per_head import PerHeadRotation

Directions = Literal["random", "axial", "golden"]


class MixedRoPE(PerHeadRotation):
    """Rotary embedding whose every pair depends on all coordinates; one instance for each layer, as in the source.

    Args:
        head_dim: width of a head, even.
        num_heads: query heads.
        num_kv_heads: key heads, default ``num_heads``; must divide it. Queries share the frequencies of their key.
        axes: coordinates of a position. With one, a call takes ``(tokens, 1)`` too; `table`, which has no q to tell,
            reads it as rows of one token.
        base: waves start between 2π and nearly 2π · base long; default 10.
        directions: where the frequencies point at first: "random" frames, one for each head, as the source, the
            default; "axial", columns first, as its Swin; "golden", each pair of each head in a direction of its own.
        frequencies: in place of ``base`` and ``directions``: what the pairs begin with, or have where nothing is
            learned, radians per unit of a coordinate, ``(num_kv_heads, axes, pairs)``, or ``(axes, pairs)`` for all.
        learned: whether frequencies are parameters; False needs directions that no random draw decides.
        layout: ``"interleaved"`` as the source, or ``"half"``; see `RoPE`.
        device, dtype: of the parameters, as in torch.nn.

    Attributes:
        theta: the parameter ``(num_kv_heads, axes, pairs)``, radians per unit of a coordinate; None unless learned.

    Raises:
        ValueError: for an odd ``head_dim``, heads that do not divide, less than one axis, a base not above 1,
            unknown directions or layout, random directions that are not learned, frequencies of another shape, not
            finite, or together with a base or directions.

    >>> from posenc.positions import grid
    >>> rope, positions = MixedRoPE(64, num_heads=8), grid(4, 6)
    >>> q, k = torch.randn(2, 1, 8, 24, 64)
    >>> rope(q, k, positions, positions)[0].shape
    torch.Size([1, 8, 24, 64])
    """

    shared_by_layers = False
    relative = True

    def __init__(
        self,
        head_dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        axes: int = 2,
        base: float | None = None,
        directions: Directions | None = None,
        frequencies: Sequence[object] | Tensor | None = None,
        learned: bool = True,
        layout: Layout = "interleaved",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_pairs("head_dim", head_dim)
        super().__init__(head_dim, num_heads=num_heads, num_kv_heads=num_kv_heads, axes=axes)
        num_kv_heads = self.num_kv_heads
        check_table("num_kv_heads, axes and head_dim", num_kv_heads, axes, head_dim)
        check_choice("layout", layout, get_args(Layout))
        if frequencies is not None and (base is not None or directions is not None):
            raise ValueError("frequencies take the place of base and directions: give either")
        base, directions = 10.0 if base is None else base, "random" if directions is None else directions
        check_choice("directions", directions, get_args(Directions))
        learned = check_flag("learned", learned)
        self.given = (
            None
            if frequencies is None
            else given_frequencies("frequencies", frequencies, num_kv_heads, axes, head_dim // 2)
        )
        if not learned and directions == "random" and self.given is None:
            raise ValueError("directions must not be 'random' where nothing is learned: no state_dict would keep them")
        check_base(base)
        self.base, self.directions, self.learned = base, directions, learned
        self.layout: Layout = layout
        self._begun_for, self._kept = num_kv_heads, slice(0, num_kv_heads)  # key heads of the whole encoding
        self.theta = nn.Parameter(torch.empty(num_kv_heads, axes, head_dim // 2)) if learned else None
        self._constant_frequencies = (
            None if learned else [Frequencies(rows.tolist()) for rows in _by_axis(self._first())]
        )
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def _first(self) -> Tensor:
        """The frequencies to begin with, float64 ``(num_kv_heads, axes, pairs)``."""
        return self._all_first()[self._kept]

    def _all_first(self) -> Tensor:
        """The initial frequencies of the whole encoding, of which this may be some heads."""
        heads, axes, pairs = self._begun_for, self.axes, self.head_dim // 2
        if self.given is not None:
            return torch.tensor(self.given, dtype=torch.float64, device="cpu")
        if self.directions == "golden":
            rows = golden_frequencies(heads, axes, pairs, self.base)
            return torch.stack([torch.stack([host_float64(of_axis) for of_axis in of_head]) for of_head in rows])
        frames = random_frames(heads, axes) if self.directions == "random" else along_axes(heads, axes)
        return frequencies_in_frames(frames, pairs, self.base)

    def reset_parameters(self) -> None:
        """Draw random frames anew; other directions, and given frequencies, are always the same."""
        if self.theta is not None:
            assign(self.theta, self._first())

    def head_axes(self) -> dict[str, HeadAxis]:
        return {} if self.theta is None else {"theta": KEYS}

    def _keep_heads(self, share: HeadShare) -> None:
        kept, before = share.key_heads(self.num_kv_heads), self._kept.start
        super()._keep_heads(share)
        self._kept = slice(before + kept.start, before + kept.stop)
        if self._constant_frequencies is not None:
            self._constant_frequencies = [Frequencies(rows.tolist()) for rows in _by_axis(self._first())]

    @torch.no_grad()
    def from_official(self, freqs: Tensor) -> MixedRoPE:
        """Take over one layer's frequencies ``(2, num_heads · pairs)`` or ``(2, num_heads, pairs)`` of rope-vit.

        Theirs are for (column, row), ours for (row, column). Without ``num_kv_heads``, as rope-vit has no grouped keys.
        """
        if self.theta is None or freqs.numel() != self.theta.numel() or freqs.shape[0] != self.axes:
            shape = (
                (self.axes, self.num_kv_heads, self.head_dim // 2) if self.learned else "frequencies that are learned"
            )
            raise ValueError(f"freqs must fit {shape}, got {tuple(freqs.shape)}")
        self.theta.copy_(freqs.flip(0).reshape(self.axes, self.num_kv_heads, -1).transpose(0, 1))
        return self

    def forward(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate q and k; see `RotaryEncoding.forward`. With one axis, positions ``(tokens, 1)`` are taken as well."""
        return super().forward(q, k, *without_single_axis(self.axes, q, k, q_pos, k_pos))

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """cos and sin ``(*batch, num_kv_heads, tokens, pairs)``; see `RotaryEncoding.table`."""
        places, _, dtype = coordinates(positions, self.axes, self.theta if like is None else like)
        return table_of_sums(places, self._frequencies(), dtype)

    def _frequencies(self) -> Sequence[AnyFrequencies]:
        if self._constant_frequencies is not None:
            return self._constant_frequencies
        assert self.theta is not None
        device = torch.device("cpu") if self.theta.device.type == "mps" else self.theta.device  # which has no float64
        return [TensorFrequencies(theta) for theta in _by_axis(self.theta.to(device, torch.float64))]

    def extra_repr(self) -> str:
        fixed = "" if self.learned else ", learned=False"
        begun = f"base={self.base:g}, directions={self.directions!r}" if self.given is None else "frequencies given"
        return f"{super().extra_repr()}, axes={self.axes}, {begun}{fixed}"


def _by_axis(theta: Tensor) -> list[Tensor]:
    """(heads, axes, pairs) as (heads, 1, pairs) for each axis: tokens come between."""
    return [part.unsqueeze(-2) for part in theta.unbind(1)]


ENTRY = Entry(
    name="mixed",
    encoding=MixedRoPE,
    title="Mixed RoPE: each pair is rotated by a learned mix of the coordinates",
    formula="q, k ← R(p) q, R(p) k,  pairs of head h rotated by Σ_axis theta_h,axis,j·p_axis",
    source="Heo et al., arXiv 2403.13298, section 3.2",
    parameters="key heads × axes × head_dim/2 for each layer; none if not learned",
    cost="a table per key head, in training for each layer; one rotation of q and k per layer",
    past_training="angles never seen in training",
    reads="distances",
    extension="coordinates rescaled to the training range",
    used_in="its paper's own models; Mochi, with frequencies of its own (diffusers 0.42, transformer_mochi.py)",
    avoid="on a checkpoint that cannot be trained further: each layer learns its frequencies",
)
