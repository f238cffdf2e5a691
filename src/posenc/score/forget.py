"""FoX: the forget gates of recurrent networks, for softmax attention: each token decides how much of the past stays.

    log f_l = logsigmoid(weight · x_l + bias)           kind "data"; per head
    log f_l = logsigmoid(bias)                          kind "bias"
    log f_l = −1 / T                                    kind "fixed", T from decay_time: ALiBi with slopes 1/T
    D_ij = Σ_{j < l ≤ i} log f_l
    s_ij ← s_ij + D_ij                                  scaled: + scale · D_ij

x the layer's input; D_ii = 0. l runs over the keys that query i sees, in the order of their indices, which must be that
of the text (positions are not read: no shuffled keys). Hidden keys count for nothing, so padding, packing and evicted
keys change no row. Defined for causal attention; without a causal mask l runs to the last key of the row, and later
keys are preferred. Past the training length far tokens fade on; nothing unseen appears. A mix is a list:
``[RoPE(64), ForgetGate(512, num_heads=8)]``.
Source: Lin et al., Forgetting Transformer: Softmax Attention with a Forget Gate, arXiv 2503.02130, section on
    forgetting attention; initial values and decay times as in the authors' code (zhixuan-lin/forgetting-transformer).
    CABLE is this gate with weight and bias negated; Veisi et al., Context-aware Biases for Length Extrapolation, arXiv
    2503.08067.
Checked against: the authors' reference of forgetting_attention and their ForgettingAttentionLayer (data and fixed
    gates, decoding, gates so strong that running sums pass −100), and CABLE's CausalSelfAttention; values and
    gradients.
Departs from the source: sums run per query from the newest key back, not from the start of the sequence, where float32
    loses 1e-2 at 131,072 tokens. Where a mask hides tokens between visible ones (attention sinks beside a window), the
    hidden ones forget nothing; the authors' code knows causal masks and left padding only. decay_time is their
    decay_time_min and decay_time_max; `scaled` is how PaTH's authors combine the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_flag, check_heads, check_number, check_whole
from posenc.constants import constant
from posenc.encoding import Context, Reads, ScoreEncoding
from posenc.entry import IN_ORDER, Entry
from posenc.factory_kwargs import Device, assign, place_parameters
from posenc.head_shares import QUERIES, HeadAxis, HeadShare
from posenc.score._inputs import checked_token_state, sum_of_later_gates, wide_linear
from posenc.structure import Decay

Kind = Literal["data", "bias", "fixed"]


class ForgetGate(ScoreEncoding):
    """A forget gate per query head. Kind "data" needs the layer's input: ``attention(..., x=x)``.

    Args:
        dim: width of the layer's input.
        num_heads: query heads.
        kind: ``"data"`` gates depend on the token, ``"bias"`` are learned numbers, ``"fixed"`` are given ones.
        decay_time: tokens after which a head has forgotten all but 1/e, from the first head's to the last one's, spaced
            evenly in their logarithms. Where "bias" starts (default: gates of 1/2) and where "fixed" stays; not for
            "data", whose gates start around 1/2.
        init_std: standard deviation of the initial weights of "data".
        scaled: whether D carries attention's scale as q·k does.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: at construction for an unknown kind, sizes below 1, or decay times that are missing or out of place;
            at a call without x or token_states, or for x of another width.

    >>> from posenc import attention
    >>> x, (q, k, v) = torch.randn(1, 16, 512), torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [ForgetGate(512, num_heads=8)], x=x).shape
    torch.Size([1, 8, 16, 64])
    >>> ForgetGate(512, num_heads=2, kind="fixed", decay_time=(1, 64))
    ForgetGate(512, num_heads=2, kind='fixed', decay_time=(1, 64))
    """

    axes = 0
    reads = Reads(rotated=False, key_order=True)
    shared_by_layers = False

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        kind: Kind = "data",
        decay_time: tuple[float, float] | None = None,
        init_std: float = 0.02,
        scaled: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("dim", dim)
        check_heads("num_heads", num_heads)
        check_number("init_std", init_std, least=0)
        if kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {get_args(Kind)}, got {kind!r}")
        if kind == "data" and decay_time is not None:
            raise ValueError(f"decay_time is for kind 'bias' or 'fixed', got {decay_time} for 'data'")
        if kind == "fixed" and decay_time is None:
            raise ValueError("decay_time must be given for kind 'fixed': tokens of the first and of the last head")
        if decay_time is not None:
            if not isinstance(decay_time, Sequence) or len(decay_time) != 2:
                raise ValueError(f"decay_time must be two positive numbers of tokens, got {decay_time!r}")
            for time in decay_time:
                check_number("decay_time", time, above=0)
        self.dim, self.num_heads, self.kind = dim, num_heads, kind
        self.scaled = check_flag("scaled", scaled)
        self.decay_time, self.init_std = decay_time, init_std
        self._decay_times: list[float] | None = None
        if decay_time is not None:
            first, last = (math.log(t) for t in decay_time)
            self._decay_times = [
                math.exp(first + (last - first) * head / max(1, num_heads - 1)) for head in range(num_heads)
            ]
        self.weight = nn.Parameter(torch.empty(num_heads, dim)) if kind == "data" else None
        self.bias = None if kind == "fixed" else nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Weights drawn anew, normal; biases back to 0, or to where gates have their decay times."""
        if self.weight is not None:
            nn.init.normal_(self.weight, std=self.init_std)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
            if self.decay_time is not None:
                biases = [-1 / t - math.log(-math.expm1(-1 / t)) for t in self.decay_times()]  # logsigmoid(bias) = −1/T
                assign(self.bias, torch.tensor(biases, dtype=self.bias.dtype, device="cpu"))

    def decay_times(self) -> list[float]:
        """T of each head, tokens, as the constructor was told."""
        if self._decay_times is None:
            raise ValueError("decay_time was not given")
        return self._decay_times

    def head_axes(self) -> dict[str, HeadAxis]:
        return dict.fromkeys((name for name, _ in self.named_parameters()), QUERIES)

    def _keep_heads(self, share: HeadShare) -> None:
        super()._keep_heads(share)
        if self._decay_times is not None:
            self._decay_times = self._decay_times[share.heads]

    def token_state(self, x: Tensor) -> Tensor | None:
        """Log gates ``(batch, heads, tokens)`` in float32 or better, where they depend on x."""
        if self.weight is None:
            return None
        return F.logsigmoid(wide_linear(x, self.weight, self.bias).transpose(1, 2))

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        decay = sum_of_later_gates(
            self._log_gates(context.token_state, context.k, scores.dtype).unsqueeze(-2), context.mask
        )
        return scores + (decay * context.scale if self.scaled else decay)

    def fast_form(self, context: Context, *, future: bool) -> tuple[Decay]:
        gates = self._log_gates(context.token_state, context.k, torch.promote_types(context.q.dtype, torch.float32))
        return (Decay(gates * context.scale if self.scaled else gates),)

    def _log_gates(self, token_states: Tensor | None, k: Tensor, dtype: torch.dtype) -> Tensor:
        """log f of the keys, ``(batch | 1, heads, keys)``."""
        if self.kind == "data":
            return checked_token_state("ForgetGate", token_states, k, (self.num_heads,), dtype)
        if self.bias is None:
            gates = constant([-1 / t for t in self.decay_times()], dtype, k.device)
        else:
            gates = F.logsigmoid(self.bias.to(dtype))
        return gates.view(1, -1, 1).expand(1, -1, k.shape[2])

    def extra_repr(self) -> str:
        extra = "" if self.decay_time is None else f", decay_time=({', '.join(f'{t:g}' for t in self.decay_time)})"
        return (
            f"{self.dim}, num_heads={self.num_heads}, kind={self.kind!r}{extra}{', scaled=True' if self.scaled else ''}"
        )


ENTRY = Entry(
    name="fox",
    encoding=ForgetGate,
    title="FoX: the forget gates of the Forgetting Transformer",
    formula="s_ij ← s_ij + Σ_{j < l ≤ i} log f_l,  f_l = sigmoid(weight · x_l + bias)",
    source="Lin et al., arXiv 2503.02130; with the opposite sign CABLE, Veisi et al., arXiv 2503.08067",
    parameters="(dim + 1) × heads per layer",
    cost="one small projection, a running sum over all logits; one number per head and token in the cache",
    past_training="logits keep decaying with distance; nothing new appears",
    reads="content",
    extension="none needed by its definition",
    used_in="its paper's own models; no other is known to us",
    exempt=IN_ORDER,
)
