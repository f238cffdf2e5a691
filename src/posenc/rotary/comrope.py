"""ComRoPE: blocks of channels rotated by learned generators that commute, so scores depend on relative positions alone.

    R(p) = exp(t(p) (P − Pᵀ)),   q, k ← R(p) q, R(p) k,   R(p)ᵀ R(p′) = R(p′ − p)
    axial partition        t(p) = p_axis,  axis = block mod axes
    linearly dependent     t(p) = Σ_axis multiplier[axis] p_axis
    at first               P ~ Normal(0, init_std²),  multiplier ~ Normal(0, 1)

p coordinates, in the authors' models (i + 1/2) / n along an axis, class tokens at 1/2 (`positions.centred`); P for each
head and block. A block is mixed RoPE in a learned basis, and is computed so (`rotary._commuting`). Past the trained
range angles are new. In training the authors move tokens at random, which is `positions.perturbed`.

Source: Yu et al., ComRoPE: Scalable and Robust Rotary Position Embedding Parameterized by Trainable Commuting Angle
    Matrices, arXiv 2506.03737, section on the method (axial-partition and linearly dependent angle matrices).
Checked against: Longin-Yu/ComRoPE: rotations, queries and keys, a layer with a class token; two and three axes.
Departs from the source: nothing in its numbers, though no matrix a token is ever made. Multipliers are shared by heads,
    as in its code, unless per_head; grouped keys have a rule; P is float32 or better inside.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc.arguments import check_flag, check_number, check_table
from posenc.constants import constant
from posenc.encoding import Table, float64_if_supported
from posenc.entry import Entry, Shape
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import KEYS, HeadAxis
from posenc.rotary._axes import coordinates
from posenc.rotary._blocks import check_block
from posenc.rotary._commuting import commuting_rotate, commuting_table
from posenc.rotary._per_head import PerHeadRotation


class _ComRoPE(PerHeadRotation):
    """What both kinds share: all but how a position becomes a time."""

    shared_by_layers = False
    relative = True

    def __init__(
        self, head_dim: int, *, num_heads: int, axes: int, block: int, init_std: float, num_kv_heads: int | None
    ) -> None:
        super().__init__(head_dim, num_heads=num_heads, num_kv_heads=num_kv_heads, axes=axes)
        check_block(block, head_dim)
        if head_dim % block:
            raise ValueError(f"head_dim must be a multiple of block = {block}, got {head_dim}")
        check_number("init_std", init_std, least=0)
        check_table("num_kv_heads, head_dim and block", self.num_kv_heads, head_dim, block)
        self.block, self.init_std = block, init_std
        self.generators = nn.Parameter(torch.empty(self.num_kv_heads, head_dim // block, block, block))

    @property
    def _rows(self) -> int:
        """Each key head has generators of its own, whatever shares its multipliers."""
        return self.num_kv_heads

    def head_axes(self) -> dict[str, HeadAxis]:
        return {"generators": KEYS}

    def _times(self, like: Tensor) -> Tensor:
        """What each coordinate adds to t, ``(num_kv_heads or 1, axes, blocks)``, of the device and dtype of like."""
        raise NotImplementedError

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """See `RotaryEncoding.table`; in blocks of 2 cos and sin, else what `commuting_rotate` takes."""
        places, _, dtype = coordinates(positions, self.axes, self.generators if like is None else like)
        generators = self.generators.to(places.device, float64_if_supported(places.device))
        return commuting_table(places, generators - generators.mT, self._times(generators), dtype)

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        """Rotate queries or keys ``(batch, heads, tokens, head_dim)``; result in the dtype of ``x``."""
        self._check_heads(x)
        return commuting_rotate(x, table)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, axes={self.axes}, block={self.block}"


class ComRoPEAP(_ComRoPE):
    """ComRoPE with an axial partition: each block is rotated by one coordinate; one instance per layer.

    Args:
        head_dim: width of a head, a multiple of ``axes · block``.
        num_heads: query heads.
        num_kv_heads: key heads, default ``num_heads``; must divide it. Queries share the rotations of their key.
        axes: coordinates of a position.
        block: channels that a generator mixes, even. Blocks of 2 cost what RoPE costs.
        init_std: standard deviation of P at first.
        device, dtype: of the parameters, as in torch.nn.

    Attributes:
        generators: the parameter P ``(num_kv_heads, blocks, block, block)``.

    Raises:
        ValueError: for a head that blocks or axes do not fit, an odd block, heads that do not divide, a negative
            init_std.

    >>> from posenc.positions import centred, grid
    >>> rope, positions = ComRoPEAP(64, num_heads=8), centred(grid(4, 6), (4, 6))
    >>> q, k = torch.randn(2, 1, 8, 24, 64)
    >>> rope(q, k, positions, positions)[0].shape
    torch.Size([1, 8, 24, 64])
    """

    def __init__(
        self,
        head_dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        axes: int = 2,
        block: int = 8,
        init_std: float = 1.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            head_dim, num_heads=num_heads, axes=axes, block=block, init_std=init_std, num_kv_heads=num_kv_heads
        )
        if head_dim % (axes * block):
            raise ValueError(
                f"head_dim must be a multiple of axes * block = {axes * block}, got {head_dim}: axes share the blocks"
            )
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Draw the generators anew."""
        nn.init.normal_(self.generators, std=self.init_std)

    @torch.no_grad()
    def from_official(self, freqs: Tensor) -> ComRoPEAP:
        """Take over one layer's ``freqs`` ``(heads, 1, blocks, block, block)`` of the authors' code."""
        _take(self.generators, "freqs", freqs, freqs.squeeze(1))
        return self

    def _times(self, like: Tensor) -> Tensor:
        blocks = self.generators.shape[1]
        reads = [float(block % self.axes == axis) for axis in range(self.axes) for block in range(blocks)]
        return constant(reads, like.dtype, like.device).view(1, self.axes, blocks)


class ComRoPELD(_ComRoPE):
    """ComRoPE with linearly dependent generators: each block is rotated by a sum of all coordinates; one per layer.

    Args:
        head_dim: width of a head, a multiple of ``block``.
        num_heads: query heads.
        num_kv_heads: key heads, default ``num_heads``; must divide it. Queries share the rotations of their key.
        axes: coordinates of a position.
        block: channels that a generator mixes, even. Blocks of 2 cost what RoPE costs.
        init_std: standard deviation of P at first.
        per_head: whether heads have multipliers of their own.
        device, dtype: of the parameters, as in torch.nn.

    Attributes:
        generators: the parameter P ``(num_kv_heads, blocks, block, block)``.
        multiplier: the parameter ``(num_kv_heads if per_head else 1, axes, blocks)``.

    Raises:
        ValueError: for a head that blocks do not fit, an odd block, heads that do not divide, a negative init_std.

    >>> from posenc.positions import centred, grid
    >>> rope, positions = ComRoPELD(64, num_heads=8), centred(grid(4, 6), (4, 6))
    >>> q, k = torch.randn(2, 1, 8, 24, 64)
    >>> rope(q, k, positions, positions)[0].shape
    torch.Size([1, 8, 24, 64])
    """

    def __init__(
        self,
        head_dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        axes: int = 2,
        block: int = 8,
        init_std: float = 1.0,
        per_head: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            head_dim, num_heads=num_heads, axes=axes, block=block, init_std=init_std, num_kv_heads=num_kv_heads
        )
        self.per_head = check_flag("per_head", per_head)
        multiplied = self.num_kv_heads if self.per_head else 1
        self.multiplier = nn.Parameter(torch.empty(multiplied, axes, head_dim // block))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Draw generators and multipliers anew."""
        nn.init.normal_(self.generators, std=self.init_std)
        nn.init.normal_(self.multiplier)

    @torch.no_grad()
    def from_official(self, freqs: Tensor, multiplier: Tensor) -> ComRoPELD:
        """Take over one layer's ``freqs`` (see `ComRoPEAP`) and ``multiplier`` ``(1, axes, blocks, 1, 1)``."""
        _take(self.generators, "freqs", freqs, freqs.squeeze(1))
        _take(self.multiplier, "multiplier", multiplier, multiplier.squeeze(-1).squeeze(-1))
        return self

    def head_axes(self) -> dict[str, HeadAxis]:
        return super().head_axes() | ({"multiplier": KEYS} if self.per_head else {})

    def _times(self, like: Tensor) -> Tensor:
        return self.multiplier.to(like.device, like.dtype)


def _take(parameter: Tensor, name: str, official: Tensor, converted: Tensor) -> None:
    """Copy converted weights into a parameter; a ValueError where shapes differ."""
    if converted.shape != parameter.shape:
        raise ValueError(f"{name} must hold {tuple(parameter.shape)}, got {tuple(official.shape)}")
    parameter.copy_(converted)


def _block_of_each_axis(shape: Shape) -> dict[str, object]:
    """The largest block up to the authors' 8 of which every axis gets equally many."""
    axes = shape.get("axes", 2)
    return _largest_block(shape, axes if isinstance(axes, int) else 2)


def _largest_block(shape: Shape, axes: int = 1) -> dict[str, object]:
    """The largest block up to the authors' 8 that fills a head."""
    width = shape.get("head_dim")
    if not isinstance(width, int):
        return {}
    return {"block": next((block for block in (8, 4, 2) if width % (axes * block) == 0), 8)}


ENTRIES = (
    Entry(
        name="comrope_ap",
        encoding=ComRoPEAP,
        title="ComRoPE-AP: learned rotations of blocks, each along one coordinate",
        formula="q, k ← R(p) q, R(p) k,  block j rotated by exp(p_axis(j) (P_j − P_jᵀ)),  axis(j) = j mod axes",
        source="Yu et al., arXiv 2506.03737, section on the method",
        parameters="key heads × head_dim × block per layer, of which (block − 1)/2 of block count",
        cost="a rotation of q and k, and two matrix products per head, for each layer",
        past_training="angles never seen in training; coordinates within the training range are interpolated",
        reads="distances",
        extension="coordinates rescaled to the training range",
        used_in="its paper's own models; no other is known to us",
        avoid="on a checkpoint that cannot be trained further; axial RoPE needs no parameters and no matrix products",
        defaults=_block_of_each_axis,
    ),
    Entry(
        name="comrope_ld",
        encoding=ComRoPELD,
        title="ComRoPE-LD: learned rotations of blocks, each along a learned sum of the coordinates",
        formula="q, k ← R(p) q, R(p) k,  block j rotated by exp((Σ_axis multiplier_j,axis p_axis) (P_j − P_jᵀ))",
        source="Yu et al., arXiv 2506.03737, section on the method",
        parameters="key heads × head_dim × block per layer, and axes × blocks multipliers",
        cost="a rotation of q and k, and two matrix products per head, for each layer",
        past_training="angles never seen in training; coordinates within the training range are interpolated",
        reads="distances",
        extension="coordinates rescaled to the training range",
        used_in="its paper's own models; no other is known to us",
        avoid="on a checkpoint that cannot be trained further; axial RoPE needs no parameters and no matrix products",
        defaults=_largest_block,
    ),
)
