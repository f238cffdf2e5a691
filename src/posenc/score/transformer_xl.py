"""Transformer-XL's relative positions: learned projections of sinusoids of the distance, and two learned queries.

    r_n = sin n·theta_0, sin n·theta_1, … | cos n·theta_0, cos n·theta_1, …,     theta_m = base^(−2m / dim)
    s_ij ← scale · ( (q_i + u) · k_j + (q_i + v) · W r_n ),                      n = p_i − p_j

p positions in tokens, theta radians per token; u, v (num_heads, head_dim), W (num_heads · head_dim, dim). With `clamp`,
n is limited to ±clamp. With `learned_distances` the second product is q_i · e[n] + f[n], from tables with rows
0 … learned_distances − 1; farther keys share the last row. Past the training length a model meets waves in phases that
it has never seen; clamp, which the source uses in evaluation only, keeps it to seen ones.
Source: Dai et al., Transformer-XL, arXiv 1901.02860, section 3.3; the tables are attn_type 1 of the authors' code.
    XLNet, arXiv 1906.08237, section 2.2, has the same for keys on both sides, where n is negative after the query.
Checked against: kimiyoung/transformer-xl's RelPartialLearnableMultiHeadAttn and RelLearnableMultiHeadAttn (without and
    with memory); transformers' XLNetRelativeAttention.
Departs from the source: nothing in the formula. It shares u and v among all layers and gives each a W of its own; here
    each instance has its own u and v, unless ``second.u, second.v = first.u, first.v``. Rows of e and f start at
    distance 0, theirs end there. W r_n is never formed: y_i = (q_i + v) W meets the waves of p_i − p_j as waves of p_i
    and of p_j, by the addition theorem, which serves any positions and spares a decoding step the projection of all
    distances.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc.arguments import LONGEST, check_heads, check_number, check_table, check_whole
from posenc.encoding import Context, Reads, ScoreEncoding
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.frequencies.host import check_base, geometric
from posenc.frequencies.phase import Frequencies, angles, cos_sin, working_dtype
from posenc.head_shares import QUERIES, HeadAxis
from posenc.score._inputs import check_width
from posenc.structure import Column, Structure, Vectors


class TransformerXL(ScoreEncoding):
    """Relative position encoding of Transformer-XL and, in bidirectional attention, of XLNet.

    Args:
        dim: channels of the waves, even; the model's width in the source.
        num_heads: query heads.
        head_dim: width of a head, default ``dim // num_heads``.
        base: wavelengths run from 2π to about 2π · base tokens.
        clamp: tokens; longer distances, either way, count as this one. None: no limit.
        learned_distances: learned vectors instead of waves, W and v, for this many distances from 0 on; keys
            after the query count as distance 0. Needs integer positions.
        init_std: standard deviation of the initial parameters.
        device, dtype: of the parameters, as in torch.nn.

    Queries and keys are read before any rotation of the list, so that u and v remain relative next to a rotation.

    Raises:
        ValueError: at construction for sizes below 1, an odd dim, a base not above 1, clamp with learned
            distances; at a call for another ``head_dim``, or fractional positions with learned distances.

    >>> from posenc import attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [TransformerXL(512, num_heads=8)]).shape
    torch.Size([1, 8, 16, 64])
    """

    reads = Reads(rotated=False, unrotated=True)
    lr_multiplier = 10.0
    shared_by_layers = False

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        head_dim: int | None = None,
        base: float = 10_000.0,
        clamp: int | None = None,
        learned_distances: int | None = None,
        init_std: float = 0.02,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_heads("num_heads", num_heads)
        check_number("init_std", init_std, least=0)
        if dim % 2:
            raise ValueError(f"dim must be even, a sine and a cosine for each frequency, got {dim}")
        if head_dim is None and dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads = {num_heads}, got {dim}; or give head_dim")
        head_dim = dim // num_heads if head_dim is None else head_dim
        check_whole("head_dim", head_dim)
        for name, size in (("clamp", clamp), ("learned_distances", learned_distances)):
            if size is not None:
                check_whole(name, size, most=LONGEST)
        check_table(
            "num_heads and head_dim", num_heads, head_dim, dim if learned_distances is None else learned_distances
        )
        if clamp is not None and learned_distances is not None:
            raise ValueError("clamp and learned_distances must not both be given: a table ends at its last row")
        check_base(base)
        self.dim, self.num_heads, self.head_dim, self.base = dim, num_heads, head_dim, base
        self.clamp, self.learned_distances, self.init_std = clamp, learned_distances, init_std
        self._frequencies = Frequencies(geometric(dim, base))
        self.u = nn.Parameter(torch.empty(num_heads, head_dim))
        self.v: nn.Parameter | None = None
        self.weight: nn.Parameter | None = None  # W, the source's r_net
        self.table: nn.Parameter | None = None  # e, the source's r_emb
        self.table_bias: nn.Parameter | None = None  # f, the source's r_bias
        if learned_distances is None:
            self.v = nn.Parameter(torch.empty(num_heads, head_dim))
            self.weight = nn.Parameter(torch.empty(num_heads * head_dim, dim))
        else:
            self.table = nn.Parameter(torch.empty(learned_distances, num_heads, head_dim))
            self.table_bias = nn.Parameter(torch.empty(learned_distances, num_heads))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Draw all parameters anew: normal, the biases of learned distances zero."""
        for parameter in (self.u, self.v, self.weight, self.table):
            if parameter is not None:
                nn.init.normal_(parameter, std=self.init_std)
        if self.table_bias is not None:
            nn.init.zeros_(self.table_bias)

    def head_axes(self) -> dict[str, HeadAxis]:
        projected = {"u": QUERIES, "v": QUERIES, "weight": QUERIES}
        learned = {"u": QUERIES, "table": HeadAxis(1), "table_bias": HeadAxis(1)}
        return projected if self.table is None else learned

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        q = context.q_content
        content = self._content_bias(context, q.dtype).unsqueeze(2)
        by_distance = self._by_wave(q, context) if self.table is None else self._by_table(q, context)
        changed: Tensor = scores + (content + by_distance) * context.scale
        return changed

    def _content_bias(self, context: Context, dtype: torch.dtype) -> Tensor:
        """u · k_j, ``(batch, heads, keys)``."""
        q, k = context.q_content, context.k_content.to(dtype)
        check_width(self, self.head_dim, q)
        u_by_key_head = self.u.to(dtype).view(k.shape[1], -1, self.head_dim)  # query heads of one key head together
        return (u_by_key_head @ k.mT).flatten(1, 2)

    def structure(self, context: Context, *, future: bool) -> tuple[Structure, ...] | None:
        wide = torch.promote_types(context.q.dtype, torch.float32)
        content = None if context.q_content is context.q else context.q_content.to(wide)
        column = Column(self._content_bias(context, wide) * context.scale)
        if self.v is None or self.weight is None:
            return None  # the bias of each distance is a table of its own: no kind above holds both
        queries, keys = context.q.shape[2], context.k.shape[2]
        first, last = -(queries - 1), keys - 1
        if not future:  # a few rows that nobody sees spare tiles a copy
            first = max(first, -63)
        if self.clamp is not None:
            first, last = max(first, -self.clamp), min(last, self.clamp)
        distance = torch.arange(first, last + 1, device=context.q.device)
        rows = torch.cat(self._waves(distance, column.values), -1).unsqueeze(0)
        weight = self.weight.to(wide).view(self.num_heads, self.head_dim, self.dim)
        return column, Vectors(rows, first, content, self.v.to(wide), weight)

    def _by_wave(self, q: Tensor, context: Context) -> Tensor:
        """(q_i + v) · W r_n, ``(batch, heads, queries, keys)``."""
        if self.v is None or self.weight is None:
            raise RuntimeError("no waves here, but learned distances")
        w = self.weight.to(q.dtype).view(self.num_heads, self.head_dim, self.dim)
        # sin and cos of a difference are sums of products at q_pos and k_pos: the query is rotated by its own position,
        # and one product with waves at keys gives all distances, without a tensor (queries, keys, dim)
        sines, cosines = ((q + self.v.to(q.dtype).unsqueeze(-2)) @ w).chunk(2, -1)  # y of each wave
        sin, cos = (wave.unsqueeze(-3) for wave in self._waves(context.q_pos, q))
        rotated = torch.cat([cosines * sin - sines * cos, sines * sin + cosines * cos], -1)
        at_keys = torch.cat(self._waves(context.k_pos, q), -1)
        result = (rotated.flatten(1, 2) @ at_keys.mT).view(*q.shape[:3], -1)
        if self.clamp is None:
            return result
        # past the clamp all keys on a side are at one distance: cos is even in it, sin odd
        distance = (context.q_pos.unsqueeze(-1) - context.k_pos.unsqueeze(-2)).unsqueeze(-3)
        sin, cos = self._waves(torch.full((1,), self.clamp, device=q.device), q)
        even, odd = (cosines * cos).sum(-1, keepdim=True), (sines * sin).sum(-1, keepdim=True)
        result = torch.where(distance > self.clamp, even + odd, result)
        return torch.where(distance < -self.clamp, even - odd, result)

    def _waves(self, positions: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """sin and cos of positions, ``(*batch, tokens, dim / 2)`` each."""
        angle = angles(positions.to(like.device), self._frequencies, working_dtype(like.dtype, like.device))
        cos, sin = cos_sin(angle, like.dtype)
        return sin, cos

    def _by_table(self, q: Tensor, context: Context) -> Tensor:
        """q_i · e[n] + f[n], ``(batch, heads, queries, keys)``."""
        if self.table is None or self.table_bias is None:
            raise RuntimeError("no learned distances here, but waves")
        if context.q_pos.is_floating_point() or context.k_pos.is_floating_point():
            raise ValueError("q_pos and k_pos must be integers for learned_distances: a table has no rows between rows")
        rows = len(self.table)
        by_row = q @ self.table.to(q.dtype).permute(1, 2, 0) + self.table_bias.to(q.dtype).T.unsqueeze(1)
        distance = context.q_pos.unsqueeze(-1) - context.k_pos.unsqueeze(-2)
        return by_row.gather(-1, distance.clamp(0, rows - 1).unsqueeze(-3).expand(*q.shape[:3], -1))

    def extra_repr(self) -> str:
        form = f"base={self.base:g}, clamp={self.clamp}"
        if self.learned_distances is not None:
            form = f"learned_distances={self.learned_distances}"
        return f"{self.dim}, num_heads={self.num_heads}, head_dim={self.head_dim}, {form}"


ENTRY = Entry(
    name="transformer_xl",
    encoding=TransformerXL,
    title="Transformer-XL's relative positions",
    formula="s_ij ← scale · ((q_i + u)·k_j + (q_i + v)·W r_(p_i − p_j)),  r sinusoids of the distance",
    source="Dai et al., arXiv 1901.02860, section 3.3",
    parameters="(dim + 2) × heads · head_dim per layer",
    cost="one product of q with W, one with waves over all logits",
    past_training="waves at phases never seen in training, unless distances are clamped",
    reads="distances and content",
    extension="distances clamped to the training range",
    used_in="Transformer-XL (arXiv 1901.02860); XLNet (arXiv 1906.08237)",
    avoid="where a second projection of the size of the key projection is too expensive per layer",
)
