"""Shaw's relative position representations: learned vectors of the clipped distance, added to keys and values.

    r_ij = clip(p_j − p_i, −max_distance, max_distance)
    s_ij ← s_ij + scale · q_i · key_table[r_ij]
    o_i  ← o_i  + Σ_j a_ij · value_table[r_ij]

p integer positions in tokens; tables (2 · max_distance + 1, head_dim), row max_distance is distance 0, shared by the
heads of a layer and separate for each layer. All distances beyond max_distance look alike, so past the training length
nothing unseen appears once max_distance lies below it.
Source: Shaw et al., Self-Attention with Relative Position Representations, arXiv 1803.02155, eq. 3 and 4.
Checked against: tensor2tensor's dot_product_attention_relative (full, causal, cached).
Departs from the source: nothing; fractional distances are refused, as a table has no rows between rows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc.arguments import LONGEST, check_flag, check_number, check_table, check_whole
from posenc.dtypes import float64_if_supported
from posenc.encoding import Context, ScoreEncoding
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.score._inputs import check_width
from posenc.structure import Vectors


class Shaw(ScoreEncoding):
    """Relative position representations for keys and values.

    Args:
        head_dim: width of a query head.
        max_distance: tokens; longer distances are clipped to it.
        values: whether values get a table too, as in the paper (later work often leaves it out).
        value_dim: width of a value head, default ``head_dim``.
        init_std: standard deviation of the initial tables.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: at construction for sizes below 1; at a call for fractional positions or another head width.

    >>> shaw = Shaw(64, max_distance=16)
    >>> shaw.key_table.shape
    torch.Size([33, 64])
    """

    lr_multiplier = 10.0
    shared_by_layers = False

    def __init__(
        self,
        head_dim: int,
        *,
        max_distance: int,
        values: bool = True,
        value_dim: int | None = None,
        init_std: float = 0.02,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        value_dim = head_dim if value_dim is None else value_dim
        check_whole("head_dim", head_dim)
        check_whole("max_distance", max_distance, most=LONGEST)
        check_whole("value_dim", value_dim)
        check_number("init_std", init_std, least=0)
        check_table("max_distance and head_dim", 2 * max_distance + 1, max(head_dim, value_dim))
        self.head_dim, self.value_dim, self.max_distance, self.init_std = head_dim, value_dim, max_distance, init_std
        rows = 2 * max_distance + 1
        self.key_table = nn.Parameter(torch.empty(rows, head_dim))
        self.value_table = nn.Parameter(torch.empty(rows, value_dim)) if check_flag("values", values) else None
        self.reset_parameters()
        place_parameters(self, device, dtype)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        """A quarter of the training length, so that the last rows are trained often."""
        return {"max_distance": max(1, train_length // 4)}

    def reset_parameters(self) -> None:
        """Draw the tables anew: normal."""
        for table in (self.key_table, self.value_table):
            if table is not None:
                nn.init.normal_(table, std=self.init_std)

    def _rows(self, context: Context) -> Tensor:
        """The row of the tables for each query and key, ``(*batch, queries, keys)``, with an axis for heads."""
        if context.q_pos.is_floating_point() or context.k_pos.is_floating_point():
            raise ValueError("q_pos and k_pos must be integers for Shaw: a table has no rows between rows")
        distance = context.k_pos.unsqueeze(-2) - context.q_pos.unsqueeze(-1)
        return (distance.clamp(-self.max_distance, self.max_distance) + self.max_distance).unsqueeze(-3)

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        self._check(context)
        by_row = context.q @ self.key_table.to(context.q.dtype).T * context.scale  # (batch, heads, queries, rows)
        return scores + by_row.gather(-1, self._rows(context).expand_as(scores))

    def structure(self, context: Context, *, future: bool) -> tuple[Vectors]:
        self._check(context)
        if self.value_table is not None and context.v.shape[-1] != self.value_dim:
            raise ValueError(f"value_dim of Shaw is {self.value_dim}, but v has width {context.v.shape[-1]}")
        wide = torch.promote_types(context.q.dtype, torch.float32)
        first = -self.max_distance if future else 0
        past = slice(0, self.max_distance + 1 - first)
        rows = self.key_table[past].to(wide).flip(0).unsqueeze(0)  # by growing distance to the past
        values = None if self.value_table is None else self.value_table[past].to(wide).flip(0)
        return (Vectors(rows, first, values=values),)

    def _check(self, context: Context) -> None:
        check_width(self, self.head_dim, context.q)

    def output(self, weights: Tensor, context: Context) -> Tensor | None:
        if self.value_table is None:
            return None
        rows = self._rows(context).expand_as(weights)
        # The clipped distances of a long text share one row of the table: thousands of weights are added one by one,
        # and in float32 what each sum drops has the same sign.
        wide = float64_if_supported(weights.device)
        mass = weights.new_zeros(*weights.shape[:-1], len(self.value_table), dtype=wide)
        return mass.scatter_add(-1, rows, weights.to(wide)).to(weights.dtype) @ self.value_table.to(weights.dtype)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, max_distance={self.max_distance}, values={self.value_table is not None}"


ENTRY = Entry(
    name="shaw",
    encoding=Shaw,
    title="Shaw's relative position representations",
    formula="s_ij ← s_ij + scale · q_i·key_table[r],  o_i ← o_i + Σ_j a_ij value_table[r],  r = clip(p_j − p_i)",
    source="Shaw et al., arXiv 1803.02155, eq. 3 and 4",
    parameters="2 × (2·max_distance + 1) × head_dim per layer",
    cost="one product of q with the table, one gather over all logits",
    past_training="all distances beyond max_distance share one vector",
    reads="distances and content",
    extension="none needed by its definition; far keys share the last vector",
    used_in="Music Transformer (arXiv 1809.04281)",
    avoid="where distances beyond max_distance must be told apart: they share one vector",
    exempt={"fractional_positions": "a table has no rows between rows"},
)
