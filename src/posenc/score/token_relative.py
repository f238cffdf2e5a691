"""A bias by distance that the query's token chooses: each token mixes learned profiles over the distance.

    r_i = W x_i                                       relative_dim numbers a head, of the query's token
    s_ij ← s_ij + r_i · P[n],   n = p_i − p_j         for 0 ≤ n < max_distance; others get nothing

x the layer's input; W (num_heads · relative_dim, dim); P (relative_dim, max_distance), one for all heads; p integer
positions in tokens. Not scaled: r is no query. A temperature behind it in the list multiplies it too, as in the source.
Past the training length nothing unseen appears where max_distance lies below that.
Source: Inkling and Inkling 2 in transformers 5.23 (InklingRelativeLogits), without a paper; of the kind of Shaw et al.,
    arXiv 1803.02155, eq. 3.
Checked against: that module and its attention, whole texts and decoding.
Departs from the source: nothing; r_proj and rel_logits_proj.proj are here weight and profiles.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc.arguments import LONGEST, check_heads, check_number, check_table, check_whole
from posenc.encoding import Context, Reads, ScoreEncoding
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import QUERIES, HeadAxis
from posenc.score._inputs import token_state_of, wide_linear
from posenc.structure import Vectors


class TokenRelativeBias(ScoreEncoding):
    """A bias by distance whose profile the query's token mixes. It needs the layer's input: ``attention(..., x=x)``.

    Args:
        dim: width of the layer's input.
        num_heads: query heads.
        max_distance: tokens; keys at this distance and farther get no bias.
        relative_dim: profiles that a token mixes.
        init_std: standard deviation of the initial profiles and weights.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: at construction for sizes below 1; at a call without x or token_states, for x of another width, and
            for fractional positions.

    >>> from posenc import attention
    >>> x, (q, k, v) = torch.randn(1, 16, 512), torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [TokenRelativeBias(512, num_heads=8, max_distance=8)], x=x).shape
    torch.Size([1, 8, 16, 64])
    """

    reads = Reads(rotated=False, own_key=True)
    lr_multiplier = 10.0
    shared_by_layers = False

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_distance: int,
        relative_dim: int = 16,
        init_std: float = 0.02,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_heads("num_heads", num_heads)
        check_whole("max_distance", max_distance, most=LONGEST)
        check_whole("relative_dim", relative_dim)
        check_number("init_std", init_std, least=0)
        check_table("num_heads, relative_dim and dim", num_heads, relative_dim, dim)
        check_table("max_distance and relative_dim", max_distance, relative_dim)
        self.dim, self.num_heads, self.max_distance, self.relative_dim = dim, num_heads, max_distance, relative_dim
        self.init_std = init_std
        self.weight = nn.Parameter(torch.empty(num_heads * relative_dim, dim))
        self.profiles = nn.Parameter(torch.empty(relative_dim, max_distance))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        """Half of the training length, so that the last rows are trained often."""
        return {"max_distance": max(1, train_length // 2)}

    def reset_parameters(self) -> None:
        """Draw weights and profiles anew: normal."""
        nn.init.normal_(self.weight, std=self.init_std)
        nn.init.normal_(self.profiles, std=self.init_std)

    def head_axes(self) -> dict[str, HeadAxis]:
        return {"weight": QUERIES}

    def token_state(self, x: Tensor) -> Tensor:
        """r of each token, ``(batch, heads, tokens, relative_dim)``, in float32 or better."""
        mixed = wide_linear(x, self.weight)
        return mixed.view(*x.shape[:2], self.num_heads, self.relative_dim).transpose(1, 2)

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        if context.q_pos.is_floating_point() or context.k_pos.is_floating_point():
            raise ValueError("q_pos and k_pos must be integers for TokenRelativeBias: a table has no rows between rows")
        by_distance = self._profile_weights(context, scores.dtype) @ self.profiles.to(scores.dtype)
        distance = (context.q_pos.unsqueeze(-1) - context.k_pos.unsqueeze(-2)).unsqueeze(-3)
        rows = distance.clamp(0, self.max_distance - 1).expand(*scores.shape)
        near = (distance >= 0) & (distance < self.max_distance)
        return scores + torch.where(near, by_distance.gather(-1, rows), 0.0)

    def structure(self, context: Context, *, future: bool) -> tuple[Vectors] | None:
        if context.scale == 0:  # which vectors of the distance are multiplied with
            return None
        wide = torch.promote_types(context.q.dtype, torch.float32)
        rows = nn.functional.pad(self.profiles.to(wide).T, (0, 0, 1 if future else 0, 1))  # nothing before and after
        content = self._profile_weights(context, wide) / context.scale
        return (Vectors(rows.unsqueeze(0), -1 if future else 0, content),)

    def _profile_weights(self, context: Context, dtype: torch.dtype) -> Tensor:
        """r of the queries, which are the last of the keys, ``(batch, heads, queries, relative_dim)``."""
        token_states = token_state_of("TokenRelativeBias", context, (self.num_heads, self.relative_dim), dtype)
        queries, keys = context.q.shape[2], context.k.shape[2]
        if queries <= keys:
            return token_states[:, :, keys - queries :]
        own_key = torch.arange(keys - queries, keys, device=token_states.device).clamp(min=0)
        return token_states.index_select(2, own_key)

    def extra_repr(self) -> str:
        sizes = f"max_distance={self.max_distance}, relative_dim={self.relative_dim}"
        return f"{self.dim}, num_heads={self.num_heads}, {sizes}"


ENTRY = Entry(
    name="token_relative",
    encoding=TokenRelativeBias,
    title="A distance bias that the query's token mixes from learned profiles",
    formula="s_ij ← s_ij + (W x_i)_h · P[p_i − p_j],  for distances of 0 … max_distance − 1",
    source="Inkling in transformers 5.23, of the kind of Shaw et al., arXiv 1803.02155",
    parameters="dim × heads · relative_dim + relative_dim × max_distance per layer",
    cost="one small projection; relative_dim numbers per head and token in the cache",
    past_training="far keys get no bias",
    reads="distances and content",
    extension="none of its own",
    used_in="Inkling (as in transformers 5.23)",
    avoid="where order matters beyond max_distance: those keys get no bias",
    exempt={"fractional_positions": "a table has no rows between rows"},
)
