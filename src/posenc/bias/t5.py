"""T5's relative bias: one learned number per head and per bucket of distances; far distances share buckets.

    b_h(p_i, p_j) = scale · table[bucket(p_j − p_i), h]
    bucket(n) = n                                                                   n < exact
    bucket(n) = exact + floor( log(n/exact) / log(max_distance/exact) · (buckets − exact) )   up to buckets − 1

n = p_i − p_j for keys of the past, 0 for keys after the query (one bucket for the whole future); bidirectional: half of
the buckets for each direction. exact = buckets/2. Distances from max_distance on share the last bucket, so a model
meets no unseen bucket past its training length if max_distance lies well below it; otherwise it fails there.
Source: Raffel et al., T5, arXiv 1910.10683, section 2.1; the authors' mesh_tensorflow transformer code.
Checked against: transformers' T5Attention._relative_position_bucket and compute_bias.
Departs from the source: buckets come from exact integer comparisons rather than float logarithms, which give the same
    buckets. T5 does not scale q·k by 1/√head_dim: pass attention(..., scale=1.0) for its checkpoints.
"""

from __future__ import annotations

import bisect

import torch
from torch import Tensor, nn

from posenc.arguments import LONGEST, check_flag, check_heads, check_number, check_whole
from posenc.bias.distance import DistanceBias
from posenc.constants import constant
from posenc.dtypes import precision
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import HeadAxis
from posenc.structure.lookup import Lookup, index_by_distance

MOST_BUCKETS = 2**12  # whose edges are powers of integers


def bucket_starts(buckets: int, max_distance: int) -> list[int]:
    """The first distance of each bucket of one direction; exact in integers.

    Bucket b > exact starts at the smallest n with (n/exact)^(buckets − exact) ≥ (max_distance/exact)^(b − exact).

    >>> bucket_starts(8, 20)
    [0, 1, 2, 3, 4, 6, 9, 14]
    """
    exact = buckets // 2
    wide = buckets - exact
    starts = list(range(exact + 1))
    for step in range(1, wide):
        edge = max_distance**step * exact ** (wide - step)
        starts.append(bisect.bisect_left(range(max_distance), edge, key=lambda n: n**wide))
    return starts


def _bucket(distance: Tensor, told: tuple[tuple[int, ...], int | None]) -> Tensor:
    """The bucket of each distance, told where buckets start, and the first of later keys if these have their own."""
    starts, later = told
    edges = constant(starts[1:], distance.dtype, distance.device)  # so many as lie below, or none
    if later is None:
        return torch.bucketize(-distance, edges, right=True)
    # looked up among exact starts: no logarithm, whose rounding would decide at the ends of buckets
    return torch.bucketize(distance.abs(), edges, right=True) + (distance > 0) * later


class T5Bias(DistanceBias):
    """Add a learned number per head and bucket of distances to the attention logits, as T5 does.

    Args:
        num_heads: query heads.
        num_buckets: rows of the table, even for bidirectional attention.
        max_distance: tokens; distances from here on share the last bucket.
        bidirectional: whether keys after the query have buckets of their own.
        bias_scale: factor on the table, for checkpoints that fold one in (x-transformers and NeoX: √head_dim).
        init_std: standard deviation of the initial table (T5: dim^−0.5).
        device, dtype: of the parameters, as in torch.nn.

    The table is ``weight`` (num_buckets, num_heads), as Hugging Face's ``relative_attention_bias.weight``.
    T5 shares one table among all layers: pass the same module to each.

    Raises:
        ValueError: for bucket counts or distances for which the formula has no meaning.

    >>> bias = T5Bias(8)
    >>> bias(torch.tensor([200]), torch.arange(201)).shape
    torch.Size([8, 1, 201])
    """

    lr_multiplier = 30.0

    def __init__(
        self,
        num_heads: int,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = False,
        bias_scale: float = 1.0,
        init_std: float = 0.02,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        bidirectional = check_flag("bidirectional", bidirectional)
        directions = 2 if bidirectional else 1
        check_heads("num_heads", num_heads)
        check_whole("num_buckets", num_buckets, most=MOST_BUCKETS)
        check_whole("max_distance", max_distance, most=LONGEST)
        check_number("bias_scale", bias_scale)
        check_number("init_std", init_std, least=0)
        if num_buckets % directions or num_buckets // directions < 2:
            raise ValueError(
                f"num_buckets must be at least {2 * directions}"
                f"{' and even' if bidirectional else ''}, got {num_buckets}"
            )
        exact = num_buckets // directions // 2
        if max_distance <= exact:
            raise ValueError(
                f"max_distance must be above {exact}, the distances that have a bucket each, got {max_distance}; "
                f"fewer buckets allow a smaller one"
            )
        self.causal_only = not bidirectional  # one bucket for the whole future tells nothing
        self.num_heads, self.num_buckets, self.max_distance = num_heads, num_buckets, max_distance
        self.bidirectional, self.bias_scale, self.init_std = bidirectional, bias_scale, init_std
        self._starts = tuple(bucket_starts(num_buckets // directions, max_distance))
        self.weight = nn.Parameter(torch.empty(num_buckets, num_heads))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        """Buckets up to half the training length, so that every bucket is trained; T5 has 32 for 128 tokens."""
        max_distance = max(2, train_length // 2)
        return {"max_distance": max_distance, "num_buckets": min(32, 2 * (max_distance // 2))}

    def reset_parameters(self) -> None:
        """Draw the table anew: normal."""
        nn.init.normal_(self.weight, std=self.init_std)

    def head_axes(self) -> dict[str, HeadAxis]:
        return {"weight": HeadAxis(1)}

    def bucket(self, distance: Tensor) -> Tensor:
        """The row of the table for each ``distance = p_key − p_query``; int64, same shape."""
        return _bucket(distance, (self._starts, self.num_buckets // 2 if self.bidirectional else None))

    def lookup(self, queries: int, keys: int, *, like: Tensor) -> Lookup:
        told = self._starts, self.num_buckets // 2 if self.bidirectional else None
        table = self.weight if self.bias_scale == 1 else self.weight * self.bias_scale
        return Lookup(table.mT, index_by_distance(_bucket, told, queries, keys, like.device))

    def of_distance(self, distance: Tensor) -> Tensor:
        rows = nn.functional.embedding(self.bucket(distance), self.weight.to(precision(distance, self.weight)))
        return (rows if self.bias_scale == 1 else rows * self.bias_scale).movedim(-1, 0)

    def extra_repr(self) -> str:
        return (
            f"{self.num_heads}, num_buckets={self.num_buckets}, max_distance={self.max_distance}, "
            f"bidirectional={self.bidirectional}"
        )


ENTRY = Entry(
    name="t5",
    encoding=T5Bias,
    title="T5 relative bias",
    formula="s_ij ← s_ij + table[bucket(p_j − p_i), h]",
    source="Raffel et al., arXiv 1910.10683, section 2.1",
    parameters="num_buckets × heads, one table for all layers",
    cost="one row of numbers per head; its gradient",
    past_training="all distances from max_distance on share one bucket",
    reads="distances",
    extension="none needed by its definition; far keys share the last bucket",
    used_in="T5 (arXiv 1910.10683); mT5 (arXiv 2010.11934)",
    avoid="where far distances must be told apart: beyond half of the buckets, ever more of them share one number",
)
