"""Stick-breaking: from the newest key back, each key takes its share of what later keys have left; no softmax.

    beta_ij = sigmoid(s_ij)
    a_ij = beta_ij · Π_{l > j} (1 − beta_il) = exp( logsigmoid(s_ij) + Σ_{l > j} logsigmoid(−s_il) )
    remainder_i = Π_l (1 − beta_il) = 1 − Σ_j a_ij

j and l run over the keys that query i may see, in the order of their indices, so keys must lie in the order of the
text; without attend_current, not over the query's own key. Hidden keys take nothing: padding on either side changes
nothing. The order of keys is all it knows of positions. Past the training length recent keys keep their weights and
farther ones share what is left. Defined for causal attention; without a causal mask, the stick is broken from the last
key of the row.
Source: Tan et al., Scaling Stick-Breaking Attention, arXiv 2410.17980, section 2; the remainder from the authors' code.
Checked against: shawntan/stickbreaking-attention's reference (strict, attending the current token, in chunks, padded),
    values and gradients; the decoding step of dolomite-engine.
Departs from the source: nothing; it calls the key of the current token "own", and the remainder rules come from its
    tests ("own"), its 3B models ("vector") and neither ("drop"). No threshold above which softplus(x) counts as x.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_flag, check_heads, check_whole
from posenc.encoding import Context, Reads, WeightEncoding
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.structure import Sticks

Remainder = Literal["drop", "own", "vector"]


class StickBreaking(WeightEncoding):
    """Stick-breaking attention weights.

    Args:
        num_heads: query heads; read for ``"vector"`` alone.
        value_dim: width of a value head; read for ``"vector"`` alone.
        attend_current: whether a query may look at its own key, index i + keys − queries for query i; with
            ``causal="positions"`` the newest visible key at its own position, if there is one.
        remainder: what receives the rest of the stick: ``"drop"`` nothing, ``"own"`` the value of the
            query's own key (unless it is padding), ``"vector"`` a learned vector a head, zero at first.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for an unknown remainder, or sizes that are missing or below 1.

    >>> from posenc import attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [StickBreaking(remainder="own")]).shape
    torch.Size([1, 8, 16, 64])
    """

    axes = 0
    reads = Reads(rotated=False, key_order=True)

    def __init__(
        self,
        *,
        num_heads: int | None = None,
        value_dim: int | None = None,
        attend_current: bool = False,
        remainder: Remainder = "drop",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if remainder not in get_args(Remainder):
            raise ValueError(f"remainder must be one of {get_args(Remainder)}, got {remainder!r}")
        self.attend_current, self.remainder = check_flag("attend_current", attend_current), remainder
        self.vector: nn.Parameter | None = None
        if remainder == "vector":
            if num_heads is None or value_dim is None:
                raise ValueError(
                    f"num_heads and value_dim must be given for remainder='vector', got {num_heads} and {value_dim}"
                )
            check_heads("num_heads", num_heads)
            check_whole("value_dim", value_dim)
            self.num_heads = num_heads
            self.vector = nn.Parameter(torch.empty(num_heads, value_dim))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """The vectors back to zero."""
        if self.vector is not None:
            nn.init.zeros_(self.vector)

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        own_key = _own_key(scores, context)
        left, seen = self._left(scores, context, own_key)
        weights = (F.logsigmoid(scores) + left[..., 1:]).exp()
        if seen is not None:
            weights = torch.where(seen, weights, 0.0)
        if self.remainder == "own":
            gets = own_key if context.mask is None else own_key & context.mask
            weights = weights + torch.where(gets, left[..., :1].exp(), 0.0)
        return weights

    def remainder_of(self, scores: Tensor, context: Context) -> Tensor:
        """What the keys leave of each query's stick, ``(batch, heads, queries)``; right however small it is."""
        left, _ = self._left(scores, context, _own_key(scores, context))
        return left[..., 0].exp()

    def output(self, weights: Tensor, context: Context) -> Tensor | None:
        if self.vector is None:
            return None
        remainder = 1 - weights.sum(-1, keepdim=True)  # of a sum with values of order one: no digit below counts
        if context.mask is not None:
            remainder = torch.where(context.mask.any(-1, keepdim=True), remainder, 0.0)
        return remainder * self.vector.to(weights.dtype).unsqueeze(-2)

    def structure(self) -> Sticks:
        return Sticks(self.attend_current, self.remainder, self.vector)

    def _left(self, scores: Tensor, context: Context, own_key: Tensor) -> tuple[Tensor, Tensor | None]:
        """Log of what is left of the stick, ``(batch, heads, queries, keys + 1)``; and the keys that queries attend to.

        Entry j is left by key j and all later ones, and the last one is the whole stick: no difference of two sums,
        in which large logits would cost the digits of small ones.
        """
        seen = context.mask
        if not self.attend_current:
            seen = ~own_key if seen is None else seen & ~own_key
        log_left = F.logsigmoid(-scores)
        if seen is not None:
            log_left = torch.where(seen, log_left, 0.0)
        return F.pad(log_left, (0, 1)).flip(-1).cumsum(-1).flip(-1), seen

    def extra_repr(self) -> str:
        sizes = "" if self.vector is None else f", num_heads={self.vector.shape[0]}, value_dim={self.vector.shape[1]}"
        return f"attend_current={self.attend_current}, remainder={self.remainder!r}{sizes}"


def _own_key(scores: Tensor, context: Context) -> Tensor:
    """Which key is the query's own, ``(batch | 1, heads | 1, queries, keys)`` or the last two axes alone."""
    if context.sequence.by_position:
        own = (context.q_pos.unsqueeze(-1) == context.k_pos.unsqueeze(-2)).unsqueeze(-3)
        own = own if context.mask is None else own & context.mask
        return own & (own.flip(-1).cumsum(-1).flip(-1) == 1)  # slots of a cache may repeat a position: the newest one
    queries, keys = scores.shape[-2:]  # the queries are the last tokens of the keys
    index = torch.arange(keys, device=scores.device)
    return index == (torch.arange(queries, device=scores.device) + (keys - queries))[:, None]


ENTRY = Entry(
    name="stick-breaking",
    encoding=StickBreaking,
    title="Stick-breaking attention",
    formula="a_ij = sigmoid(s_ij) · Π_{j < l < i} (1 − sigmoid(s_il))",
    source="Tan et al., arXiv 2410.17980, section 2",
    parameters="none",
    cost="a running sum over all logits instead of softmax",
    past_training="recent keys keep their weights, farther keys share the rest",
    reads="content",
    extension="none needed by its definition",
    used_in="its paper's own models; no other is known to us",
    avoid="where a query's weights must sum to 1: the rest of the stick goes to no key",
    exempt={"shuffled_positions": "keys must lie in the order of the text"},
)
