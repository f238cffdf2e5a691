"""T5's buckets along several axes: a learned number for the bucket of the difference of each coordinate, added up.

    b_h(p_i, p_j) = bias_scale · Σ_a table_a[ bucket_a(n_a), h ],   n_a = trunc(factor_a · (p_j,a − p_i,a))
    bucket(n) = [n > 0] · half + |n|                                                                 |n| < exact
    bucket(n) = [n > 0] · half + exact + floor( log(|n|/exact) / log(max_distance/exact) · (half − exact) ),   at most
                                 half − 1 behind [n > 0] · half

half = buckets/2, exact = half/2, each axis its own. p in units of the page, such as thousandths (LayoutLM), or from 0
to 1 with a factor of 100 (UDOP); trunc cuts towards 0. Distances from max_distance on share a bucket a direction, so a
larger page meets no unseen one. Tokens without a place have the bias 0.
LayoutLMv2 adds the bias to scaled scores: bias_scale 1. LayoutLMv3 divides it by √head_dim, so its tables act by that
much less: bias_scale = head_dim^−0.5. UDOP scales neither q·k nor the bias: attention(..., scale=1.0), bias_scale 1.
Both also have buckets of the place in the text: that is one more axis, with its own number of buckets.
Source: Xu et al., LayoutLMv2, arXiv 2012.14740, section 2.1; Huang et al., LayoutLMv3, arXiv 2204.08387, section 2.1;
    Tang et al., UDOP, arXiv 2212.02623, section 3.1.
Checked against: transformers' LayoutLMv2Encoder, LayoutLMv3Encoder and LayoutLMv3's buckets, UDOP's
    RelativePositionBiasAggregated.
Departs from the source: buckets come from exact integer comparisons rather than float logarithms (as in `T5Bias`); the
    tables have gradients in every call, those of LayoutLM have none, as its look-up is under no_grad.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from posenc.arguments import LONGEST, MOST_AXES, check_heads, check_number, check_table, check_whole, shown
from posenc.bias.offset import OffsetBias
from posenc.bias.t5 import MOST_BUCKETS, bucket_starts
from posenc.constants import constant
from posenc.dtypes import precision
from posenc.encoding import float64_if_supported
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import HeadAxis

T = TypeVar("T", int, float)


class T5GridBias(OffsetBias):
    """The relative bias of documents: T5's buckets of the differences along each axis, one table an axis.

    Args:
        num_heads: query heads.
        axes: coordinates of a position.
        num_buckets: rows of an axis' table, even, at least 4: one number, or one an axis. LayoutLM: 64 for x and y
            (``rel_2d_pos_bins``), 32 for the place in the text (``rel_pos_bins``).
        max_distance: differences from here on share a bucket; one number, or one an axis. LayoutLM: 256 for x and y
            (``max_rel_2d_pos``), 128 for the place in the text (``max_rel_pos``).
        factor: on differences before they are cut to whole numbers, above 0; one number, or one an axis.
        bias_scale: factor on the sum of the tables.
        init_std: standard deviation of the initial tables, normal.
        device, dtype: of the parameters, as in torch.nn.

    The tables of all axes, one behind another, are the parameter ``weight`` (Σ buckets, num_heads); `tables` are its
    parts, UDOP's ``relative_attention_bias.weight``, and LayoutLM's ``rel_pos_x_bias.weight`` transposed.
    All layers share it: pass the same module to each.

    Raises:
        ValueError: for sizes below 1, buckets or distances for which the formula has no meaning, several numbers that
            are not one an axis.

    >>> bias = T5GridBias(12, axes=3, num_buckets=(32, 64, 64), max_distance=(128, 256, 256))
    >>> places = torch.tensor([[0, 71, 40], [1, 160, 41], [2, 71, 95]])  # place in the text, x and y of words
    >>> bias(places, places).shape
    torch.Size([12, 3, 3])
    """

    lr_multiplier = 30.0

    def __init__(
        self,
        num_heads: int,
        *,
        axes: int = 2,
        num_buckets: int | Sequence[int] = 64,
        max_distance: int | Sequence[int] = 256,
        factor: float | Sequence[float] = 1.0,
        bias_scale: float = 1.0,
        init_std: float = 0.02,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads("num_heads", num_heads)
        check_whole("axes", axes, most=MOST_AXES)
        check_number("bias_scale", bias_scale)
        check_number("init_std", init_std, least=0)
        self.num_heads, self.axes, self.bias_scale, self.init_std = num_heads, axes, bias_scale, init_std
        self.num_buckets = _one_per_axis("num_buckets", num_buckets, axes)
        self.max_distance = _one_per_axis("max_distance", max_distance, axes)
        self.factor = _one_per_axis("factor", factor, axes)
        for buckets, longest in zip(self.num_buckets, self.max_distance, strict=True):
            _check_buckets(buckets, longest)
        for each_factor in self.factor:
            check_number("factor", each_factor, above=0)
        check_table("num_buckets and num_heads", sum(self.num_buckets), num_heads)
        each = zip(self.num_buckets, self.max_distance, strict=True)
        self._starts = tuple(tuple(bucket_starts(buckets // 2, longest)) for buckets, longest in each)
        self.weight = nn.Parameter(torch.empty(sum(self.num_buckets), num_heads))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Draw the tables anew: normal."""
        nn.init.normal_(self.weight, std=self.init_std)

    def head_axes(self) -> dict[str, HeadAxis]:
        return {"weight": HeadAxis(1)}

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """The part of ``weight`` of each axis, ``(buckets, num_heads)``."""
        return torch.split(self.weight, list(self.num_buckets))

    def bucket(self, distance: Tensor, axis: int) -> Tensor:
        """The row of an axis' table for each ``distance = p_key − p_query`` along it; int64, same shape."""
        if self.factor[axis] != 1 or distance.is_floating_point():
            wide = distance if distance.is_floating_point() else distance.to(float64_if_supported(distance.device))
            distance = (wide * self.factor[axis]).trunc()
        starts = constant(self._starts[axis], distance.dtype, distance.device)
        row = torch.bucketize(distance.abs(), starts, right=True) - 1
        return row + (distance > 0) * (self.num_buckets[axis] // 2)

    def of_offset(self, offset: Tensor) -> Tensor:
        dtype = precision(offset, self.weight)
        total = torch.zeros((), dtype=dtype, device=offset.device)
        for axis, table in enumerate(self.tables):
            total = total + nn.functional.embedding(self.bucket(-offset[..., axis], axis), table.to(dtype))
        return (total * self.bias_scale).movedim(-1, 0)

    def extra_repr(self) -> str:
        scale = "" if self.bias_scale == 1 else f", bias_scale={self.bias_scale:g}"
        buckets = f"num_buckets={self.num_buckets}, max_distance={self.max_distance}"
        return f"{self.num_heads}, axes={self.axes}, {buckets}, factor={self.factor}{scale}"


def _one_per_axis(name: str, value: T | Sequence[T], axes: int) -> tuple[T, ...]:
    """One number an axis, as given or the same for all."""
    several = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    values = tuple(cast(Sequence[T], value)) if several else (cast(T, value),) * axes
    if len(values) != axes:
        raise ValueError(f"{name} must be one number, or one for each of {axes} axes, got {shown(value)}")
    return values


def _check_buckets(buckets: int, longest: int) -> None:
    """Raise a ValueError unless the formula has a meaning for them."""
    check_whole("num_buckets", buckets, most=MOST_BUCKETS)
    check_whole("max_distance", longest, most=LONGEST)
    if buckets % 2 or buckets < 4:
        raise ValueError(f"num_buckets must be even and at least 4, got {buckets}")
    if longest <= buckets // 4:
        raise ValueError(
            f"max_distance must be above {buckets // 4}, the distances that have a bucket each, got {longest}; "
            "smaller num_buckets allow a smaller one"
        )


ENTRY = Entry(
    name="t5_grid",
    encoding=T5GridBias,
    title="T5's buckets along several axes, as in LayoutLM and UDOP",
    formula="s_ij ← s_ij + Σ_axis table_axis[bucket(p_j − p_i), h]",
    source="Xu et al., arXiv 2012.14740, section 2.1",
    parameters="num_buckets × heads per axis, shared by all layers",
    cost="one lookup per axis for every query and key; its gradient",
    past_training="all differences from max_distance on share one bucket per axis and direction",
    reads="distances",
    extension="none needed by its definition; far keys share the last bucket",
    used_in="LayoutLMv2 (arXiv 2012.14740); UDOP (arXiv 2212.02623)",
    avoid="where a bias must depend on row and column jointly: it is a sum over axes",
)
