"""Attention sinks: softmax with one more logit a head, which takes weight and has no value.

    a_ij = exp(s_ij) / ( exp(z_h) + Σ_l exp(s_il) )

z is no product of a query, so neither the scale nor a cap acts on it. A query that finds nothing to look at can give
its weight away, where softmax makes it spread it over keys: without a sink, models learn to hang it on their first
token, which a window then takes away. z = 0 for all heads is "softmax off by one", exp(s) / (1 + Σ exp(s)), and the
same as one more key and value of zeros. Positions are not read. Past the training length the share of the sink falls as
the number of keys grows.
Source: OpenAI, gpt-oss model card, arXiv 2508.10925, section 2.2 (learned); Miller, Attention Is Off By One, 2023
    (z = 0). What it replaces: Xiao et al., StreamingLLM, arXiv 2309.17453.
Checked against: transformers' eager attention of gpt-oss, whole texts, a window and decoding, values and gradients; for
    z = 0 PyTorch's own function with a key and value of zeros.
Departs from the source: nothing. Any path gives it from a softmax that returns its log-sum-exp:
    o_i ← o_i · sigmoid(lse_i − z_h), and the weights' own backward pass with that log-sum-exp and result.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc.arguments import check_flag, check_heads, check_number
from posenc.encoding import Context, Reads, WeightEncoding
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import QUERIES, HeadAxis
from posenc.structure import Sink


class AttentionSink(WeightEncoding):
    """Add a logit per head that takes weight and gives no value. Only one encoding of a list may replace softmax.

    Args:
        num_heads: query heads.
        learned: whether the logits are parameters; False: they stay where they begin.
        logit: where they begin, in units of scores; 0 is softmax off by one.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for sizes below 1 or a logit that is no finite number.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [RoPE(64), AttentionSink(8)]).shape
    torch.Size([1, 8, 16, 64])
    """

    axes = 0
    reads = Reads(rotated=False)
    lr_multiplier = 10.0
    shared_by_layers = False

    logits: Tensor  # (num_heads,)

    def __init__(
        self,
        num_heads: int,
        *,
        learned: bool = True,
        logit: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads("num_heads", num_heads)
        check_number("logit", logit)
        self.num_heads, self.learned, self.logit = num_heads, check_flag("learned", learned), float(logit)
        if learned:
            self.logits = nn.Parameter(torch.empty(num_heads))
        else:
            self.register_buffer("logits", torch.empty(num_heads), persistent=False)
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """The logits back to where they begin."""
        nn.init.constant_(self.logits, self.logit)

    def head_axes(self) -> dict[str, HeadAxis]:
        return {"logits": QUERIES}

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        if context.mask is not None:
            scores = scores.masked_fill(~context.mask, -torch.inf)
        sink = self.logits.to(scores.dtype).view(-1, 1, 1).expand(*scores.shape[:3], 1)
        return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]

    def structure(self) -> Sink:
        return Sink(self.logits)

    def extra_repr(self) -> str:
        return f"{self.num_heads}, learned={self.learned}, logit={self.logit:g}"


ENTRY = Entry(
    name="sink",
    encoding=AttentionSink,
    title="Attention sink: a logit that takes weight and has no value",
    formula="a_ij = exp(s_ij) / (exp(z_h) + Σ_l exp(s_il))",
    source="gpt-oss, arXiv 2508.10925, section 2.2; softmax off by one, Miller 2023",
    parameters="heads per layer",
    cost="one factor per query, from the log-sum-exp of its logits",
    past_training="the more keys, the less weight the sink gets",
    reads="nothing",
    extension="none of its own",
    used_in="gpt-oss (arXiv 2508.10925); DeepSeek-V4 and MiMo-V2-Flash (as in transformers 5.23)",
    avoid="as a positional encoding: it carries no order; or where a query's weights must sum to 1",
)
