"""Temperature: factors on the scores that grow with the length, so that attention stays sharp over many keys.

    s_ij ← f_i s_ij
    SSMax               f = scale_h · ln n + bias_h                   scale learned; bias if wanted, first 0
    LogN                f = 1 + strength · ln max(1, n / original_length),   by default ln n / ln original_length there
    StepTemperature     f = 1 + strength · ln(1 + floor((p_i + offset) / step))
    PowerTemperature    f = (1 + (p_i + 1) / step) ^ power

Softmax over n keys of which one stands out spreads its weight as n grows; a factor of ln n undoes that. n is the number
of keys that the query sees, ``count="visible"``: its own document's in a packed row, a window's width under a window,
i + 1 in a plain causal text. With ``count="position"`` it is p_i + 1, whatever is seen. A row of one key has ln n = 0
and weight 1 on that key. Everything that was added to the scores before is multiplied too, so a bias that is not to be
comes after. Past the training length a logarithm grows slowly; the steps begin where a text is longer than ``step``.
Source: SSMax: Nakanishi, Scalable-Softmax Is Superior for Attention, arXiv 2501.19399, the equation that defines
    SSMax, and that with a bias. LogN: Chiang and Cholak, arXiv 2202.12172, the remedy that their abstract names last;
    Su; Qwen, arXiv 2309.16609. StepTemperature: Llama 4 (offset 1, layers without rotation alone), Ministral 3 and
    Mistral 4 (offset 0, all layers, after the rotation). Mistral Large 4: SSMax with a bias, by position. Inkling:
    LogN with a strength. PowerTemperature: Beam in transformers 5.23.
Checked against: transformers' Llama 4, Ministral 3, Mistral 4 and Mistral Large 4, values and gradients; ReRoPE's log
    n; for SSMax, which has no official code, numpy by the formula.
Departs from the source: f is computed in float32 or better; Mistral Large 4 rounds scale and bias to half precision
    first.
Limits: backends multiply queries by f in their dtype: in float16 f · |q| has to stay below 65,504.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from posenc.arguments import LONGEST, check_flag, check_heads, check_number, check_whole
from posenc.encoding import Context, Reads, ScoreEncoding, float64_if_supported
from posenc.entry import Entry
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import QUERIES, HeadAxis
from posenc.structure import Factor

Count = Literal["visible", "position"]


class Temperature(ScoreEncoding):
    """Helper level: a factor a query on its scores. Subclasses say which in `factor`."""

    reads = Reads(rotated=False)

    def factor(self, context: Context) -> Tensor:
        """f ``(batch | 1, heads | 1, queries)``, in float32 or better."""
        raise NotImplementedError

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        return scores * self.factor(context).to(scores.dtype).unsqueeze(-1)

    def structure(self, context: Context, *, future: bool) -> tuple[Factor]:
        return (Factor(self.factor(context)),)


class SSMax(Temperature):
    """Scalable softmax: the scores times scale_h · ln n, with a learned scale a head.

    Args:
        num_heads: query heads.
        bias: whether there is a learned bias a head beside the logarithm.
        count: what n counts, ``"visible"`` keys or ``"position"`` + 1.
        scale: where the scales begin; 0.43 in the source's figure 1.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: for sizes below 1, an unknown count, or a scale that is no finite number.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [RoPE(64), SSMax(8)]).shape
    torch.Size([1, 8, 16, 64])
    """

    lr_multiplier = 10.0
    shared_by_layers = False

    def __init__(
        self,
        num_heads: int,
        *,
        bias: bool = False,
        count: Count = "visible",
        scale: float = 0.43,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads("num_heads", num_heads)
        check_number("scale", scale)
        self.num_heads, self.count, self.first = num_heads, _checked(count), float(scale)
        self.axes = 0 if count == "visible" else 1
        self.reads = Reads(rotated=False, key_counts=count == "visible")
        self.scale = nn.Parameter(torch.empty(num_heads))
        self.bias = nn.Parameter(torch.empty(num_heads)) if check_flag("bias", bias) else None
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """The scales back to where they begin, biases to 0."""
        nn.init.constant_(self.scale, self.first)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def head_axes(self) -> dict[str, HeadAxis]:
        return dict.fromkeys((name for name, _ in self.named_parameters()), QUERIES)

    def factor(self, context: Context) -> Tensor:
        logs = _logs(context, self.count)  # (batch | 1, heads | 1, queries)
        scaled = self.scale.to(logs.dtype).unsqueeze(-1) * logs
        return scaled if self.bias is None else scaled + self.bias.to(logs.dtype).unsqueeze(-1)

    def extra_repr(self) -> str:
        return f"{self.num_heads}, bias={self.bias is not None}, count={self.count!r}, scale={self.first:g}"


class LogN(Temperature):
    """Multiply the scores by 1 + strength · ln(n / original_length), where n is more than original_length.

    Args:
        original_length: tokens that the model was trained with, at least 2; Inkling's log_scaling_n_floor.
        strength: of the logarithm, Inkling's log_scaling_alpha; default 1 / ln original_length, which makes the factor
            ln n / ln original_length.
        count: what n counts, ``"visible"`` keys or ``"position"`` + 1.

    Raises:
        ValueError: for an original_length below 2, a negative strength or an unknown count.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [RoPE(64), LogN(8)]).shape
    torch.Size([1, 8, 16, 64])
    """

    def __init__(
        self,
        original_length: int,
        *,
        strength: float | None = None,
        count: Count = "position",
    ) -> None:
        super().__init__()
        check_whole("original_length", original_length, least=2, most=LONGEST)
        if strength is not None:
            check_number("strength", strength, least=0)
        self.original_length, self.count = original_length, _checked(count)
        self.strength = 1 / math.log(original_length) if strength is None else float(strength)
        self.axes = 0 if count == "visible" else 1
        self.reads = Reads(rotated=False, key_counts=count == "visible")

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return {"original_length": max(2, train_length)}

    def factor(self, context: Context) -> Tensor:
        beyond = (_logs(context, self.count) - math.log(self.original_length)).clamp(min=0.0)
        return 1 + self.strength * beyond

    def extra_repr(self) -> str:
        return f"{self.original_length}, strength={self.strength:g}, count={self.count!r}"


class StepTemperature(Temperature):
    """The scores times 1 + strength · ln(1 + floor((p + offset) / step)), p the query's position.

    Args:
        step: tokens a step, in sources the training length: Llama 4's floor_scale, Mistral's
            original_max_position_embeddings.
        strength: Llama 4's attn_scale, Mistral's llama_4_scaling_beta.
        offset: 1 as in Llama 4, where the first step is at position step − 1; 0 as in Mistral's.

    Raises:
        ValueError: for a step below 1, a strength that is no finite number, or another offset.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [RoPE(64), StepTemperature(8)]).shape
    torch.Size([1, 8, 16, 64])
    """

    def __init__(
        self,
        step: int = 8192,
        *,
        strength: float = 0.1,
        offset: int = 1,
    ) -> None:
        super().__init__()
        check_whole("step", step, most=LONGEST)
        check_number("strength", strength, least=0)
        check_whole("offset", offset, least=0, most=1)
        self.step, self.strength, self.offset = step, float(strength), offset

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return {"step": train_length}

    def factor(self, context: Context) -> Tensor:
        positions = _positions(context) + self.offset
        steps = torch.div(positions, self.step, rounding_mode="floor").clamp(min=0)
        return 1 + self.strength * steps.to(_wide(context)).log1p()

    def extra_repr(self) -> str:
        return f"{self.step}, strength={self.strength:g}, offset={self.offset}"


class PowerTemperature(Temperature):
    """The scores times (1 + (p + 1) / step) ^ power, p the query's position.

    Args:
        step: tokens; Beam has 2048.
        power: Beam has 0.1.

    Raises:
        ValueError: for a step below 1 or a negative power.

    >>> from posenc import RoPE, attention
    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention(q, k, v, [RoPE(64), PowerTemperature(8)]).shape
    torch.Size([1, 8, 16, 64])
    """

    def __init__(
        self,
        step: int = 2048,
        *,
        power: float = 0.1,
    ) -> None:
        super().__init__()
        check_whole("step", step, most=LONGEST)
        check_number("power", power, least=0)
        self.step, self.power = step, float(power)

    @classmethod
    def lengths_for(cls, train_length: int) -> dict[str, int]:
        return {"step": train_length}

    def factor(self, context: Context) -> Tensor:
        places = _positions(context).to(_wide(context)) + 1
        return (self.power * (places / self.step).clamp(min=0).log1p()).exp()

    def extra_repr(self) -> str:
        return f"{self.step}, power={self.power:g}"


def _checked(count: Count) -> Count:
    if count not in get_args(Count):
        raise ValueError(f"count must be one of {get_args(Count)}, got {count!r}")
    return count


def _logs(context: Context, count: Count) -> Tensor:
    """ln n, ``(batch | 1, heads | 1, queries)``; 0 for a query that attends to no key."""
    if count == "position":
        return (_positions(context).to(_wide(context)) + 1).clamp(min=1).log()
    if context.sequence.key_counts is not None:
        seen = context.sequence.key_counts
    elif context.mask is not None:
        seen = context.mask.sum(-1)
    else:
        seen = torch.full((1, 1, context.q.shape[2]), context.k.shape[2], device=context.q.device)
    return seen.to(_wide(context)).clamp(min=1).log()


def _positions(context: Context) -> Tensor:
    """Positions of queries, ``(batch | 1, 1, queries)``, int64 or wide."""
    positions = context.q_pos
    positions = positions.to(_wide(context)) if positions.is_floating_point() else positions.long()
    return positions[None, None] if positions.ndim == 1 else positions.unsqueeze(1)


def _wide(context: Context) -> torch.dtype:
    """The dtype of ln n: float32 cannot hold whole numbers above 2²⁴ exactly."""
    return float64_if_supported(context.q.device)


ENTRIES = (
    Entry(
        name="ssmax",
        encoding=SSMax,
        title="SSMax: scalable softmax",
        formula="s_ij ← s_ij · (scale_h · ln n_i + bias_h),  n_i keys that query i sees",
        source="Nakanishi, arXiv 2501.19399, figure 1",
        parameters="heads per layer, twice that with bias",
        cost="one factor per query",
        past_training="logits keep growing with the logarithm of the length",
        reads="lengths",
        extension="is itself one: scores are sharpened as rows grow",
        used_in="its paper's own models; no other is known to us",
        avoid="on a checkpoint that cannot be trained further: it changes logits at every length",
        exempt={"positions_matter": "the number of keys is read, not where they are"},
    ),
    Entry(
        name="log_n",
        encoding=LogN,
        title="Log-n scaling of attention",
        formula="s_ij ← s_ij · (1 + strength · ln max(1, n_i / original_length)),  n_i = p_i + 1 or keys that i sees",
        source="Chiang and Cholak, arXiv 2202.12172; Qwen's use_logn_attn, arXiv 2309.16609",
        parameters="none",
        cost="one factor per query",
        past_training="logits grow with the logarithm of the length, so that weights do not flatten further",
        reads="positions",
        extension="is itself one: scores are sharpened past the training length",
        used_in="Qwen (arXiv 2309.16609)",
        avoid="to change prompts within original_length: it has no effect there",
        exempt={"common_shift": "reads where a query is, not how far from its keys"},
    ),
    Entry(
        name="step_temperature",
        encoding=StepTemperature,
        title="A temperature that grows in steps of the position",
        formula="s_ij ← s_ij · (1 + strength · ln(1 + floor((p_i + offset) / step)))",
        source="Llama 4, Ministral 3 and Mistral 4, as in transformers 5.23, after arXiv 2501.19399",
        parameters="none",
        cost="one factor per query",
        past_training="logits grow with the logarithm of the length, in steps",
        reads="positions",
        extension="is itself one: scores are sharpened step by step",
        used_in="Llama 4, Ministral 3 and Mistral 4 (as in transformers 5.23)",
        avoid="as a positional encoding: it does not distinguish keys, and has no effect below the first step",
        exempt={"common_shift": "reads where a query is, not how far from its keys"},
    ),
    Entry(
        name="power_temperature",
        encoding=PowerTemperature,
        title="A temperature that grows as a power of the position",
        formula="s_ij ← s_ij · (1 + (p_i + 1) / step) ^ power",
        source="Beam in transformers 5.23, after arXiv 2501.19399",
        parameters="none",
        cost="one factor per query",
        past_training="logits keep growing by the same power",
        reads="positions",
        extension="is itself one: scores are sharpened by a power of the position",
        used_in="Beam (as in transformers 5.23)",
        avoid="on a checkpoint trained without it: it changes logits at every length",
        exempt={"common_shift": "reads where a query is, not how far from its keys"},
    ),
)
